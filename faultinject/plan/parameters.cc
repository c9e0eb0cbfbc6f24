// SPDX-License-Identifier: Apache-2.0
// What only some kinds of fault have.
#include <charconv>

#include "faultinject/plan/mapping.h"
#include "faultinject/plan/names.h"

namespace faultinject {
namespace {

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

void parse_opcodes(const Mapping& fault, const std::string& file, FaultSpec& spec) {
  const YAML::Node node = fault.at("opcode");
  const auto add = [&](const YAML::Node& word) {
    const std::string name = word.IsScalar() ? word.Scalar() : "";
    const auto number = opcode_number(name);
    if (!number)
      Place(file, word)
          .fail("unknown opcode '" + name + "'" + suggestion(name, opcode_names()) + " (there are " +
                joined(opcode_names()) + ")");
    spec.opcodes |= 1u << *number;
  };
  if (node.IsSequence()) {
    for (const YAML::Node& word : node) add(word);
    if (spec.opcodes == 0) fault.place("opcode").fail("'opcode' names none; leave it out for all");
  } else {
    add(node);
  }
}

void parse_peer(const Mapping& fault, const std::string& file, FaultSpec& spec) {
  const Place place = fault.place("peer");
  const Target peer = parse_target(fault.text("peer"), file, place.line, place.column);
  if (peer.port != 0 || peer.qp.kind != QpSelector::Kind::kBusiest)
    place.fail("'peer' is NODE/NIC, e.g. peer: 'node2/*'");
  spec.target.peer_node = peer.node;
  spec.target.peer_nic = peer.nic;
}

void parse_rates(const Mapping& fault, const std::string& file, FaultSpec& spec) {
  const YAML::Node list = fault.at("rates");
  const std::string example = "rates: [{rate: 1 Gbit/s, for: 2 s}, {rate: 100 Mbit/s, for: 500 ms}]";
  if (!list.IsSequence() || list.size() == 0) fault.place("rates").fail("'rates' is a list, e.g. " + example);
  if (list.size() > FaultSpec::kMaxRates)
    fault.place("rates").fail("'rates' has more than " + std::to_string(FaultSpec::kMaxRates) + " entries");
  for (size_t i = 0; i < list.size(); i++) {
    const Mapping step(list[i], file, "an entry of 'rates'", {"rate", "for"});
    if (!step.has("rate")) Place(file, list[i]).fail("an entry of 'rates' needs 'rate', e.g. " + example);
    RateStep each;
    each.bits_per_s = step.quantity("rate", parse_rate);
    if (step.has("for")) each.lasts = step.span("for");
    if (each.lasts.count() == 0 && i + 1 < list.size())
      Place(file, list[i]).fail("only the last entry of 'rates' may go without 'for': then it stays");
    spec.rates.push_back(each);
  }
}

double parse_share(const Mapping& fault, const char* key) {
  const std::string text = fault.text(key);
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  const std::string rest(end, text.data() + text.size());
  if (error != std::errc{} || (rest != "%" && rest != " %") || !(percent > 0) || percent > 100)
    fault.place(key).fail("'" + text + "' is not a percentage; write for example " + key + ": 30 %");
  return percent / 100;
}

void parse_rate_of(const Mapping& fault, FaultSpec& spec) {
  if (fault.has("rates")) fault.place("rates").fail("the rate is given twice, in 'rate' and in 'rates'");
  spec.rate_bits_per_s = fault.quantity("rate", parse_rate);
  if (spec.rate_bits_per_s == 0) fault.place("rate").fail("an unlimited rate changes nothing");
}

void parse_schedule(const Mapping& fault, const std::string& file, FaultSpec& spec) {
  parse_rates(fault, file, spec);
  spec.rate_bits_per_s = spec.rates.front().bits_per_s;
  for (const RateStep& step : spec.rates)  // what `explain` and a verdict reckon with: the least
    if (step.bits_per_s != 0 && (spec.rate_bits_per_s == 0 || step.bits_per_s < spec.rate_bits_per_s))
      spec.rate_bits_per_s = step.bits_per_s;
  if (spec.rate_bits_per_s == 0) fault.place("rates").fail("an unlimited rate changes nothing");
}

void parse_count(const Mapping& fault, FaultSpec& spec) {
  const bool all = fault.text("count") == "all";
  if (!all && fault.text("count").find_first_not_of("0123456789") != std::string::npos)
    fault.place("count").fail("'count: " + fault.text("count") + "' must be a number or all");
  spec.count = all ? FaultSpec::kAll : fault.number("count", 1);
}

void parse_event(const Mapping& fault, FaultSpec& spec) {
  spec.event = fault.named("event", "event", event_number, event_names());
  if (event_name(spec.event) == "WQ_FATAL")
    fault.place("event").fail("WQ_FATAL concerns a work queue (ibv_create_wq), and those are out of reach");
}

void parse_status(const Mapping& fault, FaultSpec& spec) {
  spec.status = fault.named("status", "status", status_number, status_names());
  if (spec.status == 0) fault.place("status").fail("SUCCESS is no error");
}

void parse_bridge(const Mapping& fault, FaultSpec& spec) {
  spec.real.bridge = fault.text("bridge");
  if (spec.real.bridge.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != std::string::npos)
    fault.place("bridge").fail("'" + spec.real.bridge + "' is no name of a bridge");
}

// A parameter that several kinds have, or whose value is no number.
struct Shared {
  const char* key;
  void (*parse)(const Mapping& fault, const std::string& file, FaultSpec& spec);
};
using File = const std::string&;
constexpr Shared kShared[] = {
    {"qp", [](const Mapping& m, File, FaultSpec& s) { s.target.qp = parse_selector(m); }},
    {"peer", parse_peer},
    {"opcode", parse_opcodes},
    {"events", [](const Mapping& m, File, FaultSpec& s) { s.events = m.boolean("events"); }},
    {"query", [](const Mapping& m, File, FaultSpec& s) { s.query = m.boolean("query"); }},
    {"queue",
     [](const Mapping& m, File, FaultSpec& s) {
       s.receive = m.choice("queue", {"send", "recv"}) == 1;
     }},
    {"errno", [](const Mapping& m, File,
                 FaultSpec& s) { s.error = m.named("errno", "error", errno_number, errno_names()); }},
    {"count", [](const Mapping& m, File, FaultSpec& s) { parse_count(m, s); }},
    {"rate", [](const Mapping& m, File, FaultSpec& s) { parse_rate_of(m, s); }},
    {"rates", parse_schedule},
    {"delay", [](const Mapping& m, File, FaultSpec& s) { s.delay = m.span("delay"); }},
    {"status", [](const Mapping& m, File, FaultSpec& s) { parse_status(m, s); }},
    {"event", [](const Mapping& m, File, FaultSpec& s) { parse_event(m, s); }},
    {"loss", [](const Mapping& m, File, FaultSpec& s) { s.real.loss = parse_share(m, "loss"); }},
    {"bridge", [](const Mapping& m, File, FaultSpec& s) { parse_bridge(m, s); }},
    {"via", [](const Mapping& m, File, FaultSpec& s) { s.real.via = m.text("via"); }},
    {"cut", [](const Mapping& m, File, FaultSpec& s) { s.real.cut = m.text("cut"); }},
    {"mend", [](const Mapping& m, File, FaultSpec& s) { s.real.mend = m.text("mend"); }},
    {"check", [](const Mapping& m, File, FaultSpec& s) { s.real.check = m.text("check"); }},
};

uint64_t parse_own(const Mapping& fault, const Parameter& parameter) {
  const char* key = parameter.key;
  switch (parameter.type) {
    case Parameter::Type::kTime: {
      const auto time = uint64_t(fault.span(key).count());
      if (time < parameter.least)
        fault.place(key).fail(
            std::string("'") + key + "' must be " +
            (parameter.least == 1 ? "longer than 0"
                                  : format_duration(std::chrono::nanoseconds(parameter.least)) + " or more"));
      return time;
    }
    case Parameter::Type::kNumber:
      return fault.number(key, parameter.least);
    case Parameter::Type::kBytes:
      return fault.quantity(key, parse_bytes);
    case Parameter::Type::kChoice:
      return fault.choice(key, {parameter.words.begin(), parameter.words.end()});
  }
  return 0;
}

std::string as_written(const Mapping& fault) {
  std::string text;
  for (const std::string& key : parameter_keys()) {
    if (!fault.has(key.c_str())) continue;
    const YAML::Node value = fault.at(key.c_str());
    YAML::Emitter flow;
    flow << YAML::Flow << value;
    text += (text.empty() ? "" : ", ") + key + ": " + (value.IsScalar() ? value.Scalar() : flow.c_str());
  }
  return text;
}

// "'cut'", "'rate' or 'rates'", "'loss', 'rate' or 'delay'"
std::string in_words(const std::vector<const char*>& keys) {
  std::string text;
  for (size_t i = 0; i < keys.size(); i++)
    text += std::string(i == 0 ? "" : i + 1 < keys.size() ? ", " : " or ") + "'" + keys[i] + "'";
  return text;
}

void check_needs(const Mapping& fault, const FaultKind& kind) {
  for (const Need& need : kind.needs)
    if (std::none_of(need.keys.begin(), need.keys.end(), [&](const char* key) { return fault.has(key); }))
      fault.place("kind").fail(std::string(kind.name) + " needs " + in_words(need.keys) + ", e.g. " +
                               need.example);
}

void check_keys(const Mapping& fault, const FaultKind& kind) {
  for (const std::string& key : parameter_keys()) {
    if (!fault.has(key.c_str()) || kind.takes_parameter(key)) continue;
    std::vector<std::string> owners;
    for (const FaultKind& owner : fault_kinds())
      if (owner.takes_parameter(key)) owners.emplace_back(owner.name);
    fault.place(key.c_str())
        .fail("'" + key + "' has no meaning for " + kind.name + " (it belongs to " + joined(owners) + ")");
  }
}

void check_target(const Mapping& fault, const FaultKind& kind, const Target& target) {
  const Place place = fault.place("target");
  const bool names_qp = target.text.find("/qp:") != std::string::npos;
  if (names_qp && !kind.takes_parameter("qp"))
    place.fail(std::string("'") + kind.name + "' strikes a whole port; its target names no queue pair");
  if (names_qp && fault.has("qp"))
    fault.place("qp").fail("the queue pair is named twice, in 'target' and in 'qp'");
  if (target.port != 0 && kind.whole_device)
    place.fail(std::string("'") + kind.name + "' strikes a whole device; its target names no port");
}

}  // namespace

const std::vector<std::string>& parameter_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all;
    for (const Shared& shared : kShared) all.emplace_back(shared.key);
    for (const FaultKind& kind : fault_kinds())
      for (const Parameter& own : kind.own)
        if (std::find(all.begin(), all.end(), own.key) == all.end()) all.emplace_back(own.key);
    return all;
  }();
  return keys;
}

void parse_parameters(const Mapping& fault, const std::string& file, FaultSpec& spec) {
  const FaultKind& kind = *spec.kind;
  check_keys(fault, kind);
  check_target(fault, kind, spec.target);
  check_needs(fault, kind);
  for (const Shared& shared : kShared)
    if (fault.has(shared.key)) shared.parse(fault, file, spec);
  for (size_t i = 0; i < kind.own.size(); i++)
    if (fault.has(kind.own[i].key)) spec.own.at(i) = parse_own(fault, kind.own[i]);
  spec.written = as_written(fault);
  if (spec.receive && spec.opcodes != 0 && !kind.opcode_chooses)
    fault.place("opcode").fail("a receive has no opcode; leave it out with 'queue: recv'");
  if (kind.check == nullptr) return;
  if (const Complaint complaint = kind.check(spec); complaint.key != nullptr)
    fault.place(complaint.key).fail(complaint.message);
}

}  // namespace faultinject
