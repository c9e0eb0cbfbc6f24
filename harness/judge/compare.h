// SPDX-License-Identifier: Apache-2.0
// Is a candidate worse than what it is compared with? Metric by metric: significant, and larger than what the
// machine makes of two runs of the same program. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/judge/rank_test.h"
#include "harness/judge/sample_set.h"

namespace r2bench {

enum class Shift {
  kSame,     ///< no worse, as far as the samples can tell
  kBetter,   ///< significantly better, by more than the floor
  kWorse,    ///< significantly worse, by more than the floor
  kUnknown,  ///< one side lacks the metric, or has too few samples to tell
};
/// "same", "better", "worse", "unknown".
const char* name(Shift change);

struct Thresholds {
  double alpha = 0.02;           ///< of all metrics together (Holm)
  size_t least_samples = 8;      ///< on each side; fewer cannot be told from chance
  double least_relative = 0.05;  ///< the floor is no smaller than this part of the median
  double least_ms = 0.25;        ///< nor, for times in ms, than this
  double one_run_relative =
      0.1;  ///< where there is only one run and its own scatter is not known between runs
  double one_run_ms = 0.5;
  size_t tail_samples = 100;  ///< p99 is compared from so many samples on
  size_t resamples = 2000;
  uint64_t seed = 1;                     ///< of the bootstrap
  std::map<std::string, double> floors;  ///< by metric: instead of what is computed
  /// Settings by which the two sides are meant to differ, as in `--set`: such a condition need not be equal.
  std::set<std::string> may_differ;
};

/// One metric, or one fact of a mode (outcome, correctness) that no statistics are needed for.
struct ComparisonRow {
  std::string scenario, mode, metric, unit;
  Better better = Better::kLower;
  Shift change = Shift::kUnknown;
  std::string why;  ///< of kUnknown and of facts: a sentence
  bool is_fact = false;
  size_t n_before = 0, n_after = 0;
  std::optional<double> before, after;  ///< medians, or the percentile that the metric names
  double worse_by = 0;                  ///< shift towards the worse side; below 0: better
  ConfidenceInterval interval;          ///< of worse_by, 95 %
  double floor = 0;                     ///< what worse_by must exceed
  std::string floor_from;               ///< where the floor is from: a few words
  double p = 1;                         ///< that it is no worse, corrected for the number of metrics
};

struct SampleComparison {
  std::string before, after;  ///< what they are called
  std::vector<ComparisonRow> rows;
  std::vector<std::string> notes;  ///< facts of the machines that differ, and the like

  /// kWorse when a row is, else kUnknown when a row is or there is none, else kSame.
  Shift change() const;
};

/// The largest shift between two runs of the same program, and no less than the thresholds' least; in words
/// where it is from. `by_turns`: between a run and the reference that ran by turns with it, where there are
/// such. Runs without samples are left out.
double noise_floor(const MetricSamples& samples, const Thresholds& thresholds, bool by_turns,
                   std::string& from);

/// Every metric of every mode of `before` must be in `after`: what is missing is unknown. What only `after`
/// has is noted. Modes whose conditions differ are unknown: their numbers say nothing of each other.
SampleComparison compare(const SampleSet& before, const SampleSet& after, const Thresholds& thresholds);
/// The same where `before` ran by turns with `after`: what the machine did met both, so the noise floors are
/// those of `baseline`'s own runs beside their references (a set without such: assumed).
SampleComparison compare_by_turns(const SampleSet& before, const SampleSet& after, const SampleSet& baseline,
                                  const Thresholds& thresholds);

}  // namespace r2bench
