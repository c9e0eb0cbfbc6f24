// SPDX-License-Identifier: Apache-2.0
// `r2bench gate`: runs scenarios and holds them against a baseline, and against a reference (another plugin,
// another setting) that runs by turns with them, so that what the machine does meets both.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <ostream>

#include "faultinject/plan/joined.h"
#include "harness/cli/compare_options.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/explain.h"
#include "harness/cli/resources.h"
#include "harness/judge/verdict.h"
#include "harness/report/comparison_words.h"
#include "harness/report/json.h"
#include "harness/report/progress.h"
#include "harness/report/run_folder.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultJobs = 3;

std::vector<Scenario> load_all(const GateArguments& arguments, const LoadOptions& load) {
  std::vector<Scenario> scenarios;
  for (const std::string& named : arguments.scenarios)
    for (Scenario& scenario : load_scenarios(find_scenario(named).string(), load)) {
      if (scenario.fabric.kind == FabricKind::kRxe)
        throw UsageError(scenario.name +
                         ": gate does not start guests; run it on rxe, then use `r2bench compare`");
      // Samples and folders go by the name.
      if (std::any_of(scenarios.begin(), scenarios.end(),
                      [&](const Scenario& other) { return other.name == scenario.name; }))
        throw UsageError("gate: two of the scenarios have the name " + scenario.name +
                         "; for more jobs of one scenario there is --jobs");
      scenarios.push_back(std::move(scenario));
    }
  return scenarios;
}

/// The same scenarios with what the reference has otherwise; none where there is no reference.
std::vector<Scenario> load_references(const GateArguments& arguments) {
  if (arguments.reference.empty()) return {};
  LoadOptions load = arguments.load;
  for (const std::string& text : arguments.reference) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--reference " + text + ": write --reference key=value");
    load.reference.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return load_all(arguments, load);
}

/// Runs the jobs of a gate one by one, each in a folder of its own.
class Measurement {
 public:
  Measurement(const GateArguments& arguments, const Runner& runner, const Console& console,
              const RunFolder& folder, const Signals& signals)
      : arguments_(arguments), runner_(runner), console_(console), folder_(folder), signals_(signals) {}

  /// One run of the gate: every job of every scenario, with the reference by turns (none: `references` is
  /// empty).
  void run(const std::vector<Scenario>& scenarios, const std::vector<Scenario>& references, int number) {
    SampleSet candidate, reference;
    for (size_t i = 0; i < scenarios.size(); ++i) {
      const Scenario& scenario = scenarios[i];
      const int jobs =
          std::clamp(arguments_.jobs > 0 ? arguments_.jobs : kDefaultJobs, 1, std::max(1, scenario.repeats));
      for (int job = 0; job < jobs; ++job) {
        const std::string name =
            scenario.name + "-run" + std::to_string(number) + "-job" + std::to_string(job);
        const int repeats = scenario.repeats / jobs + (job < scenario.repeats % jobs ? 1 : 0);
        const uint64_t seed = scenario.seed + uint64_t(number * jobs + job);
        // The order turns, so that what drifts with time favours neither.
        const bool reference_first = job % 2 == 1;
        for (const bool is_reference : {reference_first, !reference_first}) {
          if (signals_.cancel()) return;
          if (is_reference && references.empty()) continue;
          Scenario one = is_reference ? references[i] : scenario;
          one.repeats = repeats;
          one.seed = seed;
          (is_reference ? reference : candidate)
              .add(measure(one, name + (is_reference ? "-reference" : ""), is_reference));
        }
      }
    }
    const SampleSet one = candidate.pooled();
    candidate_.add(references.empty() ? one : one.beside(reference));
    reference_.add(reference.pooled());
  }

  SampleSet candidate(const std::string& name) const { return named(candidate_, name); }
  SampleSet reference(const std::string& name) const { return named(reference_, name); }
  /// A row for each job whose own expectations were not met, or could not be judged.
  const std::vector<ComparisonRow>& expectations() const { return expectations_; }

 private:
  static SampleSet named(SampleSet set, const std::string& name) {
    set.name = name;
    return set;
  }

  SampleSet measure(const Scenario& scenario, const std::string& name, bool is_reference) {
    RunFolder folder = RunFolder::create(folder_.path() / name);
    ProgressPrinter printer(console_.out, {console_.live, console_.colour, console_.columns});
    RunOptions options;
    options.repeats = size_t(scenario.repeats);
    options.seed = scenario.seed;
    options.out_dir = folder.path().string();
    if (!arguments_.quiet) {
      console_.out << name << "\n" << std::flush;
      options.progress = [&](const Progress& progress) {
        if (!console_.would_wait()) printer.show(progress, std::chrono::steady_clock::now());
      };
    }
    const RunResult result = runner_(scenario, options, signals_.cancel());
    const Judged judged = judge(scenario, result);
    const Report report{scenario, result, judged};
    folder.write("scenario.yaml", scenario.source_text);
    folder.write_reports(report);
    folder.keep();
    printer.clear();  // not before: the terminal may be stopped
    if (!is_reference) add_expectations(scenario, judged, folder.path());
    return samples_of_result(nlohmann::json(to_json(report)), folder.path().string());
  }

