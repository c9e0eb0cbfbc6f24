// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/comparison_output.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <ostream>

#include "harness/cli/resources.h"
#include "harness/report/comparison_report.h"
#include "harness/report/file_lock.h"
#include "harness/report/result_file.h"
#include "harness/report/whole_file.h"
#include "harness/run/runner.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) throw OutputError(folder.string() + ": cannot be made: " + error.message());
}

}  // namespace

void ThresholdOptions::add_to(CLI::App& command) {
  command
      .add_option("--floor", floors,
                  "Noise floor: smaller differences of this metric count as noise, such as recover_ms=1 "
                  "(default: the difference between runs of the same program)")
      ->allow_extra_args(false);
  command
      .add_option("--alpha", alpha, "Probability of a false alarm, for all metrics together (default: 0.02)")
      ->check(CLI::Range(1e-9, 0.5));
  command
      .add_option("--may-differ", may_differ,
                  "Setting, as in --set, by which the two sides are meant to differ, such as "
                  "env.R2CC_FAILBACK_MS (default: fabric, workload, faults and env must be equal)")
      ->allow_extra_args(false);
}

Thresholds ThresholdOptions::finished() const {
  Thresholds thresholds;
  thresholds.alpha = alpha;
  thresholds.may_differ = {may_differ.begin(), may_differ.end()};
  for (const std::string& text : floors) {
    const size_t equals = text.find('=');
    char* end = nullptr;
    const double value = equals == std::string::npos ? -1 : std::strtod(text.c_str() + equals + 1, &end);
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size() || *end != '\0' ||
        !(value >= 0))
      throw UsageError("--floor " + text + ": write --floor metric=value, with a value of 0 or more");
    thresholds.floors[text.substr(0, equals)] = value;
  }
  return thresholds;
}

SampleSet read_samples(const std::string& named) {
  const auto share = share_folder();
  if (!share)
    throw UsageError("results/schema.json is not found; set R2BENCH_SHARE to the folder that holds results/");
  const nlohmann::json schema = read_json_file(*share / "results" / "schema.json");
  std::vector<fs::path> files;
  std::error_code error;
  if (fs::is_directory(named, error) && !fs::exists(fs::path(named) / "result.json", error)) {
    for (const auto& entry : fs::recursive_directory_iterator(named, error))
      if (entry.path().filename() == "result.json") files.push_back(entry.path());
    if (error) throw InputError(named + ": " + error.message());
    if (files.empty())
      throw InputError(named +
                       ": is a folder without a result.json at any depth; give the folder of a run, of "
                       "several runs, or a result.json");
    std::sort(files.begin(), files.end());
  } else {
    files.emplace_back(named);
  }
  SampleSet all;
  for (const fs::path& file : files)
    all.add(reading(file, [&] { return samples_of_result(read_result_file(file, schema), file.string()); }));
  all.name = named;
  return all;
}

SampleSet read_baseline(const std::string& file) {
  const nlohmann::json json = read_json_file(file);
  try {
    return samples_of_baseline(json, file);
  } catch (const BaselineError& error) {
    throw InputError(file + ": " + error.what());
  }
}

void check_baseline_writable(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored))
    throw OutputError(file.string() + ": cannot be written: Is a directory");
  refuse_file_of_run(file);
  fs::path made = file;  // the first that save_baseline() has to make
  for (fs::path above = file.parent_path(); !above.empty() && !fs::exists(above, ignored);
       above = above.parent_path())
    made = above;
  try {
    check_writable(made);
  } catch (const OutputError& error) {
    throw OutputError(file.string() + ": cannot be written: " + error.what());
  }
}

std::optional<SampleSet> save_baseline(const fs::path& file, const SampleSet& set, bool append,
                                       const Console& console, const std::atomic<bool>* cancel) {
  make_folder(file.parent_path());
  const auto say = [&] {
    console.err << "r2bench: waiting for another r2bench that writes " << file.string() << "\n" << std::flush;
  };
  const FileLock lock(file, {say, cancel});
  if (lock.cancelled()) return std::nullopt;
  if (!lock.problem().empty()) console.err << "r2bench: " << lock.problem() << "\n" << std::flush;
  SampleSet saved;
  if (append && fs::exists(file)) saved = read_baseline(file);
  saved.add(set);
  write_file(file, to_baseline(saved).dump(1) + "\n");
  return saved;
}

void warn_of_missing_samples(const std::string& file, const SampleSet& set, const Console& console) {
  for (const std::string& metric : without_samples(set))
    console.err << "r2bench: " << file << " has no sample of " << metric
                << "; comparisons of it will be unknown\n";
}

void publish(const SampleComparison& comparison, const std::string& out, const Console& console) {
  try {  // before anything is printed: the terminal may be stopped
    if (!out.empty()) {
      make_folder(out);
      for (const auto& [name, content] : comparison_files(comparison))
        write_file(fs::path(out) / name, content);
    }
  } catch (const OutputError&) {  // what was found is not lost with its files
    console.out << comparison_text(comparison) << std::flush;
    throw;
  }
  console.out << comparison_text(comparison) << std::flush;
  const char* const actions = std::getenv("GITHUB_ACTIONS");
  if (actions && std::string(actions) == "true")
    console.out << comparison_annotations(comparison) << std::flush;
  const char* const summary = std::getenv("GITHUB_STEP_SUMMARY");
  if (summary && *summary) append_to_file(summary, comparison_markdown(comparison));
}

int exit_code(Shift change) {
  switch (change) {
    case Shift::kSame:
    case Shift::kBetter:
      return 0;
    case Shift::kWorse:
      return 1;
    case Shift::kUnknown:
      break;
  }
  return 2;
}

}  // namespace r2bench
