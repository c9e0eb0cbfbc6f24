// SPDX-License-Identifier: Apache-2.0
// How the job ended, and what it says of that.
#include <algorithm>

#include "harness/base/format.h"
#include "harness/judge/metric.h"
#include "harness/judge/nic_names.h"

namespace r2bench {
namespace {

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

Value detected_by(const ModeResult& mode) {
  if (mode.detected_by.empty()) return Value::none(why_no_sample(mode));
  if (mode.detected_by.size() == 1) {
    const auto& [by, count] = *mode.detected_by.begin();
    return {std::nullopt, by, by + (count > 1 ? " (" + std::to_string(count) + " times)" : ""), {}};
  }
  std::string text;
  for (const auto& [by, count] : mode.detected_by) {
    text += (text.empty() ? "" : ", ") + by + " (" + std::to_string(count) + ")";
  }
  return {std::nullopt, "several", text, {}};
}

}  // namespace

namespace metrics_of {

std::vector<Metric> outcome() {
  return {
      {.info = {.name = "outcome",
                .words = {"ok", "error", "hang", "killed"},
                .meaning = "how the job ended"},
       .wanted = "",
       .value = [](const Measured& m) { return Value::of_word(name(m.mode.outcome), m.mode.error); }},
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
       .value =
           [](const Measured& m) {
             if (!m.mode.error_ms) return Value::none("there is no error after a fault");
             return Value::of(*m.mode.error_ms, milliseconds(*m.mode.error_ms));
           },
       .spans_hosts = true},
      {.info = {.name = "stall_ms",
                .unit = Unit::kMilliseconds,
                .meaning = "duration of the longest operation that was open at the first fault or began "
                           "later, on any transport",
                .needs = {.fault = true}},
       .wanted = "a time",
       .value =
           [](const Measured& m) {
             if (!m.mode.stall_ms) return Value::none("no fault took effect, or the job did not end well");
             return Value::of(*m.mode.stall_ms, milliseconds(*m.mode.stall_ms));
           },
       .grows = true},
      {.info = {.name = "detected_by",
                .words = {"completion", "event", "watchdog", "peer"},
                .meaning =
                    "what detected the failure first; all failures must have been detected in this way",
                .needs = {.fault = true, .trace = true}},
       .wanted = "",
       .value = [](const Measured& m) { return detected_by(m.mode); }},
  };
}

}  // namespace metrics_of
}  // namespace r2bench
