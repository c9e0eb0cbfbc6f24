// SPDX-License-Identifier: Apache-2.0
// Runs histories of the core under simulated time, one seed each, in processes of their own: what one does
// wrong harms no other, and what a seed does depends on nothing but the seed.
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "r2ccl/tests/simulation/aim_tally.h"
#include "r2ccl/tests/simulation/arena.h"
#include "r2ccl/tests/simulation/history.h"

namespace r2ccl::simulation {
namespace {

struct Report {  // what a history's process says, through shared memory
  bool said = false;
  uint64_t events = 0, digest = 0, simulated = 0, gap = 0;
  int migrations = 0, errors = 0;
  char violation[400] = "";
  size_t faults = 0;
  std::array<Fate, 64> fates{};  // of the plan's faults
  bool sign = false;
  ClaimCount claims;
  bool same_history_as(const Report& other) const {
    return events == other.events && simulated == other.simulated && digest == other.digest;
  }
};

constexpr uint64_t kTwice = 50;          // every so many seeds one is run twice: it must do the same
constexpr unsigned kCpuSeconds = 60;     // no history takes so long …
constexpr unsigned kRealSeconds = 1800;  // … nor so long on a machine that others use

Report* shared_report() {
  return static_cast<Report*>(
      mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

/// What processes of histories use one after the other.
struct Room {
  Report* report = shared_report();
  Arena* arena = Arena::make();
};

pid_t begin(const Plan& plan, const Room& room) {
  Report* const report = room.report;
  *report = {};
  const pid_t child = fork();
  if (child != 0) return child;
  if (room.arena) room.arena->enter();
  alarm(kRealSeconds);
  const itimerval bound{{0, 0}, {kCpuSeconds, 0}};
  setitimer(ITIMER_PROF, &bound, nullptr);
  const Verdict verdict = run(plan, false);
  report->events = verdict.events;
  report->digest = verdict.digest;
  report->simulated = verdict.simulated;
  report->gap = verdict.longest_gap;
  report->migrations = verdict.migrations;
  report->errors = verdict.errors;
  report->sign = verdict.sign;
  report->claims = verdict.claims;
  report->faults = std::min(verdict.fates.size(), report->fates.size());
  std::copy_n(verdict.fates.begin(), report->faults, report->fates.begin());
  std::snprintf(report->violation, sizeof report->violation, "%s", verdict.violation.c_str());
  report->said = true;
  _exit(0);
}

/// What a history's process that has ended with `status` says.
std::string violation_of(int status, const Report& report) {
  if (report.said) return report.violation;
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF))
    return "a history takes longer than a minute of CPU time, or does not end";
  return "the process ended with status " + std::to_string(status);
}

std::string outcome(const Plan& plan, const Room& room) {
  const pid_t child = begin(plan, room);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  return violation_of(status, *room.report);
}

/// The same kind of violation: numbers in it may differ.
std::string kind_of(std::string violation) {
  std::erase_if(violation, [](char c) { return c >= '0' && c <= '9'; });
  return violation.substr(0, 40);
}

// Leaves out faults, then halves the messages of channels, as long as the violation stays. (A channel is not
// left out, since faults name NICs and aims name channels; one message of it costs little.)
Plan shrink(Plan plan, const std::string& violation) {
  const Room room;
  const std::string kind = kind_of(violation);
  const auto still = [&](const Plan& smaller) { return kind_of(outcome(smaller, room)) == kind; };
  for (size_t i = 0; i < plan.faults.size();) {
    Plan smaller = plan;
    smaller.faults.erase(smaller.faults.begin() + std::ptrdiff_t(i));
    if (still(smaller))
      plan = smaller;
    else
      ++i;
  }
  for (size_t i = 0; i < plan.channels.size(); ++i)
    while (plan.channels[i].messages > 1) {
      Plan smaller = plan;
      smaller.channels[i].messages /= 2;
      if (!still(smaller)) break;
      plan = smaller;
    }
  return plan;
}

struct Sum {
  uint64_t histories = 0, events = 0, migrations = 0, errors = 0, simulated = 0, gap = 0, wrong = 0;
  ClaimCount claims;
};

/// What the command line asks for.
struct Options {
  uint64_t first = 0, count = 1000, step = 1, replay = 0;
  double minutes = 1e9;
  size_t jobs = 1;
  int aims_met = -1;  ///< per cent; −1: it does not matter
  bool keep_going = false, each = false;
  std::string faults, file;
};

/// Many seeds, `jobs` at a time, each in a process of its own.
class Many {
 public:
  explicit Many(const Options& options) : options_(options), running_(options.jobs) {}

