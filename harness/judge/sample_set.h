// SPDX-License-Identifier: Apache-2.0
// What a comparison looks at: the samples of each metric, by scenario and mode and by run, taken from
// result.json files or from a baseline. Pure: JSON in, plain data out.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/scenario/expectation.h"

namespace r2bench {

/// One metric's samples, run by run: the spread between runs of the same program is the machine's, not the
/// program's. A time that never came is infinite.
struct MetricSamples {
  std::string name;  ///< recover_ms, busbw …
  std::string unit;  ///< ms, Gbit/s …; empty for a ratio
  Better better = Better::kLower;
  std::vector<std::vector<double>> runs;
  /// Of each run: the samples of the reference that ran by turns with it. As long as `runs`, or empty.
  std::vector<std::vector<double>> references;

  std::vector<double> all() const;
};

/// Everything that is known of one mode of one scenario.
struct ModeSamples {
  std::string scenario, mode;
  std::map<std::string, std::string> conditions;  ///< what must be equal for numbers to be comparable
  std::vector<std::string> outcomes;              ///< of each run
  std::vector<std::string> wrong;                 ///< of each run that was not exact: what was wrong
  std::vector<MetricSamples> metrics;

  const MetricSamples* find(const std::string& metric) const;
};

/// Of one or several runs. `facts` are the machine's and the build's, of the first run; what differs in a
/// later one is "various".
struct SampleSet {
  std::string name;  ///< file or folder, for the reader
  std::map<std::string, std::string> facts;
  std::vector<ModeSamples> modes;

  const ModeSamples* find(const std::string& scenario, const std::string& mode) const;
  /// Adds the runs of another set.
  void add(const SampleSet& other);
  /// The same samples as those of one single run.
  SampleSet pooled() const;
  /// Of sets that are pooled: this one with the other one as what ran by turns with it.
  SampleSet beside(const SampleSet& reference) const;
};

/// Of a result.json that the schema accepts (version 2). Modes that are expected to end in an error are kept
/// for their outcome; a mode without faults has operation_ms, one of interleaved pairs busbw and
/// overhead_pct. Metrics that declare it (MetricInfo::compared) are taken by themselves.
SampleSet samples_of_result(const nlohmann::json& result, const std::string& name);

/// A condition that results and baselines of older versions do not say.
bool is_newer_condition(const std::string& key);

/// Has a metric of that name one sample in each run?
bool once_per_run(const std::string& metric);

/// "scenario, mode, metric" of each metric that a set could have samples of, and has none.
std::vector<std::string> without_samples(const SampleSet& set);

/// The baseline file: samples, run by run, so that each later comparison can test against all of them.
inline constexpr int kBaselineVersion = 1;
nlohmann::ordered_json to_baseline(const SampleSet& set);

/// A baseline that cannot be read says why.
class BaselineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// Throws BaselineError.
SampleSet samples_of_baseline(const nlohmann::json& baseline, const std::string& name);

}  // namespace r2bench
