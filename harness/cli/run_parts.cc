// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/run_parts.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <ostream>
#include <set>
#include <utility>

#include "faultinject/plan/units.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/pictures.h"
#include "harness/cli/resources.h"
#include "harness/fabric/rxe_fabric.h"
#include "harness/fabric/shorter.h"
#include "harness/fabric/slow_motion.h"
#include "harness/real/change.h"
#include "harness/real/real_faults.h"
#include "harness/report/progress.h"
#include "harness/report/run_folder.h"
#include "harness/report/story.h"
#include "harness/report/terminal.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

/// The folders of a run's scenarios, whose names all differ. Those that --out names are made before the first
/// job: an older result in one of them must not end the run after hours. They are locked until then, as far
/// as file descriptors suffice: a run can have more scenarios than a process may open files. The others are
/// locked in their turn.
class RunFolders {
 public:
  RunFolders(const std::string& out, const std::vector<std::string>& names) : fresh_(out.empty()) {
    try {
      for (size_t i = 0; i < names.size() && !fresh_; ++i) {
        named_.push_back(RunFolder::create(names.size() == 1 ? fs::path(out) : fs::path(out) / names[i]));
        if (i >= most_locked()) named_.back().unlock();
      }
    } catch (...) {
      remove();
      throw;
    }
  }
  RunFolders(const RunFolders&) = delete;
  ~RunFolders() { remove(); }

  /// That of scenario `i`; good until the next call, before which it is kept.
  RunFolder& of(size_t i, const std::string& name) {
    if (fresh_) return current_.emplace(RunFolder::create_fresh(fs::path("results") / "runs", name));
    if (i > 0) named_[i - 1].unlock();
    named_[i].lock();
    return named_[i];
  }

 private:
  /// The latest first: the first one also removes the folders above it, once they are empty.
  void remove() {
    while (!named_.empty()) named_.pop_back();
  }

  /// A lock takes a descriptor; a job needs many, too.
  static size_t most_locked() {
    rlimit files{};
    return getrlimit(RLIMIT_NOFILE, &files) == 0 ? std::max<size_t>(1, files.rlim_cur / 8) : 1;
  }

  bool fresh_;
  std::optional<RunFolder> current_;  ///< without --out
  std::vector<RunFolder> named_;      ///< by --out
};

Verdict run_one(const RunArguments& arguments, const Scenario& scenario, RunFolder& folder,
                const Runner& runner, Cluster* cluster, const Console& console, const Signals& signals) {
  if (!arguments.quiet) console.out << scenario.name << "  " << headline(scenario) << "\n" << std::flush;
  ProgressPrinter printer(console.out, {console.live, console.colour, console.columns});
  RunOptions options;
  options.repeats = static_cast<size_t>(scenario.repeats);
  options.seed = scenario.seed;
  options.out_dir = folder.path().string();
  options.bootstrap_port = arguments.port;
  options.cluster = cluster;
  options.allow_real_faults = arguments.allow_real_faults;
  for (const auto& fault : scenario.faults)
    if (fault.kind->outside)
      console.out << "This run changes the machine: " << sample_change(fault).in_words() << "\n";
  if (!arguments.quiet) {
    options.progress = [&](const Progress& progress) {
      // The job's clockwork does not wait for a terminal that is stopped or far away.
      if (!console.would_wait()) printer.show(progress, std::chrono::steady_clock::now());
    };
  }
  RunResult result = runner(scenario, options, signals.cancel());

  // Nothing is printed before the files are written: the terminal may be stopped.
  const Judged judged = judge(scenario, result);
  const Report report{scenario, result, judged};
  std::vector<std::string> files;
  try {
    folder.write("scenario.yaml", scenario.source_text);
    files = folder.write_reports(report);
  } catch (const OutputError&) {  // what the run has found is not lost with its folder
    printer.clear();
    if (!arguments.quiet) console.out << "\n";
    TerminalReporter({console.colour, console.columns}).write(report, console.out);
    console.out << std::flush;
    throw;
  }
  folder.keep();
  std::string no_picture;
  if (arguments.plot && !signals.cancel()) {
    const auto reason =
        make_pictures((folder.path() / "result.json").string(), folder.path().string(), &signals.cancel());
    if (reason) {
      no_picture = *reason;
    } else {
      files.insert(files.end(), {"timeline.png", "timeline.pdf"});
    }
  }
  printer.clear();
  if (!arguments.quiet) console.out << "\n";
  TerminalReporter({console.colour, console.columns}).write(report, console.out);
  console.out << "Files:   " << folder.path().string() << "/  (";
  for (size_t i = 0; i < files.size(); ++i) console.out << (i > 0 ? ", " : "") << files[i];
  console.out << ")\n";
  if (!no_picture.empty()) console.out << "No picture: " << no_picture << "\n";
  console.out << std::flush;
  return judged.verdict;
}

FabricKind kind_of(const std::string& name_of_kind) {
  for (const FabricKind kind : {FabricKind::kVhca, FabricKind::kRxe, FabricKind::kVerbs, FabricKind::kNone})
    if (name_of_kind == name(kind)) return kind;
  throw UsageError("--fabric " + name_of_kind + ": choose vhca, rxe, verbs or none");
}

/// A failure outweighs a doubt, which outweighs a success.
Verdict worse(Verdict a, Verdict b) {
  const auto weight = [](Verdict v) { return v == Verdict::kFail ? 2 : v == Verdict::kUnknown ? 1 : 0; };
  return weight(a) >= weight(b) ? a : b;
}

