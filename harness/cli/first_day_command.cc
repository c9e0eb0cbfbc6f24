// SPDX-License-Identifier: Apache-2.0
// `doctor --first-day`: the steps, what of them is done, and the next ones carried out.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/base/format.h"
#include "harness/cli/cluster_command.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/first_day_steps.h"
#include "harness/cli/resources.h"
#include "harness/cluster/preflight.h"
#include "harness/launch/process.h"
#include "harness/real/shell.h"
#include "harness/report/file_lock.h"
#include "harness/run/runner.h"
#include "harness/scenario/load.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Risk = FirstDayStep::Risk;

constexpr std::chrono::hours kStepLimit{3};
constexpr const char* kAnotherFolder = "; choose another folder with --out";

void make_day_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && !fs::is_directory(folder)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw UsageError(folder.string() + ": cannot be made: " + error.message() + kAnotherFolder);
}

/// Of two that ran the same steps, each would take the other's folders for those of an earlier try.
/// The steps have it open, too: the folder stays locked while anything of one lives, whatever this process
/// dies of.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder) {
    make_day_folder(folder);
    descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0)
      throw UsageError(folder.string() + ": cannot be read: " + std::strerror(errno) + kAnotherFolder);
    const bool is_taken = try_lock(descriptor_) == EWOULDBLOCK;
    if (!is_taken && ::faccessat(descriptor_, ".", W_OK, AT_EACCESS) == 0) return;
    const int error = errno;
    ::close(descriptor_);
    if (!is_taken)
      throw UsageError(folder.string() + ": cannot be written: " + std::strerror(error) + kAnotherFolder);
    throw UsageError(
        folder.string() +
        ": another r2bench doctor --first-day works in this folder, or a step of one still runs; "
        "wait for its end, or take another --out");
  }
  ~FolderLock() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }
  FolderLock(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// steps.jsonl of the folder: the last line of a step counts.
class StepRecord {
 public:
  explicit StepRecord(fs::path folder) : folder_(std::move(folder)) {
    std::ifstream file(folder_ / "steps.jsonl");
    size_t number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      const auto json = nlohmann::json::parse(line, nullptr, false);
      const auto has = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
      if (json.is_discarded() || !has("step") || !has("state"))
        throw UsageError((folder_ / "steps.jsonl").string() + ":" + std::to_string(number) +
                         ": is no line of this command; remove it, or take another --out");
      states_[json["step"]] = json["state"];
    }
  }
  /// "done", "failed", "skipped", "left out", or "".
  std::string of(const std::string& step) const {
    const auto found = states_.find(step);
    return found == states_.end() ? "" : found->second;
  }
  void write(const std::string& step, const std::string& state, const std::string& text) {
    make_day_folder(folder_);
    std::ofstream file(folder_ / "steps.jsonl", std::ios::app);
    file << nlohmann::json{{"step", step}, {"state", state}, {"text", text}, {"at", utc_now()}}.dump()
         << "\n";
    if (!file.flush())
      throw UsageError((folder_ / "steps.jsonl").string() + ": cannot be written" + kAnotherFolder);
    states_[step] = state;
  }

 private:
  fs::path folder_;
  std::map<std::string, std::string> states_;
};

bool is_over(const std::string& state) {
  return state == "done" || state == "skipped" || state == "left out";
}

/// Ports of this machine that a run takes; the other hosts have as many.
int usable_ports() {
  std::vector<RdmaHostFacts> here = {rdma_facts_of_this_host()};
  const char* ib_hca = std::getenv("NCCL_IB_HCA");
  leave_out(here, ib_hca == nullptr ? "" : ib_hca);
  return int(std::count_if(here[0].ports.begin(), here[0].ports.end(), [](const PortFacts& port) {
    return port.port == 1 && port.state == "ACTIVE" && port.left_out.empty();
  }));
}

struct Shape {
  std::string options;  ///< of `r2bench run`
  std::string reason;   ///< why the step makes no sense here; empty: it does
};