  int run() {
    for (Running& one : running_) next(one);
    for (int status; const pid_t child = waitpid(-1, &status, 0);) {
      if (child < 0 && errno == ECHILD) break;
      for (Running& one : running_)
        if (child > 0 && one.child == child) ended(one, status);
    }
    tell();
    return wrong_.empty() && (options_.aims_met < 0 || all_met()) ? 0 : 1;
  }
  const Sum& sum() const { return sum_; }
  /// Seconds that it took.
  double took() const { return took_; }

 private:
  struct Running {
    pid_t child = 0;
    Plan plan;
    Room room;
    Report first;        // of a seed that runs for the second time
    bool again = false;  // it does
  };
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }
  void next(Running& one) {
    one.child = 0;
    if (begun_ == options_.count || seconds() >= options_.minutes * 60 ||
        !(wrong_.empty() || options_.keep_going))
      return;
    one.plan = plan_of(options_.first + options_.step * begun_++);
    one.again = false;
    one.child = begin(one.plan, one.room);
  }
  void ended(Running& one, int status) {
    std::string violation = violation_of(status, *one.room.report);
    if (violation.empty()) violation = too_small(one.plan);
    if (one.again) {
      if (violation.empty() && !one.room.report->same_history_as(one.first))
        violation = "the same seed gave another history";
    } else if (violation.empty() && one.plan.seed % kTwice == 0) {
      one.first = *one.room.report;
      one.again = true;
      one.child = begin(one.plan, one.room);
      return;
    }
    ++sum_.histories;
    if (options_.each)
      std::printf("seed %llu: %016llx %s\n", static_cast<unsigned long long>(one.plan.seed),
                  static_cast<unsigned long long>(one.room.report->digest), violation.c_str());
    sum_.events += one.room.report->events;
    sum_.migrations += uint64_t(one.room.report->migrations);
    sum_.errors += uint64_t(one.room.report->errors);
    sum_.simulated += one.room.report->simulated;
    sum_.gap = std::max(sum_.gap, one.room.report->gap);
    sum_.claims.add(one.room.report->claims);
    aims_.add(one.plan, std::span(one.room.report->fates).first(one.room.report->faults),
              one.room.report->sign);
    if (!violation.empty()) note(one.plan, violation);
    next(one);
  }
  // The first of its kind is shrunk; the others wait meanwhile.
  void note(const Plan& plan, const std::string& violation) {
    ++sum_.wrong;
    auto& seeds = wrong_[kind_of(violation)];
    seeds.push_back(plan.seed);
    if (seeds.size() > 1) return;
    std::printf("after %.1f s: seed %llu: %s\n", seconds(), static_cast<unsigned long long>(plan.seed),
                violation.c_str());
    std::printf("the smallest history found that shows it:\n%s", shrink(plan, violation).words().c_str());
    std::fflush(stdout);
  }
  bool all_met() const {
    const auto missed = aims_.missed(unsigned(options_.aims_met));
    for (const std::string& what : missed)
      std::printf("wrong: fewer than %d %% met what they aim at: %s\n", options_.aims_met, what.c_str());
    if (!sum_.claims.has_all()) std::printf("wrong: the log has never made one of the claims\n");
    return missed.empty() && sum_.claims.has_all();
  }
  void tell_claims() const {
    const ClaimCount& claims = sum_.claims;
    std::printf(
        "checked in the log: %llu detectors, %llu failures of a NIC, %llu searches, %llu outages, %llu "
        "drivers\n",
        static_cast<unsigned long long>(claims.detectors), static_cast<unsigned long long>(claims.failures),
        static_cast<unsigned long long>(claims.searches), static_cast<unsigned long long>(claims.outages),
        static_cast<unsigned long long>(claims.drivers));
  }
  void tell() {
    took_ = seconds();
    const double count = double(std::max<uint64_t>(sum_.histories, 1));
    std::printf(
        "%llu histories in %.1f s (%.0f an hour): %.1f s of simulated time each, %.0f events, %.2f "
        "migrations, %llu errors that had to be; longest stall %.0f ms\n",
        static_cast<unsigned long long>(sum_.histories), took_, double(sum_.histories) / took_ * 3600,
        double(sum_.simulated) / 1e9 / count, double(sum_.events) / count, double(sum_.migrations) / count,
        static_cast<unsigned long long>(sum_.errors), double(sum_.gap) / 1e6);
    tell_claims();
    aims_.tell(options_.aims_met >= 0);
    for (const auto& [what, seeds] : wrong_) {
      std::printf("wrong: %zu × %s…: seeds", seeds.size(), what.c_str());
      for (size_t i = 0; i < seeds.size() && i < 12; ++i)
        std::printf(" %llu", static_cast<unsigned long long>(seeds[i]));
      std::printf("\n");
    }
  }

