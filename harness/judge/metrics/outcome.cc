// SPDX-License-Identifier: Apache-2.0
// How the job ended, and what it says of that.
#include <algorithm>

#include "faultinject/plan/kind.h"
#include "harness/judge/job_record.h"
#include "harness/judge/metric.h"
#include "harness/judge/nic_names.h"

namespace r2bench {
namespace {

/// "error", or "error in 1 of 20 jobs, ok in 19". What was cut short would have ended in another way.
Value outcome_of(const ModeResult& mode) {
  const std::string word = name(mode.outcome);
  Value value = Value::of_word(word, mode.error);
  if (mode.outcomes.empty()) return value;
  size_t jobs = 0;
  std::string others;
  for (const auto& [ended, count] : mode.outcomes) {
    jobs += count;
    if (ended != name(Outcome::kCancelled)) value.each.push_back(ended);
    if (ended != word) others += ", " + ended + " in " + std::to_string(count);
  }
  const auto found = mode.outcomes.find(word);
  const size_t count = found == mode.outcomes.end() ? 0 : found->second;
  value.text = word + " in " + std::to_string(count) + " of " + std::to_string(jobs) + " jobs" + others;
  return value;
}

/// Of a fault that struck several NICs all have to be named; one fault of several will do.
Value error_names_nic(const Scenario& scenario, const ModeResult& mode) {
  if (mode.error.empty()) return Value::none("there is no error");
  bool any = false;
  for (const FaultSample& sample : mode.faults) {
    if (!sample.witnessed) continue;
    const std::vector<std::string> indices = nic_indices(sample.target, scenario.fabric);
    if (indices.empty()) continue;
    any = true;
    const std::string node = sample.target.substr(0, sample.target.find('/'));
    if (std::all_of(indices.begin(), indices.end(), [&](const std::string& index) {
          return names_nic(mode.error, node, index, mode.devices);
        }))
      return Value::of_word("yes", mode.error);
  }
  return any ? Value::of_word("no", mode.error) : Value::none("no witnessed fault has a NIC as its target");
}

/// Of faults that were measured and from which traffic has to move.
std::string without_fence(const ModeResult& mode) {
  const auto count = std::count_if(mode.faults.begin(), mode.faults.end(), [](const FaultSample& fault) {
    const faultinject::FaultKind* kind = faultinject::find_fault_kind(fault.kind);
    return fault.sampled && fault.detected_by.empty() && kind != nullptr && kind->moves_traffic();
  });
  return count == 0 ? ""
                    : "; no fence answered " + std::to_string(count) + " more fault" + (count > 1 ? "s" : "");
}

Value detected_by(const ModeResult& mode) {
  if (mode.detected_by.empty()) return Value::none(why_no_sample(mode));
  if (mode.detected_by.size() == 1) {
    const auto& [by, count] = *mode.detected_by.begin();
    const std::string times = count > 1 ? " (" + std::to_string(count) + " times)" : "";
    return {std::nullopt, by, by + times + without_fence(mode), {}};
  }
  std::string text;
  for (const auto& [by, count] : mode.detected_by) {
    text += (text.empty() ? "" : ", ") + by + " (" + std::to_string(count) + ")";
  }
  return {std::nullopt, "several", text + without_fence(mode), {}};
}

/// From the last fault that had taken effect before it.
std::optional<double> error_ms(const MeasuredJob& m) {
  if (m.job.outcome != Outcome::kError || m.job.error_ns == 0) return std::nullopt;
  uint64_t last_ns = 0;
  for (const Firing& firing : m.job.firings)
    if (firing.t0_ns <= m.job.error_ns) last_ns = std::max(last_ns, firing.t0_ns);
  return last_ns == 0 ? std::nullopt : std::optional(double(m.job.error_ns - last_ns) / 1e6);
}

/// What the application sees of faults, whatever transport it has.
std::optional<double> stall_ms(const MeasuredJob& m) {
  uint64_t first_ns = UINT64_MAX;
  for (const FaultSample& sample : m.mode.faults)
    if (sample.witnessed) first_ns = std::min(first_ns, sample.t0_ns);
  std::optional<double> longest;
  if (m.job.outcome != Outcome::kOk || first_ns == UINT64_MAX) return longest;
  for (const OperationSpan& operation : m.job.record.operations)
    if (operation.complete && operation.span.end_ns > first_ns)
      longest = std::max(longest.value_or(0), double(operation.span.end_ns - operation.span.begin_ns) / 1e6);
  return longest;
}

}  // namespace

namespace metrics_of {

std::vector<Metric> outcome() {
  return {
      {.info = {.name = "outcome",
                .words = {"ok", "error", "hang", "killed"},
                .meaning = "how the job ended; of several jobs each one"},
       .wanted = "",
       .value = [](const Measured& m) { return outcome_of(m.mode); }},
      {.info = {.name = "error_names_nic",
                .words = {"yes", "no"},
                .meaning = "whether the job's error names the NIC that failed",
                .needs = {.fault = true}},
       .wanted = "",
       .value = [](const Measured& m) { return error_names_nic(m.scenario, m.mode); }},
      {.info =
           {.name = "error_says",
            .meaning =
                "words that the job's error must contain in this order; … stands for any text between them",
            .text = true},
       .wanted = "words",
       .value =
           [](const Measured& m) {
             return m.mode.error.empty() ? Value::none("there is no error") : Value::of_word(m.mode.error);
           }},
      {.info = {.name = "error_ms",
                .unit = Unit::kMilliseconds,
                .meaning = "time from the last fault before the job's error to that error",
                .needs = {.fault = true}},
       .wanted = "a time",
       .measure = error_ms,
       .missing = "there is no error after a fault",
       .place = "/error_ms",
       .spans_hosts = true},
      {.info = {.name = "stall_ms",
                .unit = Unit::kMilliseconds,
                .meaning = "duration of the longest operation that was open at the first fault or began "
                           "later; known for every transport",
                .needs = {.fault = true}},
       .wanted = "a time",
       .measure = stall_ms,
       .missing = "no fault took effect, or the job did not end well",
       .place = "/stall_ms",
       .grows = true},
      {.info =
           {.name = "detected_by",
            .words = {"completion", "event", "watchdog", "peer"},
            .meaning =
                "what detected the failure first; all failures that were detected must have been in this way",
            .needs = {.fault = true, .trace = true}},
       .wanted = "",
       .value = [](const Measured& m) { return detected_by(m.mode); },
       .of_each_fault = true},
  };
}

}  // namespace metrics_of
}  // namespace r2bench
