// SPDX-License-Identifier: Apache-2.0
// `explain`, `validate` and `plot`.
#include <algorithm>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/explain.h"
#include "harness/cli/pictures.h"
#include "harness/cli/resources.h"
#include "harness/report/against_scenario.h"
#include "harness/report/consistency.h"
#include "harness/report/json.h"
#include "harness/report/json_lines.h"
#include "harness/report/recheck.h"
#include "harness/report/result_file.h"
#include "harness/report/schema.h"
#include "harness/report/stored_run.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr int kAllPlotsSeconds = 600;

/// "result.json:12: /runs/0/mode is …"
std::vector<std::string> with_lines(const std::vector<Mismatch>& mismatches, const std::string& file,
                                    const std::string& text) {
  std::vector<std::string> lines;
  if (mismatches.empty()) return lines;
  const std::map<std::string, size_t> line_of = json_lines(text);
  for (const Mismatch& mismatch : mismatches)
    lines.push_back(file + ":" + std::to_string(line_of.at(mismatch.where)) + ": " + in_words(mismatch));
  return lines;
}

/// What is wrong with a result.json, beginning with its name. First it has to fit the schema.
std::vector<std::string> result_mismatches(const fs::path& file) {
  const std::string text = read_text_file(file);
  const nlohmann::json result = parse_json(text, file.string());
  if (const std::string why = why_no_result(result); !why.empty()) return {file.string() + ": " + why};
  const nlohmann::json schema = read_json_file(share_or_throw() / "results" / "schema.json");
  std::vector<std::string> found = with_lines(schema_mismatches(schema, result), file.string(), text);
  if (!found.empty()) return found;
  found = with_lines(unknown_metrics(result), file.string(), text);
  std::vector<std::string> conclusions = conclusion_mismatches(result);
  for (std::string& contradiction : contradictions(result)) conclusions.push_back(std::move(contradiction));
  if (const fs::path scenario = file.parent_path() / "scenario.yaml"; fs::exists(scenario))
    for (std::string& mismatch : scenario_mismatches(result, scenario.string()))
      conclusions.push_back(std::move(mismatch));
  for (const std::string& conclusion : conclusions) found.push_back(file.string() + ": " + conclusion);
  try {
    load_stored_run(file, schema);  // with what lies beside it
  } catch (const InputError& error) {
    found.emplace_back(error.what());
  }
  return found;
}

}  // namespace

int explain_command(const std::vector<std::string>& scenarios, const LoadOptions& load,
                    const Console& console) {
  bool first = true;
  for (const std::string& named : scenarios) {
    for (const Scenario& scenario : load_scenarios(find_scenario(named).string(), load)) {
      if (!first) console.out << "\n";
      first = false;
      print_explanation(scenario, console);
    }
  }
  return 0;
}

int validate_command(const std::vector<std::string>& files, const Console& console) {
  int status = 0;
  for (const std::string& named : files) {
    const fs::path file = fs::path(named).extension() == ".json" ? fs::path(named) : find_scenario(named);
    if (file.extension() == ".json") refuse_pipe(file, "validate");
    if (file.extension() != ".json") {
      try {
        const size_t count = load_scenarios(file.string()).size();
        console.out << file.string() << ": good"
                    << (count > 1 ? ", " + std::to_string(count) + " scenarios" : "") << "\n";
      } catch (const ScenarioError& error) {
        console.err << error.what();
        status = kExitUsage;
      }
      continue;
    }
    try {
      const std::vector<std::string> mismatches = reading(file, [&] { return result_mismatches(file); });
      for (const std::string& mismatch : mismatches) console.err << mismatch << "\n";
      if (mismatches.empty()) console.out << file.string() << ": good\n";
      if (!mismatches.empty()) status = kExitUsage;
    } catch (const InputError& error) {
      console.err << error.what() << "\n";
      status = kExitUsage;
    }
  }
  return status;
}

