// SPDX-License-Identifier: Apache-2.0
// What a scenario can expect of a run: each metric told once, by a file of harness/judge/metrics.
// Expectations are parsed and judged by it; `metrics.values` of result.json, `r2bench explain` and the table
// of harness/scenario/README.md are made from it. README.md says how to add one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/measure/result.h"
#include "harness/scenario/expectation.h"
#include "harness/scenario/scenario.h"
#include "r2ccl/trace/event.h"

namespace r2bench {

struct JobRecord;  // harness/judge/job_record.h

/// What a metric is in a run: a number, a word, or nothing, with the reason.
struct Value {
  std::optional<double> number;     ///< infinite: a time that never came
  std::optional<std::string> word;  ///< of a metric that is one of some words, or free words
  std::string text;                 ///< for people; the reason when there is no value
  std::string detail;               ///< the job's error where it explains the value
  /// The rest of the run cannot change it: a round that failed stays failed, what is not seen stays unseen.
  bool final = false;
  /// Of a confidence bound: the bound on the other side. An expectation that only this one meets is unknown.
  std::optional<double> other_bound;
  std::string undecided;  ///< what is then to be done
  /// Of several jobs: the words that are true of one or more of them. An expectation has to hold for each.
  std::vector<std::string> each = {};

  static Value of(double number, std::string text) { return {number, std::nullopt, std::move(text), {}}; }
  static Value of_count(uint64_t count) { return of(static_cast<double>(count), std::to_string(count)); }
  static Value of_word(std::string word, const std::string& detail = "") {
    return {std::nullopt, word, word, detail};
  }
  static Value none(std::string reason) { return {std::nullopt, std::nullopt, std::move(reason), {}}; }
};

/// A mode's pooled result, with all that a metric may look at.
struct Measured {
  const Scenario& scenario;
  const RunResult& result;
  const ModeResult& mode;
};

/// A job and its result so far: outcome, faults, operations, ranks and events are known.
struct MeasuredJob {
  const Scenario& scenario;
  const JobRecord& job;
  const ModeResult& mode;
};

/// How the numbers of several jobs of a mode become one.
enum class Pooled { kMost, kLeast, kSum, kMean };
double pooled(const std::vector<double>& numbers, Pooled how);  ///< `numbers`: one or more

/// Exactly one of `value`, `measure`, `counts`, `times` and `by_round` says what it is; the others follow
/// (complete()).
struct Metric {
  MetricInfo info;     ///< name, unit, words, and the meaning in one sentence
  const char* wanted;  ///< what the right side of an expectation is: "a time", "a ratio", "a count"
  std::function<Value(const Measured&)> value = nullptr;
  /// A number that is taken from the record of a job; nullopt: it is not known of this job.
  std::function<std::optional<double>(const MeasuredJob&)> measure = nullptr;
  Pooled pooled = Pooled::kMost;         ///< of what is measured
  std::string missing = "not measured";  ///< why, where `measure` knew nothing of any job
  /// Whether the event counts. Of all ranks; each round of the faults has to meet an expectation.
  std::function<bool(const r2ccl::trace::Event&)> counts = nullptr;
  /// As `counts`, of what no event shows alone: when each of what counts happened in a job.
  std::function<std::vector<uint64_t>(const JobRecord&)> times = nullptr;
  /// Of a count: one number for each round of the faults.
  std::function<std::vector<uint64_t>(const ModeResult&)> by_round = nullptr;
  /// A sentence where the value proves nothing although it is what was wanted; else empty.
  std::function<std::string(const ModeResult&)> doubt = nullptr;
  std::string place = "";      ///< in a run of result.json, where that holds it beside `metrics.values`
  bool grows = false;          ///< a number that can only grow while the run goes on
  bool of_each_fault = false;  ///< a word: a fault of which another one is true stays so
  bool without_fault = false;  ///< what is wrong is wrong, whether a fault was seen or not
  bool spans_hosts = false;  ///< a time from an event of one host to one of another: as exact as their clocks

  bool is_counted() const { return counts || times; }
};

/// With `value`, and of a count with `by_round`.
Metric complete(Metric metric);

const std::vector<Metric>& all_metrics();          ///< all complete
const Metric* metric_of(const std::string& name);  ///< nullptr: there is none
const char* unit_of(const MetricInfo& metric);     ///< "ms", "%", "s/GB"; empty: it has none

/// Why no fault of the mode has times.
std::string why_no_sample(const ModeResult& mode);

/// A metric as people read it: the percentiles of a time are one line.
struct MetricLine {
  std::string name;        ///< "recover_ms", without a statistic where there are some
  std::string statistics;  ///< ".p50 .p95 .p99 .max"; empty: there are none
  std::string wanted;      ///< the right side of an expectation: "a time", or the words that it may be
  std::string meaning;
};
std::vector<MetricLine> metric_lines();

/// These lines as the table in harness/scenario/README.md.
std::string metrics_as_markdown();

}  // namespace r2bench