/// Without any port the scenario stays as it is: what it says then is a finding of the preflight's, too.
Shape shape_of(const FirstDayStep& step, const std::string& hosts) {
  const int ports = usable_ports();
  if (ports == 0 || step.least.nodes == 0) return {};
  NodesAndNics wanted = step.least;  // a program of its own, which takes no other machines
  int count = 1;
  if (!step.scenario.empty()) {
    const Fabric fabric = load_scenarios(find_scenario(step.scenario).string()).at(0).fabric;
    wanted = {fabric.nodes, fabric.nics_per_node};
    count += int(std::count(hosts.begin(), hosts.end(), ','));
  }
  const auto fits = fitting(wanted, step.least, count, ports);
  return fits ? Shape{set_options(wanted, *fits), ""} : Shape{"", why_not_fitting(step.least, count, ports)};
}

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What the commands may use.
Variables variables(const FirstDayStep& step, const FirstDayArguments& arguments, const fs::path& out) {
  const auto share = share_folder();
  std::string launch = shape_of(step, arguments.hosts).options;
  const auto add = [&](const std::string& words) { launch += (launch.empty() ? "" : " ") + words; };
  if (!arguments.hosts.empty()) add("--launcher mpi --hosts " + arguments.hosts);
  if (!arguments.run_options.empty()) add(arguments.run_options);
  return {{"R2BENCH_SHARE", share ? share->string() : ""},
          {"R2BENCH", (program_prefix() / "bin" / "r2bench").string()},
          {"OUT", out.string()},
          {"LAUNCH", launch},
          {"HOST_OPTION", arguments.hosts.empty() ? "" : "--host " + arguments.hosts}};
}

std::string assignments(const Variables& of) {
  std::string text;
  for (const auto& [name, value] : of) text += name + "=" + shell_quoted(value) + "; ";
  return text + "export R2BENCH_SHARE; ";
}

/// The command as a person can type it.
std::string filled_in(std::string command, const Variables& of) {
  for (const auto& [name, value] : of)
    for (size_t at = 0; (at = command.find("$" + name, at)) != std::string::npos; at += value.size())
      command.replace(at, name.size() + 1, value);
  return command;
}

/// They stand in a line of /bin/sh, as do hosts, which host_list() has checked.
void check_run_options(const std::string& words) {
  const bool plain = std::all_of(words.begin(), words.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view(" ._,=/:-").find(char(c)) != std::string_view::npos;
  });
  if (!plain)
    throw UsageError("--run-options: '" + words +
                     "': letters, digits, spaces and . _ , = / : - are possible");
}

const FirstDayStep& step_named(const std::string& wanted) {
  const auto& steps = first_day_steps();
  const auto found =
      std::find_if(steps.begin(), steps.end(), [&](const FirstDayStep& s) { return s.name == wanted; });
  if (found != steps.end()) return *found;
  std::string names;
  for (const FirstDayStep& step : steps) names += (names.empty() ? "" : ", ") + step.name;
  throw UsageError("there is no step '" + wanted + "'; there are " + names);
}

void show(const FirstDayStep& step, const std::string& state, const Console& console) {
  const char* mark = is_over(state) ? "✓" : state == "failed" ? "✗" : "·";
  const std::string lead =
      "  " + std::string(mark) + " " + left(step.name, 19) + " " + left(state.empty() ? "" : state, 9) + " ";
  console.out << lead << wrap(step.shows, console.columns - width(lead), width(lead)) << "\n";
}

fs::path folder_of(const FirstDayStep& step, const FirstDayArguments& arguments) {
  return fs::absolute(fs::path(arguments.folder) / step.name);
}

/// Why the run has to stop at this step; empty: it does not.
std::string obstacle(const FirstDayStep& step, const FirstDayArguments& arguments) {
  if (step.risk == Risk::kByHand)
    return "by hand: " + filled_in(step.command, variables(step, arguments, folder_of(step, arguments))) +
           "\n    then: r2bench doctor --first-day --done " + step.name + ", or --skip " + step.name;
  if (step.risk == Risk::kMachine && !arguments.allow_real_faults)
    return "it changes this machine: --allow-real-faults permits it, --skip " + step.name + " leaves it out";
  return "";
}