namespace {

/// Draws all figures into `folder`; the script's output, without the last line's end, and its exit status.
std::pair<std::string, int> draw_all(const std::string& results, const fs::path& folder, bool strict,
                                     const Signals& signals) {
  const auto python = find_python();
  if (!python) throw UsageError("python3 is not found; install python3-matplotlib");
  std::vector<std::string> arguments{(share_or_throw() / "plots" / "all_figures.py").string(), "--results",
                                     results, "--out", folder.string()};
  if (strict) arguments.push_back("--strict");
  const ScriptResult done = run_python(*python, std::move(arguments), kAllPlotsSeconds, &signals.cancel());
  if (signals.caught() != 0 && done.exit_code != 0) {
    remove_half_figures(folder);
    return {"", kExitSignal + signals.caught()};
  }
  if (done.exit_code == 0 || done.exit_code == 1 || done.exit_code == kExitUsage)
    return {done.output, done.exit_code};
  remove_half_figures(folder);
  if (done.exit_code == kExitNoMatplotlib)
    throw UsageError(python->string() + " has no matplotlib; install python3-matplotlib");
  if (done.exit_code == 124)
    throw UsageError("the plot scripts took longer than " + std::to_string(kAllPlotsSeconds) + " s");
  throw UsageError(last_line(done.output));
}

/// The pictures can be made of results of version 1, too.
void check_plottable(const nlohmann::json& result, const fs::path& file) {
  if (result.is_object() && result.contains("runs") && result.contains("schema_version") &&
      result["schema_version"] == 1)
    return;
  if (const std::string why = why_no_result(result); !why.empty())
    throw UsageError(file.string() + ": " + why);
  if (!result.contains("runs")) throw UsageError(file.string() + ": has no runs; run the scenario again");
}

}  // namespace

int plot_all_command(const std::string& results, const std::string& out, bool strict,
                     const Console& console) {
  if (!fs::is_directory(results))
    throw UsageError(results + ": no such folder; run it where results/ is, or give --results");
  const fs::path folder = out.empty() ? fs::path(results) / "figures" : fs::path(out);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError(folder.string() + ": " + error.message());
  const Signals signals;
  const auto [output, status] = draw_all(results, folder, strict, signals);
  if (status > kExitSignal) {
    console.err << "r2bench: drawing the figures was interrupted; to draw them: r2bench plot --all\n";
  } else {
    console.out << output << "\n";
  }
  return status;
}

int plot_command(const std::vector<std::string>& results, const std::string& out, const Console& console) {
  std::map<fs::path, std::string> taken;
  const Signals signals;
  for (const std::string& named : results) {
    if (signals.caught() != 0) return kExitSignal + signals.caught();
    const fs::path file = fs::is_directory(named) ? fs::path(named) / "result.json" : fs::path(named);
    if (!fs::exists(file))
      throw UsageError(file.string() + ": no such file; give a result.json or the folder of a run");
    refuse_pipe(file, "plot");  // its script opens the file again
    check_plottable(read_json_file(file), file);
    fs::path folder = out.empty() ? file.parent_path() : fs::path(out);
    if (folder.empty()) folder = ".";
    if (!out.empty() && results.size() > 1) folder /= file.parent_path().filename();
    const auto [before, is_new] = taken.try_emplace(folder.lexically_normal(), file.string());
    if (!is_new && before->second != file.string())
      throw UsageError(file.string() + ": its figures would replace those of " + before->second + " in " +
                       folder.string() + "; draw it with another --out");
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw UsageError(folder.string() + ": " + error.message());
    const auto reason = make_pictures(file.string(), folder.string(), &signals.cancel());
    if (reason && signals.caught() == 0) throw UsageError(*reason);
    if (reason) {
      console.err << "r2bench: " << *reason << "\n";
      return kExitSignal + signals.caught();
    }
    console.out << (folder / "timeline.png").string() << "\n" << (folder / "timeline.pdf").string() << "\n";
  }
  return 0;
}

}  // namespace r2bench
