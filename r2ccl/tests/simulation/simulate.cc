// SPDX-License-Identifier: Apache-2.0
// Runs histories of the core under simulated time, one seed each, in processes of their own: what one does
// wrong harms no other, and what a seed does depends on nothing but the seed.
//
//     simulate --seeds 1000 [--first 1] [--minutes 10] [--jobs 2]    many; exit status 1 when one is wrong
//     simulate --replay 42 [--faults 0,2]                           one, with its log
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "r2ccl/tests/simulation/history.h"

namespace r2ccl::simulation {
namespace {

struct Report {  // what a history's process says, through shared memory
  bool said = false;
  uint64_t events = 0, simulated = 0, gap = 0;
  int migrations = 0, errors = 0;
  char violation[400] = "";
};

constexpr uint64_t kTwice = 50;        // every so many seeds one is run twice: it must do the same
constexpr unsigned kRealSeconds = 60;  // no history takes so long

Report* shared_report() {
  return static_cast<Report*>(
      mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

pid_t begin(const Plan& plan, Report* report) {
  *report = {};
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(kRealSeconds);
  const Verdict verdict = run(plan, false);
  report->events = verdict.events;
  report->simulated = verdict.simulated;
  report->gap = verdict.longest_gap;
  report->migrations = verdict.migrations;
  report->errors = verdict.errors;
  std::snprintf(report->violation, sizeof report->violation, "%s", verdict.violation.c_str());
  report->said = true;
  _exit(0);
}

std::string end(pid_t child, const Report& report) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  if (report.said) return report.violation;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return "a history takes longer than a minute";
  return "the process ended with status " + std::to_string(status);
}

std::string outcome(const Plan& plan, Report* report) { return end(begin(plan, report), *report); }

/// The same kind of violation: numbers in it may differ.
std::string kind_of(std::string violation) {
  std::erase_if(violation, [](char c) { return c >= '0' && c <= '9'; });
  return violation.substr(0, 40);
}

// Leaves out faults, and then channels' messages, as long as the violation stays.
Plan shrink(Plan plan, const std::string& violation, Report* report) {
  const std::string kind = kind_of(violation);
  const auto still = [&](const Plan& smaller) { return kind_of(outcome(smaller, report)) == kind; };
  for (size_t i = 0; i < plan.faults.size();) {
    Plan smaller = plan;
    smaller.faults.erase(smaller.faults.begin() + std::ptrdiff_t(i));
    if (still(smaller))
      plan = smaller;
    else
      ++i;
  }
  return plan;
}

struct Sum {
  uint64_t histories = 0, events = 0, migrations = 0, errors = 0, simulated = 0, gap = 0;
};

int many(uint64_t first, uint64_t count, double minutes, size_t jobs, bool keep_going) {
  struct Running {
    pid_t child = 0;
    Plan plan;
    Report* report = shared_report();
  };
  std::vector<Running> running(jobs);
  Sum sum;
  std::map<std::string, std::vector<uint64_t>> wrong;
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  Report* again = shared_report();
  const auto finish = [&](Running& one) {
    if (one.child == 0) return;
    std::string violation = end(one.child, *one.report);
    one.child = 0;
    if (violation.empty() && one.plan.seed % kTwice == 0) {
      violation = outcome(one.plan, again);
      if (again->events != one.report->events || again->simulated != one.report->simulated)
        violation = "the same seed gave another history";
    }
    ++sum.histories;
    sum.events += one.report->events;
    sum.migrations += uint64_t(one.report->migrations);
    sum.errors += uint64_t(one.report->errors);
    sum.simulated += one.report->simulated;
    sum.gap = std::max(sum.gap, one.report->gap);
    if (violation.empty()) return;
    auto& seeds = wrong[kind_of(violation)];
    seeds.push_back(one.plan.seed);
    if (seeds.size() > 1) return;
    std::printf("after %.1f s: seed %llu: %s\n", seconds(), static_cast<unsigned long long>(one.plan.seed),
                violation.c_str());
    Report* report = shared_report();
    std::printf("the smallest history found that shows it:\n%s",
                shrink(one.plan, violation, report).words().c_str());
    std::fflush(stdout);
  };
  uint64_t seed = first;
  size_t turn = 0;
  while (seed < first + count && seconds() < minutes * 60 && (wrong.empty() || keep_going)) {
    Running& one = running[turn++ % jobs];
    finish(one);
    one.plan = plan_of(seed++);
    one.child = begin(one.plan, one.report);
  }
  for (Running& one : running) finish(one);
  const double took = seconds();
  std::printf(
      "%llu histories in %.1f s (%.0f an hour): %.1f s of simulated time each, %.0f events, %.2f migrations, "
      "%llu errors that had to be; longest stall %.0f ms\n",
      static_cast<unsigned long long>(sum.histories), took, double(sum.histories) / took * 3600,
      double(sum.simulated) / 1e9 / double(sum.histories), double(sum.events) / double(sum.histories),
      double(sum.migrations) / double(sum.histories), static_cast<unsigned long long>(sum.errors),
      double(sum.gap) / 1e6);
  for (const auto& [what, seeds] : wrong) {
    std::printf("wrong: %zu × %s…: seeds", seeds.size(), what.c_str());
    for (size_t i = 0; i < seeds.size() && i < 12; ++i)
      std::printf(" %llu", static_cast<unsigned long long>(seeds[i]));
    std::printf("\n");
  }
  return wrong.empty() ? 0 : 1;
}

int main_of(int argc, char** argv) {
  uint64_t first = 1, count = 1000, replay = 0;
  double minutes = 1e9;
  size_t jobs = 1;
  bool keep_going = false;
  std::string faults;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* option) { return std::strcmp(argv[i], option) == 0 && i + 1 < argc; };
    if (is("--first"))
      first = std::strtoull(argv[++i], nullptr, 10);
    else if (is("--seeds"))
      count = std::strtoull(argv[++i], nullptr, 10);
    else if (is("--minutes"))
      minutes = std::atof(argv[++i]);
    else if (is("--jobs"))
      jobs = std::strtoull(argv[++i], nullptr, 10);
    else if (is("--replay"))
      replay = std::strtoull(argv[++i], nullptr, 10);
    else if (is("--faults"))
      faults = argv[++i];
    else if (std::strcmp(argv[i], "--keep-going") == 0)
      keep_going = true;
    else
      return std::fprintf(stderr, "unknown option %s\n", argv[i]), 64;
  }
  if (replay == 0) return many(first, count, minutes, jobs, keep_going);
  Plan plan = plan_of(replay);
  if (!faults.empty()) {
    const std::vector<Fault> all = std::move(plan.faults);
    plan.faults.clear();
    for (size_t i = 0; i < all.size(); ++i)
      if (faults.find(char('0' + i)) != std::string::npos) plan.faults.push_back(all[i]);
  }
  std::printf("%s", plan.words().c_str());
  const Verdict verdict = run(plan, true);
  std::printf("%s\n", verdict.violation.empty() ? "everything holds" : verdict.violation.c_str());
  std::fflush(stdout);
  _exit(verdict.violation.empty() ? 0 : 1);
}

}  // namespace
}  // namespace r2ccl::simulation

int main(int argc, char** argv) { return r2ccl::simulation::main_of(argc, argv); }