/// What an earlier try has left keeps its name with a number: a result is never overwritten.
void set_aside(const fs::path& out, const fs::path& log) {
  if (!fs::exists(log)) return;
  int number = 1;
  const auto numbered = [&](const fs::path& path) { return path.string() + "." + std::to_string(number); };
  while (fs::exists(numbered(log))) ++number;
  if (fs::exists(out)) fs::rename(out, numbered(out));
  fs::rename(log, numbered(log));
}

/// Its new state.
std::string carry_out(const FirstDayStep& step, const FirstDayArguments& arguments, StepRecord& record,
                      const Signals& signals, const FolderLock& lock, const Console& console) {
  const fs::path out = folder_of(step, arguments);
  const std::string set = assignments(variables(step, arguments, out));
  const std::string log = out.string() + ".log";  // beside it: `run --out` wants an empty folder
  set_aside(out, log);
  make_day_folder(out);
  console.out << "    " << step.command << "\n" << std::flush;
  const ShellResult result = run_shell(
      set + "{ " + step.command + "\n} >" + shell_quoted(log) + " 2>&1", kStepLimit, {},
      [&] { return signals.caught(); }, lock.descriptor());
  const bool interrupted = signals.caught() != 0;
  // A verdict of fail or unknown is a finding, which is what the day is for; it is sent back like a pass.
  const bool ran = result.exit_code <= 2 && !interrupted;
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) last = line;
  const std::string state = ran ? "done" : "failed";
  record.write(step.name, state,
               (interrupted ? "interrupted, exit status " : "exit status ") +
                   std::to_string(result.exit_code) + (last.empty() ? "" : ": " + last));
  console.out << "    " << state << (interrupted ? ", interrupted" : "") << ", exit status "
              << result.exit_code << "; " << log << "\n";
  if (!ran) console.out << "    " << last << "\n";
  return state;
}

}  // namespace

int first_day_command(const FirstDayArguments& arguments, const Console& console) {
  if (arguments.markdown) {
    console.out << first_day_page();
    return 0;
  }
  check_run_options(arguments.run_options);
  std::optional<FolderLock> lock;
  if (arguments.run) lock.emplace(arguments.folder);
  const Signals signals;
  StepRecord record(arguments.folder);
  if (!arguments.skip.empty()) record.write(step_named(arguments.skip).name, "skipped", "by the user");
  if (!arguments.done.empty()) record.write(step_named(arguments.done).name, "done", "by hand");
  if (!arguments.again.empty()) record.write(step_named(arguments.again).name, "again", "by the user");

  size_t left = 0;
  const FirstDayStep* next = nullptr;
  for (const FirstDayStep& step : first_day_steps()) {
    std::string state = record.of(step.name);
    show(step, state == "again" ? "" : state, console);
    if (is_over(state)) continue;
    if (arguments.run && next == nullptr) {
      const bool makes_sense =
          step.needs.empty() || run_shell(step.needs, std::chrono::minutes(1)).exit_code == 0;
      const std::string lacks = makes_sense ? shape_of(step, arguments.hosts).reason : step.without;
      if (!lacks.empty()) {
        console.out << "    left out: " << lacks << "\n";
        state = "left out";
        record.write(step.name, state, lacks);
      } else if (const std::string why = obstacle(step, arguments); !why.empty()) {
        console.out << "    waits: " << why << "\n";
      } else {
        state = carry_out(step, arguments, record, signals, *lock, console);
        if (signals.caught() != 0) return kExitSignal + signals.caught();
      }
    }
    if (is_over(state)) continue;
    ++left;
    if (next == nullptr) next = &step;
  }
  if (next == nullptr) {
    console.out << "All steps are done. Send back: tar czf first_day.tar.gz " << arguments.folder << "\n";
    return 0;
  }
  console.out << left << " of " << first_day_steps().size() << " steps are left; the next one is "
              << next->name << ".\n";
  if (!arguments.run)
    console.out << "  " << next->command << "\n  send back: " << sent_back(*next)
                << "\nr2bench doctor --first-day --run carries out the next steps.\n";
  return 1;
}

}  // namespace r2bench
