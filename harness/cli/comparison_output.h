// SPDX-License-Identifier: Apache-2.0
// What `compare` and `gate` have in common: reading samples, thresholds of the command line, and where a
// comparison is written.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/console.h"
#include "harness/judge/compare.h"
#include "harness/judge/sample_set.h"

namespace CLI {
class App;
}

namespace r2bench {

/// `--floor metric=value`, `--alpha` and `--may-differ setting`.
struct ThresholdOptions {
  std::vector<std::string> floors;
  double alpha = Thresholds().alpha;
  std::vector<std::string> may_differ;

  void add_to(CLI::App& command);
  /// Throws UsageError.
  Thresholds finished() const;
};

/// The runs in a result.json, or in every result.json at any depth of a folder. Throws InputError.
SampleSet read_samples(const std::string& named);
/// The same of a baseline file.
SampleSet read_baseline(const std::string& file);
/// Throws OutputError where save_baseline() could not write `file`; leaves everything as it was.
void check_baseline_writable(const std::filesystem::path& file);
/// Writes a baseline as a whole or not at all, and the folders above it. With `append`, what is in the file
/// by then stays: of several processes that append at the same time, each one's samples are kept; one waits
/// for the other, and says so. Returns what was written; nullopt: `cancel` (null: none) became true while it
/// waited, and nothing was written. Throws OutputError, InputError.
std::optional<SampleSet> save_baseline(const std::filesystem::path& file, const SampleSet& set, bool append,
                                       const Console& console, const std::atomic<bool>* cancel);
/// Says of which metrics the baseline has no sample: one that is measured later cannot be compared with it.
void warn_of_missing_samples(const std::string& file, const SampleSet& set, const Console& console);

/// Prints the table. Inside GitHub Actions (GITHUB_ACTIONS, GITHUB_STEP_SUMMARY) also the annotations, and
/// the Markdown into the step's summary. `out`: folder for the files of comparison_files(), made where it is
/// missing; empty: none. Throws OutputError.
void publish(const SampleComparison& comparison, const std::string& out, const Console& console);

/// 0 same or better, 1 worse, 2 unknown.
int exit_code(Shift change);

}  // namespace r2bench
