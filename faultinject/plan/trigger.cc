// SPDX-License-Identifier: Apache-2.0
// When a fault fires: 'at', 'on' or 'after', and how often.
#include <charconv>
#include <cmath>

#include "faultinject/plan/mapping.h"

namespace faultinject {
namespace {

void parse_phase(const YAML::Node& node, const std::string& file, Trigger& trigger) {
  const Mapping phase(node, file, "'phase'", {"up_to"});
  if (!phase.has("up_to")) Place(file, node).fail("'phase' needs 'up_to', e.g. phase: {up_to: 20 ms}");
  trigger.phase_up_to = phase.span("up_to");
}

double parse_probability(const Mapping& at) {
  const std::string text = at.text("probability");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value > 0) || value > 1)
    at.place("probability")
        .fail("'" + text + "' is not a probability; write a number above 0 and up to 1, e.g. 0.001");
  return value;
}

Trigger parse_at(const YAML::Node& node, const std::string& file) {
  Trigger trigger;
  const Place place(file, node);
  const std::string example =
      "'now', {time: 200 ms}, {iter: 60}, {wr: 1000}, {bytes: 10 MiB} or {probability: 0.001}";
  if (node.IsScalar()) {
    if (node.Scalar() != "now")
      place.fail("'at: " + node.Scalar() + "' is no trigger; it is one of " + example);
    trigger.kind = Trigger::Kind::kNow;
    return trigger;
  }
  const Mapping at(node, file, "'at'", {"time", "since", "iter", "wr", "bytes", "probability", "phase"});
  const int kinds = at.has("time") + at.has("iter") + at.has("wr") + at.has("bytes") + at.has("probability");
  if (kinds != 1) place.fail("'at' needs exactly one trigger: " + example);
  if (at.has("since") && !at.has("time")) at.place("since").fail("'since' belongs to 'time' only");
  if (at.has("time")) {
    trigger.kind = Trigger::Kind::kTime;
    trigger.after = at.span("time");
    if (at.has("since")) trigger.since_first_op = at.choice("since", {"start", "first_op"}) == 1;
  } else if (at.has("iter")) {
    trigger.kind = Trigger::Kind::kEvent;
    trigger.event = "iteration";
    trigger.value = at.number("iter", 0);
  } else if (at.has("wr")) {
    trigger.kind = Trigger::Kind::kWr;
    trigger.count = at.number("wr", 1);
  } else if (at.has("bytes")) {
    trigger.kind = Trigger::Kind::kBytes;
    trigger.count = at.quantity("bytes", parse_bytes);
    if (trigger.count == 0) at.place("bytes").fail("'bytes' must be 1 B or more");
  } else {
    trigger.kind = Trigger::Kind::kProbability;
    trigger.probability = parse_probability(at);
  }
  if (at.has("phase")) parse_phase(at.at("phase"), file, trigger);
  return trigger;
}

Trigger parse_on(const YAML::Node& node, const std::string& file) {
  Trigger trigger;
  trigger.kind = Trigger::Kind::kEvent;
  if (node.IsScalar()) {
    trigger.event = node.Scalar();
  } else {
    const Mapping on(node, file, "'on'", {"event", "value", "phase"});
    if (!on.has("event")) Place(file, node).fail("'on' needs 'event', e.g. on: migration_started");
    trigger.event = on.text("event");
    if (on.has("value")) trigger.value = on.number("value", 0);
    if (on.has("phase")) parse_phase(on.at("phase"), file, trigger);
  }
  if (trigger.event.empty() || trigger.event.size() > 31)
    Place(file, node).fail("an event's name has 1 to 31 characters");
  return trigger;
}