  const Options options_;
  uint64_t begun_ = 0;
  std::vector<Running> running_;
  Sum sum_;
  AimTally aims_;
  std::map<std::string, std::vector<uint64_t>> wrong_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double took_ = 0;
};

constexpr char kColumns[] = "set,commit,first_seed,last_seed,histories,seconds,jobs,wrong";

/// The last seed that `file` has a row of; 0: it has none.
uint64_t last_recorded(const std::string& file) {
  std::ifstream in(file);
  uint64_t last = 0;
  for (std::string line; std::getline(in, line);) {
    size_t column = 0;  // the fourth
    for (int comma = 0; comma < 3 && column != std::string::npos; ++comma)
      column = line.find(',', column + (comma > 0));
    if (column != std::string::npos)
      last = std::max<uint64_t>(last, std::strtoull(line.c_str() + column + 1, nullptr, 10));
  }
  return last;
}

/// The commit of the checkout that `file` lies in.
std::string commit_of(const std::string& file) {
  const std::string folder = std::filesystem::absolute(file).parent_path().string();
  std::string commit;
  if (FILE* git = popen(("git -C '" + folder + "' rev-parse --short=10 HEAD 2>/dev/null").c_str(), "r")) {
    for (int c; (c = std::fgetc(git)) != EOF;)
      if (std::isxdigit(c)) commit += char(c);
    pclose(git);
  }
  return commit.empty() ? "unknown" : commit;
}

/// One row: what ran. Seeds that were not begun are not in it.
bool record(const Options& options, const Many& many) {
  const std::string& file = options.file;
  const uint64_t first = options.first;
  if (many.sum().histories == 0) return true;
  const bool is_new = !std::filesystem::exists(file) || std::filesystem::file_size(file) == 0;
  std::ofstream out(file, std::ios::app);
  if (is_new) out << kColumns << '\n';
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.0f", many.took());
  out << "simulation," << commit_of(file) << ',' << first << ',' << first + many.sum().histories - 1 << ','
      << many.sum().histories << ',' << seconds << ',' << options.jobs << ',' << many.sum().wrong << '\n';
  return bool(out.flush());
}

constexpr char kHelp[] = R"(Runs the core under simulated time, one history for each seed (README.md).

  simulate --seeds N         runs N seeds; exit status 1 when one is wrong: it is shrunk and printed
    --first SEED             begins with this seed (default: 1)
    --step N                 runs every Nth seed only; with 64, those with one aim
    --minutes M              stops after so many minutes
    --jobs N                 runs N histories at a time (default: 1)
    --keep-going             goes on after a wrong one
    --aims-met P             exit status 1, too, when less than P % of what an aim consists of was met
    --each                   prints a digest of each history: its trace and log, with their times
    --record FILE            appends a row to FILE; without --first, begins behind the last seed there
  simulate --replay SEED     runs one, and prints its faults, its log and its trace
    --faults I,J             … with these of its faults only, by their numbers

Exit status: 0 every history is right, 1 one is wrong or FILE cannot be written, 64 wrong command line.
)";

