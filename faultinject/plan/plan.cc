// YAML to FaultSpec. Every key is read once through Mapping, which knows what is allowed where and where each
// thing stands in the file.
#include "faultinject/plan/plan.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "faultinject/plan/units.h"

namespace faultinject {
namespace {

const std::vector<std::string> kKindNames = {"noop",     "qp_error", "port_down", "blackhole",
                                             "ack_lost", "throttle", "delay"};

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

struct Place {
  const std::string& file;
  int line = 0, column = 0;
  Place(const std::string& f, const YAML::Node& node) : file(f) {
    const YAML::Mark mark = node.Mark();
    if (!mark.is_null()) line = mark.line + 1, column = mark.column + 1;
  }
  [[noreturn]] void fail(const std::string& message) const { throw PlanError(file, line, column, message); }
};

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const auto near = nearest(word, known);
  return near ? "; did you mean '" + *near + "'?" : "";
}

// A mapping with a closed set of keys, each at most once.
class Mapping {
 public:
  Mapping(const YAML::Node& node, const std::string& file, const std::string& what,
          const std::vector<std::string>& keys)
      : node_(node), file_(file) {
    if (!node.IsMap()) Place(file, node).fail(what + " must be a mapping with the keys " + joined(keys));
    std::vector<std::string> seen;
    for (const auto& pair : node) {
      const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "?";
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        Place(file, pair.first)
            .fail("unknown key '" + key + "' in " + what + suggestion(key, keys) + " (keys: " + joined(keys) + ")");
      if (std::find(seen.begin(), seen.end(), key) != seen.end())
        Place(file, pair.first).fail("key '" + key + "' stands twice in " + what);
      seen.push_back(key);
    }
  }
  bool has(const char* key) const { return bool(node_[key]); }
  YAML::Node at(const char* key) const { return node_[key]; }
  Place place(const char* key) const { return Place(file_, node_[key]); }

  std::string text(const char* key) const {
    const YAML::Node value = node_[key];
    if (!value.IsScalar() || value.Scalar().empty()) place(key).fail(std::string("'") + key + "' must be one value");
    return value.Scalar();
  }
  uint64_t number(const char* key, uint64_t least) const {
    const std::string value = text(key);
    if (value.find_first_not_of("0123456789") != std::string::npos || value.size() > 18)
      place(key).fail("'" + value + "' is not a whole number; '" + key + "' counts from " + std::to_string(least));
    const uint64_t number = std::stoull(value);
    if (number < least) place(key).fail(std::string("'") + key + "' must be " + std::to_string(least) + " or more");
    return number;
  }
  bool boolean(const char* key) const {
    const std::string value = text(key);
    if (value == "true" || value == "yes") return true;
    if (value == "false" || value == "no") return false;
    place(key).fail("'" + value + "' is neither true nor false");
  }
  template <typename Parse>
  auto quantity(const char* key, Parse parse) const {
    const std::string value = text(key);
    try {
      return parse(value);
    } catch (const UnitError& error) {
      place(key).fail(std::string("'") + key + "': " + error.what());
    }
  }
  std::chrono::nanoseconds span(const char* key) const { return quantity(key, parse_duration); }