  void add_expectations(const Scenario& scenario, const Judged& judged, const fs::path& folder) {
    if (judged.verdict == Verdict::kPass) return;
    ComparisonRow row;
    row.scenario = scenario.name;
    row.metric = "expectations";
    row.is_fact = true;
    row.change = judged.verdict == Verdict::kFail ? Shift::kWorse : Shift::kUnknown;
    for (const Judgement& judgement : judged.expectations) {
      if (judgement.verdict != judged.verdict) continue;
      row.mode = judgement.mode;
      row.why = judgement.metric + ": wanted " + judgement.wanted + ", got " + judgement.got;
      break;
    }
    if (row.why.empty() && !judged.doubts.empty()) row.why = judged.doubts.front().text;
    row.why += " (" + (folder / "report.txt").string() + ")";
    expectations_.push_back(std::move(row));
  }

  const GateArguments& arguments_;
  const Runner& runner_;
  const Console& console_;
  const RunFolder& folder_;
  const Signals& signals_;
  SampleSet candidate_, reference_;
  std::vector<ComparisonRow> expectations_;
};

/// The part of a baseline that is about these scenarios.
SampleSet only(SampleSet baseline, const std::vector<Scenario>& scenarios) {
  std::erase_if(baseline.modes, [&](const ModeSamples& mode) {
    return std::none_of(scenarios.begin(), scenarios.end(),
                        [&](const Scenario& scenario) { return scenario.name == mode.scenario; });
  });
  return baseline;
}

/// What was run and cannot be compared with anything is unknown, not pass.
void add_missing(const SampleSet& before, const SampleSet& now, SampleComparison& comparison) {
  for (const ModeSamples& mode : now.modes) {
    if (before.find(mode.scenario, mode.mode)) continue;
    ComparisonRow row;
    row.scenario = mode.scenario;
    row.mode = mode.mode;
    row.metric = "baseline";
    row.is_fact = true;
    row.why =
        "not in " + before.name + "; add it with gate --save-baseline " + before.name + " --append --runs 5";
    comparison.rows.push_back(std::move(row));
  }
}

/// How far what was measured is from the baseline: it may be another machine's, so it is told and not judged.
void add_drift(const SampleSet& baseline, const SampleSet& now, const Thresholds& thresholds,
               SampleComparison& comparison) {
  for (const ComparisonRow& row : compare(baseline, now, thresholds).rows)
    if (row.change == Shift::kWorse && !row.is_fact)
      comparison.notes.push_back("beside the baseline: " + sentence(row));
}

}  // namespace

int gate_command(const GateArguments& arguments, const Runner& runner, const Console& console) {
  for (const std::string& named : arguments.scenarios)
    if (!arguments.reference.empty()) refuse_pipe(find_scenario(named), "gate with a --reference");
  const std::vector<Scenario> scenarios = load_all(arguments, arguments.load);
  const std::vector<Scenario> references = load_references(arguments);
  SampleSet baseline;
  if (!arguments.baseline.empty()) baseline = only(read_baseline(arguments.baseline), scenarios);
  if (arguments.append && fs::exists(arguments.save))
    read_baseline(arguments.save);  // known before anything runs
  if (!arguments.save.empty()) check_baseline_writable(arguments.save);

  RunFolder folder = arguments.out.empty() ? RunFolder::create_fresh(fs::path("results") / "runs", "gate")
                                           : RunFolder::create(arguments.out);
  const Signals signals;
  Measurement measurement(arguments, runner, console, folder, signals);
  for (int run = 0; run < arguments.runs && !signals.cancel(); ++run)
    measurement.run(scenarios, references, run);
  folder.keep();
  if (signals.caught() != 0) return kExitSignal + signals.caught();
  const SampleSet now = measurement.candidate(folder.path().string());

  if (!arguments.save.empty()) {
    const auto saved = save_baseline(arguments.save, now, arguments.append, console, &signals.cancel());
    if (!saved) {
      console.err << "r2bench: " << arguments.save << ": not written; the results are in "
                  << folder.path().string() << "/\n";
      return kExitSignal + signals.caught();
    }
    console.out << arguments.save << ": written\n";
    warn_of_missing_samples(arguments.save, *saved, console);
    for (const ComparisonRow& row : measurement.expectations())
      console.err << "r2bench: " << row.scenario << ": " << row.why << "\n";
    return measurement.expectations().empty() ? 0 : 2;
  }
  SampleComparison comparison;
  if (arguments.reference.empty()) {
    comparison = compare(baseline, now, arguments.thresholds);
    add_missing(baseline, now, comparison);
  } else {
    const SampleSet reference =
        measurement.reference("reference by turns (" + faultinject::joined(arguments.reference) + ")");
    Thresholds thresholds = arguments.thresholds;  // what the reference sets is what is compared
    for (const std::string& setting : arguments.reference)
      thresholds.may_differ.insert(setting.substr(0, setting.find('=')));
    comparison = compare_by_turns(reference, now, baseline, thresholds);
    add_drift(baseline, now, arguments.thresholds, comparison);
  }
  const auto& expectations = measurement.expectations();
  comparison.rows.insert(comparison.rows.begin(), expectations.begin(), expectations.end());
  publish(comparison, (folder.path() / "comparison").string(), console);
  console.out << "Files:   " << folder.path().string() << "/\n";
  return exit_code(comparison.change());
}

}  // namespace r2bench