/// Empty, or what is wrong with the command line.
std::string parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto number = [&](auto& into, double least) -> std::string {
      if (++i == argc) return option + " needs a number";
      char* end = nullptr;
      const double value = std::strtod(argv[i], &end);
      if (end == argv[i] || *end != '\0' || !(value >= least) || value > 1e18)
        return option + " takes a number from " + std::to_string(int(least)) + ", not '" + argv[i] + "'";
      into = static_cast<std::remove_reference_t<decltype(into)>>(value);
      return "";
    };
    const auto text = [&](std::string& into) -> std::string {
      if (++i == argc) return option + " needs an argument";
      into = argv[i];
      return "";
    };
    std::string wrong;
    if (option == "--first")
      wrong = number(options.first, 1);
    else if (option == "--seeds")
      wrong = number(options.count, 1);
    else if (option == "--step")
      wrong = number(options.step, 1);
    else if (option == "--minutes")
      wrong = number(options.minutes, 0);
    else if (option == "--jobs")
      wrong = number(options.jobs, 1);
    else if (option == "--replay")
      wrong = number(options.replay, 1);
    else if (option == "--aims-met")
      wrong = number(options.aims_met, 0);
    else if (option == "--faults")
      wrong = text(options.faults);
    else if (option == "--record")
      wrong = text(options.file);
    else if (option == "--keep-going")
      options.keep_going = true;
    else if (option == "--each")
      options.each = true;
    else
      wrong = "unknown option " + option;
    if (!wrong.empty()) return wrong;
  }
  return "";
}

int run_many(Options options) {
  const std::string& file = options.file;
  if (options.step > 1 && !file.empty())
    return std::fprintf(stderr, "a record has every seed: no --step\n"), 64;
  if (options.first == 0) options.first = file.empty() ? 1 : last_recorded(file) + 1;
  Many many(options);
  const int status = many.run();
  if (!file.empty() && !record(options, many))
    return std::fprintf(stderr, "%s cannot be written\n", file.c_str()), 1;
  return status;
}

/// False: it has no fault of one of those numbers.
bool choose(Plan& plan, const std::string& faults) {
  const std::vector<Fault> all = std::move(plan.faults);
  plan.faults.clear();
  std::istringstream numbers(faults);
  for (std::string number; std::getline(numbers, number, ',');) {
    const size_t i = std::strtoull(number.c_str(), nullptr, 10);
    if (i >= all.size())
      return std::fprintf(stderr, "seed %llu has no fault %zu\n", static_cast<unsigned long long>(plan.seed),
                          i),
             false;
    plan.faults.push_back(all[i]);
  }
  return true;
}

int replay(const Options& options) {
  Plan plan = plan_of(options.replay);
  if (!options.faults.empty() && !choose(plan, options.faults)) return 64;
  std::printf("%s", plan.words().c_str());
  const Room room;
  if (room.arena) room.arena->enter();
  const Verdict verdict = run(plan, true);
  std::printf("%s\n", verdict.violation.empty() ? "everything holds" : verdict.violation.c_str());
  std::fflush(stdout);
  _exit(verdict.violation.empty() ? 0 : 1);
}

int main_of(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (const std::string option = argv[i]; option == "--help" || option == "-h")
      return std::fputs(kHelp, stdout), 0;
  Options options;
  if (const std::string wrong = parse(argc, argv, options); !wrong.empty())
    return std::fprintf(stderr, "simulate: %s (see simulate --help)\n", wrong.c_str()), 64;
  return options.replay == 0 ? run_many(options) : replay(options);
}

}  // namespace
}  // namespace r2ccl::simulation

int main(int argc, char** argv) { return r2ccl::simulation::main_of(argc, argv); }