/// Their names; from the second scenario of a name on, with the first number from 2 that makes it no other's.
std::vector<std::string> different_names(const std::vector<Scenario>& scenarios) {
  std::set<std::string> used;
  for (const Scenario& scenario : scenarios) used.insert(scenario.name);
  std::set<std::string> met;
  std::vector<std::string> names;
  for (const Scenario& scenario : scenarios) {
    std::string name = scenario.name;
    if (!met.insert(name).second)
      for (int number = 2; !used.insert(name = scenario.name + "-" + std::to_string(number)).second;)
        ++number;
    names.push_back(std::move(name));
  }
  return names;
}

/// Each scenario's verdict, until one does not pass; fewer than `scenarios` where the rest was not run.
using Verdicts = std::vector<std::pair<std::string, Verdict>>;
Verdicts run_all(const RunArguments& arguments, const std::vector<Scenario>& scenarios, const Runner& runner,
                 Cluster* cluster, const Console& console, const Signals& signals) {
  Verdicts all;
  const std::vector<std::string> names = different_names(scenarios);
  RunFolders folders(arguments.out, names);
  for (size_t i = 0; i < scenarios.size(); ++i) {
    if (!all.empty()) console.out << "\n";
    all.emplace_back(names[i], run_one(arguments, scenarios[i], folders.of(i, names[i]), runner, cluster,
                                       console, signals));
    if (signals.cancel()) break;
    if (all.back().second != Verdict::kPass && !arguments.keep_going) break;
  }
  return all;
}

void print_all(const Verdicts& all, size_t scenarios, bool cancelled, const Console& console) {
  if (scenarios < 2) return;
  console.out << "\nAll:";
  for (const auto& [scenario, its] : all) console.out << "  " << scenario << " " << name(its);
  if (all.size() < scenarios)
    console.out << "  (" << scenarios - all.size() << " not run"
                << (cancelled ? "" : "; --keep-going runs them all the same") << ")";
  console.out << "\n";
}

}  // namespace

std::vector<Scenario> load_all(const RunArguments& arguments) {
  std::vector<Scenario> scenarios;
  std::vector<Problem> problems;
  for (const std::string& named : arguments.scenarios) {
    try {
      for (Scenario& scenario : load_scenarios(find_scenario(named).string(), arguments.load))
        scenarios.push_back(std::move(scenario));
    } catch (const ScenarioError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  if (!problems.empty()) throw ScenarioError(std::move(problems));
  return scenarios;
}

void check_leave(const RunArguments& arguments, const std::vector<Scenario>& scenarios) {
  for (const Scenario& scenario : scenarios) {
    const std::string fabric = arguments.fabric.empty() ? name(scenario.fabric.kind) : arguments.fabric;
    try {  // whether this is root is asked where it runs: a guest's user is
      check_real_faults(scenario, fabric, arguments.allow_real_faults, true);
    } catch (const FabricError& error) {
      throw UsageError(scenario.name + ": " + error.what());
    }
  }
}

bool wants_rxe(const RunArguments& arguments, const std::vector<Scenario>& scenarios) {
  const bool wanted = std::any_of(scenarios.begin(), scenarios.end(), [&](const Scenario& scenario) {
    return arguments.fabric.empty() ? scenario.fabric.kind == FabricKind::kRxe : arguments.fabric == "rxe";
  });
  if (wanted)
    for (const std::string& named : arguments.scenarios)
      refuse_pipe(find_scenario(named), "a run on soft RoCE");
  return wanted;
}

void adapt(Scenario& scenario, const RunArguments& arguments, const std::function<uint64_t()>& payload) {
  if (!arguments.fabric.empty()) {
    scenario.fabric.kind = kind_of(arguments.fabric);
    if (scenario.fabric.kind != FabricKind::kVhca && scenario.fabric.ports != VirtualPorts{})
      throw UsageError("--fabric " + arguments.fabric + ": " + scenario.name +
                       " sets the link layer, the ports or the MTU of virtual NICs; the NICs of " +
                       arguments.fabric + " have fixed ones");
    scenario.overrides["fabric.kind"] = arguments.fabric;
  }
  int factor = arguments.slow_motion;
  if (factor == 0 && scenario.fabric.kind == FabricKind::kRxe) {
    const uint64_t bits_per_s = payload();
    factor = slow_motion_factor(scenario.fabric, bits_per_s, kRxeUnlimitedSlowMotion);
    scenario.overrides["slow_motion.payload"] = faultinject::format_rate(bits_per_s);
  }
  try {
    scenario = in_slow_motion(std::move(scenario), std::max(factor, 1));
    int divisor = arguments.shorter;
    if (divisor == 0 && scenario.fabric.kind == FabricKind::kRxe)
      divisor = shorter_divisor(scenario, kRxeModeBudget);
    scenario = shorter(std::move(scenario), std::max(divisor, 1));
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

int run_scenarios(const RunArguments& arguments, const std::vector<Scenario>& scenarios, const Runner& runner,
                  Cluster* cluster, const Console& console, const Signals& signals) {
  const Verdicts all = run_all(arguments, scenarios, runner, cluster, console, signals);
  print_all(all, scenarios.size(), signals.cancel(), console);
  if (signals.caught() != 0) return kExitSignal + signals.caught();
  Verdict verdict = Verdict::kPass;
  for (const auto& [scenario, its] : all) verdict = worse(verdict, its);
  return exit_code(verdict);
}

std::optional<int> plain_run(const RunArguments& arguments, const Runner& runner, const Console& console) {
  if (arguments.launcher != "local" || !arguments.hosts.empty() || arguments.dry_run) return std::nullopt;
  std::vector<Scenario> scenarios = load_all(arguments);
  check_leave(arguments, scenarios);
  if (wants_rxe(arguments, scenarios)) return std::nullopt;
  const Signals signals;
  for (Scenario& scenario : scenarios) adapt(scenario, arguments, nullptr);
  return run_scenarios(arguments, scenarios, runner, nullptr, console, signals);
}

}  // namespace r2bench
