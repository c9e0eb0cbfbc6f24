// SPDX-License-Identifier: Apache-2.0
// Whether the data that arrived is what was sent. Of the whole job.
#include "harness/judge/messages.h"
#include "harness/judge/metric.h"

namespace r2bench {
namespace {

Value exactness(const Measured& m) {
  const Correctness& c = m.mode.correctness;
  if (!c.exact()) {
    return {std::nullopt,
            "wrong",
            std::to_string(c.wrong_elements) + " wrong, " + std::to_string(c.lost) + " lost, " +
                std::to_string(c.duplicated) + " duplicated, " + std::to_string(c.size_errors) +
                " of wrong size",
            {}};
  }
  if (c.checked_elements == 0) return Value::none(why_not_compared(m.scenario.workload));
  return {std::nullopt, "exact", "exact, " + std::to_string(c.checked_elements) + " elements compared", {}};
}

/// What is wrong is known; that nothing is, only where something was compared.
Value wrong_elements(const Measured& m) {
  const Correctness& c = m.mode.correctness;
  if (c.wrong_elements == 0 && c.checked_elements == 0)
    return Value::none(why_not_compared(m.scenario.workload));
  return Value::of_count(c.wrong_elements);
}

/// The same of messages, which not every engine sees.
Value message_count(const Measured& m, uint64_t count, const MessagesKnown& known) {
  if (count > 0) return Value::of_count(count);
  if (known.by == MessagesBy::kNothing) {
    Value value = Value::none(known.why_not);
    value.final = m.mode.correctness.checked_elements > 0;  // no later operation makes up for it
    return value;
  }
  if (known.by == MessagesBy::kElements) return Value::of(0, "0: no element is wrong");
  return Value::of_count(0);
}

Metric counted(const char* name, const char* meaning, std::function<Value(const Measured&)> value,
               Needs needs = {}) {
  return {.info = {.name = name, .meaning = meaning, .needs = needs},
          .wanted = "a count, of the whole job",
          .value = std::move(value),
          .place = std::string("/metrics/correctness/") + name,
          .without_fault = true};
}

}  // namespace

namespace metrics_of {

std::vector<Metric> correctness() {
  return {
      {.info = {.name = "correctness",
                .words = {"exact", "wrong"},
                .meaning =
                    "whether every element was right and no segment was seen to be lost or delivered twice"},
       .wanted = "",
       .value = exactness,
       .without_fault = true},
      counted("wrong_elements", "elements that differed from the exact result", wrong_elements),
      counted("duplicated", "messages or segments that arrived twice",
              [](const Measured& m) {
                const Correctness& c = m.mode.correctness;
                return message_count(m, c.duplicated, duplicated_known(m.scenario, c));
              },
              {.trace = true}),
      counted("lost", "messages that never arrived although later ones did",
              [](const Measured& m) {
                const Correctness& c = m.mode.correctness;
                return message_count(m, c.lost, lost_known(m.scenario, c));
              },
              {.trace = true}),
  };
}

}  // namespace metrics_of
}  // namespace r2bench
