// SPDX-License-Identifier: Apache-2.0
// `r2bench compare`: two results, or a result and a baseline.
#include <CLI/CLI.hpp>
#include <ostream>

#include "harness/cli/compare_options.h"
#include "harness/cli/subcommands.h"
#include "harness/report/result_file.h"

namespace r2bench {

void CompareOptions::add_to(CLI::App& app) {
  compare = add_tool(app, "compare");
  compare->add_option(
      "result", compare_.results,
      "The result before and the one after (with --baseline or --save-baseline, one result is enough): "
      "result.json files, or folders of one or several runs");
  compare->add_option("--baseline", compare_.baseline, "Compare the result with this baseline");
  compare->add_option("--save-baseline", compare_.save,
                      "Write the samples of the last result to this file, as a baseline");
  compare->add_option("--out", compare_.out,
                      "Folder for the comparison as text, Markdown, JUnit and JSON (default: none)");
  compare_thresholds_.add_to(*compare);
  compare->footer(
      "Exit status: 0 no worse, 1 worse, 2 undecided, 64 wrong command line, 70 internal error.\n"
      "Examples: r2bench compare results/runs/A results/runs/B\n"
      "  r2bench compare --save-baseline baseline.json results/runs/A\n"
      "  r2bench compare --baseline baseline.json results/runs/B");

  gate = add_tool(app, "gate");
  gate->add_option("scenario", gate_.scenarios, "Scenario files, or names from `list`")->required();
  gate->add_option("--baseline", gate_.baseline, "Compare with this baseline");
  gate->add_option(
          "--reference", gate_.reference,
          "Run the scenario alternately without and with this setting (KEY=VALUE, as in --set), and compare "
          "with the runs that have it; the baseline then supplies only the noise floor")
      ->allow_extra_args(false);
  gate->add_option("--save-baseline", gate_.save,
                   "Write the measurements to this file, as a baseline, instead of comparing them");
  gate->add_flag("--append", gate_.append, "With --save-baseline: add to the file instead of replacing it");
  gate->add_option("--runs", gate_.runs, "With --save-baseline: number of measurements (default: 1)")
      ->check(CLI::Range(1, 1000));
  gate->add_option("--jobs", gate_.jobs, "Divide the scenario's `repeats` among this many jobs (default: 3)")
      ->check(CLI::Range(1, 100));
  gate->add_option("--out", gate_.out, "Folder for the results (default: results/runs/gate-TIME)");
  gate->add_flag("--quiet", gate_.quiet, "Print the comparison only, no progress");
  gate_thresholds_.add_to(*gate);
  gate->footer(
      "Exit status: 0 no worse, 1 worse or an expectation failed, 2 undecided, 64 wrong command line or "
      "scenario, 70 internal error.\n"
      "Examples: r2bench gate recovery_gate --baseline results/baseline/ci.json\n"
      "  r2bench gate my_job.yaml --runs 5 --save-baseline my_baseline.json");
}

CompareArguments CompareOptions::compare_finished() const {
  CompareArguments arguments = compare_;
  arguments.thresholds = compare_thresholds_.finished();
  const size_t wanted = arguments.baseline.empty() && arguments.save.empty() ? 2 : 1;
  if (arguments.results.size() > 2 || arguments.results.size() < wanted)
    throw UsageError(
        "compare needs two results, or --baseline FILE and one, or --save-baseline FILE and one");
  if (!arguments.baseline.empty() && arguments.results.size() > 1)
    throw UsageError("compare: with --baseline there is one result, not two");
  return arguments;
}

GateArguments CompareOptions::gate_finished() const {
  GateArguments arguments = gate_;
  arguments.thresholds = gate_thresholds_.finished();
  if (arguments.append && arguments.save.empty()) throw UsageError("--append needs --save-baseline FILE");
  if (arguments.runs > 1 && arguments.save.empty()) throw UsageError("--runs needs --save-baseline FILE");
  if (!arguments.save.empty() && !arguments.baseline.empty())
    throw UsageError("--save-baseline compares with nothing; leave out --baseline");
  if (arguments.save.empty() && arguments.baseline.empty() && arguments.reference.empty())
    throw UsageError(
        "gate needs something to compare with: --baseline FILE, made by gate --save-baseline FILE "
        "--runs 5, or --reference KEY=VALUE");
  return arguments;
}

int compare_command(const CompareArguments& arguments, const Console& console) {
  const SampleSet now = read_samples(arguments.results.back());
  const bool compares = !arguments.baseline.empty() || arguments.results.size() > 1;
  SampleSet before;  // read first: --save-baseline may replace it
  if (compares)
    before = arguments.baseline.empty() ? read_samples(arguments.results.front())
                                        : read_baseline(arguments.baseline);
  if (!arguments.save.empty()) {
    save_baseline(arguments.save, now, false, console, nullptr);
    console.out << arguments.save << ": written, of " << now.name << "\n";
    warn_of_missing_samples(arguments.save, now, console);
  }
  if (!compares) return 0;
  const SampleComparison comparison = compare(before, now, arguments.thresholds);
  publish(comparison, arguments.out, console);
  return exit_code(comparison.change());
}

}  // namespace r2bench