 private:
  YAML::Node node_;
  const std::string& file_;
};

void parse_phase(const YAML::Node& node, const std::string& file, Trigger& trigger) {
  const Mapping phase(node, file, "'phase'", {"up_to"});
  if (!phase.has("up_to")) Place(file, node).fail("'phase' needs 'up_to', e.g. phase: {up_to: 20 ms}");
  trigger.phase_up_to = phase.span("up_to");
}

Trigger parse_at(const YAML::Node& node, const std::string& file) {
  Trigger trigger;
  const Place place(file, node);
  const std::string example = "'now', {time: 200 ms}, {iter: 60}, {wr: 1000} or {bytes: 10 MiB}";
  if (node.IsScalar()) {
    if (node.Scalar() != "now") place.fail("'at: " + node.Scalar() + "' is no trigger; it is one of " + example);
    trigger.kind = Trigger::Kind::kNow;
    return trigger;
  }
  const Mapping at(node, file, "'at'", {"time", "since", "iter", "wr", "bytes", "phase"});
  const int kinds = at.has("time") + at.has("iter") + at.has("wr") + at.has("bytes");
  if (kinds != 1) place.fail("'at' needs exactly one trigger: " + example);
  if (at.has("since") && !at.has("time")) at.place("since").fail("'since' belongs to 'time' only");
  if (at.has("time")) {
    trigger.kind = Trigger::Kind::kTime;
    trigger.after = at.span("time");
    if (at.has("since")) {
      const std::string since = at.text("since");
      if (since != "start" && since != "first_op")
        at.place("since").fail("'since: " + since + "' must be start or first_op" +
                               suggestion(since, {"start", "first_op"}));
      trigger.since_first_op = since == "first_op";
    }
  } else if (at.has("iter")) {
    trigger.kind = Trigger::Kind::kEvent;
    trigger.event = "iteration";
    trigger.value = at.number("iter", 0);
  } else if (at.has("wr")) {
    trigger.kind = Trigger::Kind::kWr;
    trigger.count = at.number("wr", 1);
  } else {
    trigger.kind = Trigger::Kind::kBytes;
    trigger.count = at.quantity("bytes", parse_bytes);
    if (trigger.count == 0) at.place("bytes").fail("'bytes' must be 1 B or more");
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

QpSelector parse_selector(const Mapping& fault) {
  const std::string text = fault.text("qp");
  if (text == "all") return {QpSelector::Kind::kAll, 0};
  if (text == "busiest") return {QpSelector::Kind::kBusiest, 0};
  if (text == "random") return {QpSelector::Kind::kRandom, 0};
  if (text.find_first_not_of("0123456789") == std::string::npos && text.size() < 10)
    return {QpSelector::Kind::kIndex, uint32_t(std::stoul(text))};
  fault.place("qp").fail("'qp: " + text + "' must be all, busiest, random or a number" +
                         suggestion(text, {"all", "busiest", "random"}));
}

// Parameters that only some kinds have; a parameter that would be ignored is an error.
struct Parameter {
  const char* key;
  std::vector<FaultKind> kinds;
};
const std::vector<Parameter> kParameters = {
    {"events", {FaultKind::kPortDown}},
    {"query", {FaultKind::kPortDown}},
    {"rate", {FaultKind::kThrottle}},
    {"delay", {FaultKind::kDelay}},
    {"jitter", {FaultKind::kDelay}},
    {"min_bytes", {FaultKind::kAckLost}},
    {"report", {FaultKind::kAckLost}},
    {"qp", {FaultKind::kNoop, FaultKind::kQpError, FaultKind::kAckLost}},
};

void parse_parameters(const Mapping& fault, FaultSpec& spec) {
  const std::string kind = to_string(spec.kind);
  for (const Parameter& parameter : kParameters) {
    if (!fault.has(parameter.key)) continue;
    if (std::find(parameter.kinds.begin(), parameter.kinds.end(), spec.kind) != parameter.kinds.end()) continue;
    std::vector<std::string> owners;
    for (const FaultKind owner : parameter.kinds) owners.push_back(to_string(owner));
    fault.place(parameter.key)
        .fail("'" + std::string(parameter.key) + "' has no meaning for " + kind + " (it belongs to " + joined(owners) +
              ")");
  }
  if (fault.has("events")) spec.events = fault.boolean("events");
  if (fault.has("query")) spec.query = fault.boolean("query");
  if (fault.has("min_bytes")) spec.min_bytes = fault.quantity("min_bytes", parse_bytes);
  if (fault.has("report")) {
    const std::string report = fault.text("report");
    if (report != "at_once" && report != "after_retries")
      fault.place("report").fail("'report: " + report + "' must be at_once or after_retries" +
                                 suggestion(report, {"at_once", "after_retries"}));
    spec.after_retries = report == "after_retries";
  }
  if (fault.has("qp")) spec.target.qp = parse_selector(fault);
  if (spec.kind == FaultKind::kThrottle) {
    if (!fault.has("rate")) fault.place("kind").fail("throttle needs 'rate', e.g. rate: 100 Mbit/s");
    spec.rate_bits_per_s = fault.quantity("rate", parse_rate);
    if (spec.rate_bits_per_s == 0) fault.place("rate").fail("an unlimited rate throttles nothing");
  }
  if (spec.kind == FaultKind::kDelay) {
    if (!fault.has("delay")) fault.place("kind").fail("delay needs 'delay', e.g. delay: 1 ms");
    spec.delay = fault.span("delay");
    if (fault.has("jitter")) spec.jitter = fault.span("jitter");
    if (spec.jitter > spec.delay) fault.place("jitter").fail("'jitter' must not be larger than 'delay'");
  }
}

}  // namespace

PlanError::PlanError(std::string file, int line, int column, std::string message)
    : std::runtime_error((file.empty() ? "" : file + ":") +
                         (line > 0 ? std::to_string(line) + ":" + std::to_string(column) + ":" : "") +
                         (file.empty() && line <= 0 ? "" : " ") + message),
      file_(std::move(file)),
      message_(std::move(message)),
      line_(line),
      column_(column) {}

const char* to_string(FaultKind kind) {
  const auto index = uint32_t(kind);
  return index < kKindNames.size() ? kKindNames[index].c_str() : "unknown";
}

std::optional<FaultKind> fault_kind(std::string_view name) {
  for (size_t i = 0; i < kKindNames.size(); i++)
    if (kKindNames[i] == name) return FaultKind(i);
  return std::nullopt;
}

const std::vector<std::string>& fault_kind_names() { return kKindNames; }

FaultSpec parse_fault(const YAML::Node& node, const std::string& file) {
  std::vector<std::string> keys = {"kind", "target", "at", "on", "phase", "for", "name"};
  for (const Parameter& parameter : kParameters) keys.push_back(parameter.key);
  const Mapping fault(node, file, "a fault", keys);
  const Place place(file, node);

  FaultSpec spec;
  spec.file = file;
  spec.line = place.line;
  spec.column = place.column;
  if (!fault.has("kind")) place.fail("a fault needs 'kind' (one of: " + joined(kKindNames) + ")");
  if (!fault.has("target")) place.fail("a fault needs 'target', e.g. target: node1/nic0");
  const std::string kind = fault.text("kind");
  if (const auto known = fault_kind(kind)) {
    spec.kind = *known;
  } else {
    fault.place("kind").fail("unknown kind '" + kind + "'" + suggestion(kind, kKindNames) +
                             " (kinds: " + joined(kKindNames) + ")");
  }
  const Place target = fault.place("target");
  spec.target = parse_target(fault.text("target"), file, target.line, target.column);
  const bool strikes_qps = spec.kind == FaultKind::kNoop || spec.kind == FaultKind::kQpError ||
                           spec.kind == FaultKind::kAckLost;
  if (!strikes_qps && spec.target.text.find("/qp:") != std::string::npos)
    target.fail("'" + kind + "' strikes a whole port; its target names no queue pair");
  if (strikes_qps && fault.has("qp") && spec.target.text.find("/qp:") != std::string::npos)
    fault.place("qp").fail("the queue pair is named twice, in 'target' and in 'qp'");

  if (fault.has("at") && fault.has("on")) fault.place("on").fail("a fault has one trigger: 'at' or 'on'");
  if (fault.has("at")) spec.trigger = parse_at(fault.at("at"), file);
  if (fault.has("on")) spec.trigger = parse_on(fault.at("on"), file);
  if (fault.has("phase")) {
    if (spec.trigger.kind == Trigger::Kind::kManual) fault.place("phase").fail("'phase' needs a trigger, 'at' or 'on'");
    parse_phase(fault.at("phase"), file, spec.trigger);
  }
  if (fault.has("for")) {
    spec.duration = fault.span("for");
    if (spec.duration->count() == 0) fault.place("for").fail("'for' must be longer than 0");
  }
  parse_parameters(fault, spec);
  spec.name = fault.has("name") ? fault.text("name") : kind + " " + spec.target.text;
  return spec;
}

std::vector<FaultSpec> parse_faults(const YAML::Node& node, const std::string& file) {
  std::vector<FaultSpec> faults;
  if (!node || node.IsNull()) return faults;
  if (!node.IsSequence()) Place(file, node).fail("'faults' must be a list, e.g. - {at: {iter: 60}, target: node1/nic0, kind: port_down}");
  for (const YAML::Node& entry : node) faults.push_back(parse_fault(entry, file));
  return faults;
}

}  // namespace faultinject
