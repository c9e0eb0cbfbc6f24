// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/plan_text.h"

#include "faultinject/plan/units.h"
#include "harness/base/format.h"
#include "harness/scenario/node_name.h"

namespace r2bench {
namespace {

using faultinject::format_duration;

std::string plan_of(const faultinject::FaultSpec& fault) {
  std::string text = trigger_in_words(fault.trigger) + ": " + fault.kind->name + " " + fault.target.text;
  if (!fault.written.empty()) text += " (" + fault.written + ")";
  if (fault.duration) text += ", for " + format_duration(*fault.duration);
  if (fault.repeat > 1) text += ", " + std::to_string(fault.repeat) + " times";
  if (fault.every.count() > 0) text += ", every " + format_duration(fault.every);
  return text;
}

std::string plan_of(const RankFault& fault) {
  std::string text = fault.at_iter
                         ? "when iteration " + std::to_string(*fault.at_iter) + " starts"
                         : "after " + format_duration(fault.at_time.value_or(std::chrono::nanoseconds(0)));
  text += std::string(": ") + name(fault.kind) + " " + node_name(fault.node) + "/rank" +
          std::to_string(fault.local_rank);
  if (fault.duration.count() > 0) text += ", for " + format_duration(fault.duration);
  return text;
}

}  // namespace

std::string trigger_in_words(const faultinject::Trigger& trigger) {
  using Kind = faultinject::Trigger::Kind;
  std::string text;
  switch (trigger.kind) {
    case Kind::kManual:
      text = "when r2bench fires it";
      break;
    case Kind::kNow:
      text = "at once";
      break;
    case Kind::kTime:
      text = trigger.since_first_op ? format_duration(trigger.after) + " after the first send"
                                    : "after " + format_duration(trigger.after);
      break;
    case Kind::kEvent:
      if (trigger.event == "iteration") {
        // Without a phase r2bench fires it itself, at a random moment (harness/run/fault_driver.h).
        const std::string which = "iteration " + std::to_string(trigger.value.value_or(0));
        text = trigger.phase_up_to.count() > 0 ? "when " + which + " starts" : "during " + which;
      } else {
        text = "at the event " + trigger.event + (trigger.value ? " " + std::to_string(*trigger.value) : "");
      }
      break;
    case Kind::kWr:
      text = "at send number " + std::to_string(trigger.count) + " on its target";
      break;
    case Kind::kBytes:
      text = "after " + faultinject::format_bytes(trigger.count) + " sent on its target";
      break;
    case Kind::kProbability:
      text = "at each send on its target with a probability of " + short_number(trigger.probability);
      break;
    case Kind::kAfter:
      text = trigger.after.count() > 0 ? format_duration(trigger.after) + " after '" : "as soon as '";
      text += trigger.fault;
      text += trigger.until == faultinject::Trigger::Until::kHealed   ? "' is healed"
              : trigger.until == faultinject::Trigger::Until::kEffect ? "' takes effect"
                                                                      : "' is triggered";
      break;
  }
  if (trigger.phase_up_to.count() > 0) {
    text += ", delayed at random by up to " + format_duration(trigger.phase_up_to);
  }
  return text;
}

std::vector<std::string> plan_in_words(const Scenario& scenario) {
  std::vector<std::string> plan;
  for (const faultinject::FaultSpec& fault : scenario.faults) plan.push_back(plan_of(fault));
  for (const RankFault& fault : scenario.rank_faults) plan.push_back(plan_of(fault));
  return plan;
}

std::map<std::string, std::string> stated_environment(const Scenario& scenario, const Mode& mode) {
  std::map<std::string, std::string> env = mode.env;
  env.insert(scenario.env.begin(), scenario.env.end());
  return env;
}

}  // namespace r2bench
