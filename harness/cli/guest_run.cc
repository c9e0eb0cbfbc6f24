// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/guest_run.h"

#include <csignal>
#include <cstdlib>
#include <ostream>

#include "harness/cli/exit_codes.h"
#include "harness/cli/pictures.h"
#include "harness/cli/resources.h"
#include "harness/fabric/device_fabric.h"
#include "harness/fabric/guest.h"
#include "harness/fabric/scripts.h"
#include "harness/launch/process.h"
#include "harness/report/run_folder.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr int kMemoryOfOneOfTwo = 1024;  // MiB
constexpr int kMakeSeconds = 1800;       // a slow network fetches 70 MB

std::string program_path() { return fs::read_symlink("/proc/self/exe").string(); }

std::vector<std::string> inner_command(const RunArguments& arguments, const fs::path& out) {
  std::vector<std::string> words = {program_path(), "run"};
  for (const std::string& named : arguments.scenarios)
    words.push_back(fs::canonical(find_scenario(named)).string());  // in there /dev/stdin is another file
  const auto option = [&](const std::string& name, const std::string& value) {
    words.push_back(name);
    words.push_back(value);
  };
  option("--fabric", "rxe");
  option("--out", out.string());
  words.push_back("--no-plot");  // Python takes long in there
  std::string modes;
  for (const std::string& mode : arguments.load.modes) modes += (modes.empty() ? "" : ",") + mode;
  if (!modes.empty()) option("--modes", modes);
  if (arguments.load.repeats) option("--repeats", std::to_string(*arguments.load.repeats));
  if (arguments.load.seed) option("--seed", std::to_string(*arguments.load.seed));
  for (const auto& [key, value] : arguments.load.set) option("--set", key + "=" + value);
  if (arguments.slow_motion > 0) option("--slow-motion", std::to_string(arguments.slow_motion));
  if (arguments.shorter > 0) option("--shorter", std::to_string(arguments.shorter));
  if (arguments.quiet) words.push_back("--quiet");
  if (arguments.allow_real_faults) words.push_back("--allow-real-faults");
  if (arguments.keep_going) words.push_back("--keep-going");
  return words;
}

/// The pictures of each result below `folder`, made out here.
void draw(const fs::path& folder, const Console& console, const std::atomic<bool>& cancel) {
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored)) {
    if (entry.path().filename() != "result.json") continue;
    if (const auto reason =
            make_pictures(entry.path().string(), entry.path().parent_path().string(), &cancel))
      console.out << "No picture: " << *reason << "\n";
  }
}

}  // namespace

bool rxe_is_here() {
  const char* here = std::getenv(kRxeHereVariable);
  return here != nullptr && std::string(here) == "1";
}

std::string guest_image(const Console& console, const std::atomic<bool>& cancel) {
  const auto python = find_python();
  if (!python)
    throw UsageError("the guest is made by a Python script: apt-get install --no-install-recommends python3");
  try {
    const std::string script = fabric_script("make_guest.py");
    ScriptResult made = run_script({python->string(), script, "--check"}, 900, &cancel);
    if (made.exit_code == 3) {
      console.err << "r2bench: making the guest of the rxe fabric, once (its kernel's package is fetched)\n"
                  << std::flush;
      made = run_script({python->string(), script}, kMakeSeconds, &cancel);
    }
    if (cancel) return "";
    if (made.exit_code != 0)
      throw UsageError(made.output.empty() ? "the guest could not be made" : made.output);
    return made.output;
  } catch (const FabricError& error) {
    throw UsageError(error.what());
  }
}

namespace {

GuestJob job_for(const std::vector<std::string>& command, const fs::path& writable, const Console& console,
                 const std::atomic<bool>& cancel) {
  if (find_qemu().empty())
    throw UsageError("the rxe fabric needs QEMU: apt-get install --no-install-recommends qemu-system-x86");
  GuestJob job;
  job.image = guest_image(console, cancel);
  job.command = command;
  job.environment = current_environment();
  if (!console.live) job.environment.erase("TERM");  // in there it always prints to a terminal
  if (!console.colour) job.environment.insert_or_assign("NO_COLOR", std::string(1, '1'));
  job.folder = fs::current_path().string();
  if (!writable.empty()) job.writable.push_back(fs::canonical(writable).string());
  return job;
}

/// Whole lines only, each with its node in front.
class LabelledLines {
 public:
  LabelledLines(std::ostream& out, std::string label) : out_(out), label_(std::move(label)) {}
  void add(std::string_view text) {
    pending_ += text;
    for (size_t end; (end = pending_.find('\n')) != std::string::npos; pending_.erase(0, end + 1))
      out_ << label_ << pending_.substr(0, end + 1);
    out_ << std::flush;
  }
  void finish() {
    if (!pending_.empty()) out_ << label_ << pending_ << "\n" << std::flush;
    pending_.clear();
  }

 private:
  std::ostream& out_;
  std::string label_, pending_;
};

}  // namespace

int run_in_rxe_guest(const std::vector<std::string>& command, const fs::path& writable,
                     const Console& console, const std::atomic<bool>& cancel) {
  const GuestJob job = job_for(command, writable, console, cancel);
  if (cancel) return kExitSignal + SIGINT;
  try {
    return run_in_guest(
        job, [&](std::string_view text) { console.out << text << std::flush; }, cancel);
  } catch (const FabricError& error) {
    throw UsageError(error.what());
  }
}

int run_in_two_rxe_guests(const std::array<std::vector<std::string>, 2>& commands, const fs::path& writable,
                          const Console& console, const std::atomic<bool>& cancel) {
  std::array<GuestJob, 2> jobs;
  std::vector<LabelledLines> lines;
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i] = job_for(commands[i], writable, console, cancel);
    if (cancel) return kExitSignal + SIGINT;
    jobs[i].memory_mib = kMemoryOfOneOfTwo;
    for (int node = 0; node < 2; ++node)  // rxe_net.sh's addresses of the machines themselves
      jobs[i].hosts[node_name(node)] = "192.168.77." + std::to_string(node + 1);
    lines.emplace_back(console.out, node_name(int(i)) + " | ");
  }
  try {
    const auto statuses = run_in_two_guests(
        jobs, [&](size_t guest, std::string_view text) { lines[guest].add(text); }, cancel);
    for (LabelledLines& one : lines) one.finish();
    return statuses[0] != 0 ? statuses[0] : statuses[1];
  } catch (const FabricError& error) {
    for (LabelledLines& one : lines) one.finish();
    throw UsageError(error.what());
  }
}

int run_scenarios_in_guest(const RunArguments& arguments, const std::vector<Scenario>& scenarios,
                           const Console& console) {
  const Signals signals;
  RunFolder folder = arguments.out.empty()
                         ? RunFolder::create_fresh(fs::path("results") / "runs",
                                                   scenarios.size() == 1 ? scenarios[0].name : "rxe")
                         : RunFolder::create(arguments.out);
  const fs::path out = fs::canonical(folder.path());
  const int status = run_in_rxe_guest(inner_command(arguments, out), out, console, signals.cancel());
  if (!fs::is_empty(out)) folder.keep();
  if (signals.caught() != 0) return kExitSignal + signals.caught();
  if (arguments.plot && status < kExitUsage) draw(out, console, signals.cancel());
  if (signals.caught() != 0) return kExitSignal + signals.caught();
  return status;
}

}  // namespace r2bench