Trigger parse_after(const YAML::Node& node, const std::string& file) {
  Trigger trigger;
  trigger.kind = Trigger::Kind::kAfter;
  const Place place(file, node);
  if (node.IsScalar()) {
    trigger.fault = node.Scalar();
  } else {
    const Mapping after(node, file, "'after'", {"fault", "until", "wait", "phase"});
    if (!after.has("fault"))
      place.fail(
          "'after' needs 'fault', the name of an earlier one, e.g. after: {fault: first, wait: 50 ms}");
    trigger.fault = after.text("fault");
    if (after.has("until"))
      trigger.until = Trigger::Until(after.choice("until", {"effect", "healed", "triggered"}));
    if (after.has("wait")) trigger.after = after.span("wait");
    if (after.has("phase")) parse_phase(after.at("phase"), file, trigger);
  }
  if (trigger.fault.empty()) place.fail("'after' names the fault that comes first, e.g. after: first");
  return trigger;
}

}  // namespace

const std::vector<std::string>& trigger_keys() {
  static const std::vector<std::string> keys = {"at", "on", "after", "phase", "for", "repeat", "every"};
  return keys;
}

void parse_trigger(const Mapping& fault, const std::string& file, FaultSpec& spec) {
  if (fault.has("at") && fault.has("on")) fault.place("on").fail("a fault has one trigger: 'at' or 'on'");
  if (fault.has("after") && (fault.has("at") || fault.has("on")))
    fault.place("after").fail("a fault has one trigger: 'after' excludes 'at' and 'on'");
  if (fault.has("at")) spec.trigger = parse_at(fault.at("at"), file);
  if (fault.has("on")) spec.trigger = parse_on(fault.at("on"), file);
  if (fault.has("after")) spec.trigger = parse_after(fault.at("after"), file);
  using Kind = Trigger::Kind;
  const Kind kind = spec.trigger.kind;
  if (fault.has("phase")) {
    if (kind == Kind::kManual) fault.place("phase").fail("'phase' needs a trigger, 'at', 'on' or 'after'");
    for (const char* key : {"at", "on", "after"})
      if (fault.has(key) && fault.at(key).IsMap() && fault.at(key)["phase"])
        fault.place("phase").fail(std::string("'phase' is given twice, inside and beside '") + key + "'");
    parse_phase(fault.at("phase"), file, spec.trigger);
  }
  if (fault.has("for")) {
    spec.duration = fault.span("for");
    if (spec.duration->count() == 0) fault.place("for").fail("'for' must be longer than 0");
  }
  if (fault.has("every")) {
    if (!fault.has("repeat")) fault.place("every").fail("'every' needs 'repeat', e.g. repeat: 5, every: 2 s");
    spec.every = fault.span("every");
    if (spec.every.count() == 0) fault.place("every").fail("'every' must be longer than 0");
    if (spec.duration && *spec.duration >= spec.every)
      fault.place("for").fail(
          "'for' must be shorter than 'every': each time it ends before the next one begins");
  }
  if (!fault.has("repeat")) return;
  const uint64_t repeat = fault.number("repeat", 1);
  if (repeat > 1000000) fault.place("repeat").fail("'repeat' must be 1000000 or less");
  spec.repeat = uint32_t(repeat);
  if (spec.every.count() > 0 && repeat > uint64_t(kLongestPlan / spec.every))
    fault.place("repeat").fail("so many rounds take more than ten years");
  if (kind == Kind::kManual) fault.place("repeat").fail("'repeat' needs a trigger, 'at', 'on' or 'after'");
  const bool comes_again =
      kind == Kind::kEvent || kind == Kind::kWr || kind == Kind::kBytes || kind == Kind::kProbability;
  if (!fault.has("every") && !comes_again)
    fault.place("repeat").fail(
        "this trigger comes once only; say how long after it the next time is, e.g. every: 2 s");
  if (!fault.has("every") && spec.trigger.phase_up_to.count() > 0)
    fault.place("repeat").fail("'phase' with 'repeat' needs 'every'");
  if (!spec.duration && !spec.ends_by_itself())
    fault.place("repeat").fail(std::string(spec.kind->name) +
                               (spec.strikes_all_until_healed() ? " with 'qp: all'" : "") +
                               " lasts until it is healed; say how long each time, e.g. for: 200 ms");
}

}  // namespace faultinject
