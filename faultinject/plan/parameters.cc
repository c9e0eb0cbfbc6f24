// What only some kinds of fault have.
#include <cerrno>
#include <charconv>

#include "faultinject/plan/mapping.h"
#include "faultinject/plan/names.h"

namespace faultinject {
namespace {

using Kind = FaultKind;

struct Parameter {
  const char* key;
  std::vector<Kind> kinds;
};

const std::vector<Parameter>& parameters() {
  static const std::vector<Parameter> all = {
      {"events",
       {Kind::kPortDown, Kind::kPortFlap, Kind::kDeviceFatal, Kind::kGidChange, Kind::kDeviceRemoved,
        Kind::kDeviceInternalError}},
      {"query", {Kind::kPortDown, Kind::kPortFlap, Kind::kDeviceFatal}},
      {"rate", {Kind::kThrottle, Kind::kRealTc}},
      {"rates", {Kind::kThrottle}},
      {"delay", {Kind::kDelay, Kind::kRealTc}},
      {"loss", {Kind::kRealTc}},
      {"bridge", {Kind::kRealOvsDrop}},
      {"via", {Kind::kRealOvsDrop}},
      {"cut", {Kind::kRealSwitchPort}},
      {"mend", {Kind::kRealSwitchPort}},
      {"check", {Kind::kRealSwitchPort}},
      {"jitter", {Kind::kDelay}},
      {"min_bytes", {Kind::kAckLost}},
      {"report", {Kind::kAckLost}},
      {"side", {Kind::kQpError}},
      {"direction", {Kind::kBlackhole}},
      {"down", {Kind::kPortFlap}},
      {"up", {Kind::kPortFlap}},
      {"window", {Kind::kReorder, Kind::kDeviceRemoved, Kind::kDeviceInternalError}},
      {"notice", {Kind::kDeviceRemoved}},
      {"settle", {Kind::kDeviceRemoved}},
      {"end", {Kind::kDeviceRemoved}},
      {"completions", {Kind::kDeviceRemoved, Kind::kDeviceInternalError}},
      {"depth", {Kind::kReorder}},
      {"status", {Kind::kCompletionError}},
      {"queue", {Kind::kDropCompletion, Kind::kCompletionError, Kind::kPostFail, Kind::kCqError}},
      {"errno", {Kind::kPostFail, Kind::kPollFail, Kind::kRegFail, Kind::kConnectFail}},
      {"count",
       {Kind::kPortFlap, Kind::kDropCompletion, Kind::kCompletionError, Kind::kPostFail, Kind::kPollFail,
        Kind::kRegFail, Kind::kConnectFail}},
      {"state", {Kind::kConnectFail}},
      {"gid_index", {Kind::kGidChange}},
      {"event", {Kind::kAsyncEvent}},
      {"qp",
       {Kind::kNoop, Kind::kQpError, Kind::kAckLost, Kind::kCqError, Kind::kDropCompletion,
        Kind::kCompletionError, Kind::kPostFail, Kind::kConnectFail, Kind::kAsyncEvent}},
      {"peer",
       {Kind::kNoop, Kind::kQpError, Kind::kAckLost, Kind::kBlackhole, Kind::kThrottle, Kind::kDelay,
        Kind::kReorder, Kind::kCqError, Kind::kDropCompletion, Kind::kCompletionError, Kind::kPostFail,
        Kind::kConnectFail, Kind::kAsyncEvent}},
      {"opcode",
       {Kind::kNoop, Kind::kQpError, Kind::kAckLost, Kind::kDelay, Kind::kDropCompletion,
        Kind::kCompletionError, Kind::kPostFail}},
  };
  return all;
}

// Kinds that strike a device, not a port of it.
bool strikes_device(Kind kind) {
  return kind == Kind::kDeviceFatal || kind == Kind::kFreeze || kind == Kind::kRegFail ||
         kind == Kind::kPollFail || kind == Kind::kCqError || kind == Kind::kDeviceRemoved ||
         kind == Kind::kDeviceInternalError || is_real(kind);
}

bool takes(Kind kind, const char* key) {
  for (const Parameter& parameter : parameters())
    if (std::string(parameter.key) == key)
      return std::find(parameter.kinds.begin(), parameter.kinds.end(), kind) != parameter.kinds.end();
  return false;
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

void parse_throttle(const Mapping& fault, const std::string& file, FaultSpec& spec) {
  if (fault.has("rates")) {
    if (fault.has("rate")) fault.place("rates").fail("the rate is told twice, in 'rate' and in 'rates'");
    parse_rates(fault, file, spec);
    spec.rate_bits_per_s = spec.rates.front().bits_per_s;
    for (const RateStep& step : spec.rates)  // what `explain` and a verdict reckon with: the least
      if (step.bits_per_s != 0 && (spec.rate_bits_per_s == 0 || step.bits_per_s < spec.rate_bits_per_s))
        spec.rate_bits_per_s = step.bits_per_s;
    if (spec.rate_bits_per_s == 0) fault.place("rates").fail("an unlimited rate throttles nothing");
    return;
  }
  if (!fault.has("rate")) fault.place("kind").fail("throttle needs 'rate', e.g. rate: 100 Mbit/s");
  spec.rate_bits_per_s = fault.quantity("rate", parse_rate);
  if (spec.rate_bits_per_s == 0) fault.place("rate").fail("an unlimited rate throttles nothing");
}

void parse_removal(const Mapping& fault, FaultSpec& spec) {
  spec.window = fault.has("window") ? fault.span("window") : std::chrono::milliseconds(20);
  if (fault.has("notice")) {
    spec.removal.notice = fault.span("notice");
    if (!spec.events)
      fault.place("notice").fail("'notice' is the time from DEVICE_FATAL on, and 'events: false' has none");
  }
  if (fault.has("settle")) spec.removal.settle = fault.span("settle");
  if (fault.has("end")) spec.removal.end = DescriptorEnd(fault.choice("end", {"pollerr", "fatal"}));
  if (spec.removal.end == DescriptorEnd::kFatal && !spec.events)
    fault.place("end").fail("'end: fatal' is an event, and 'events: false' has none");
  if (fault.has("completions"))
    spec.removal.late_completions = fault.choice("completions", {"none", "window"}) == 1;
}

double parse_share(const Mapping& fault, const char* key) {
  const std::string text = fault.text(key);
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  const std::string rest(end, text.data() + text.size());
  if (error != std::errc{} || (rest != "%" && rest != " %") || !(percent > 0) || percent > 100)
    fault.place(key).fail("'" + text + "' is no share; write for example " + key + ": 30 %");
  return percent / 100;
}

void parse_real(const Mapping& fault, FaultSpec& spec) {
  const auto wanted = [&](const char* key, const char* example) {
    if (!fault.has(key))
      fault.place("kind").fail(std::string(to_string(spec.kind)) + " needs '" + key + "', e.g. " + key +
                               ": " + example);
    return fault.text(key);
  };
  RealChange& real = spec.real;
  if (spec.kind == Kind::kRealTc) {
    if (!fault.has("loss") && !fault.has("rate") && !fault.has("delay"))
      fault.place("kind").fail("real_tc needs 'loss', 'rate' or 'delay', e.g. loss: 30 %");
    if (fault.has("loss")) real.loss = parse_share(fault, "loss");
    if (fault.has("rate")) spec.rate_bits_per_s = fault.quantity("rate", parse_rate);
    if (fault.has("rate") && spec.rate_bits_per_s == 0)
      fault.place("rate").fail("an unlimited rate changes nothing");
    if (fault.has("delay")) spec.delay = fault.span("delay");
  } else if (spec.kind == Kind::kRealOvsDrop) {
    real.bridge = wanted("bridge", "ovsbr1");
    if (real.bridge.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
        std::string::npos)
      fault.place("bridge").fail("'" + real.bridge + "' is no name of a bridge");
    if (fault.has("via")) real.via = fault.text("via");
  } else if (spec.kind == Kind::kRealSwitchPort) {
    real.cut = wanted("cut", "ssh switch port-off 7");
    real.mend = wanted("mend", "ssh switch port-on 7");
    if (fault.has("check")) real.check = fault.text("check");
  }
}

int default_error(Kind kind) {
  switch (kind) {
    case Kind::kPollFail:
      return EIO;
    case Kind::kConnectFail:
      return ETIMEDOUT;
    default:
      return ENOMEM;
  }
}

}  // namespace

const std::vector<std::string>& parameter_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all;
    for (const Parameter& parameter : parameters()) all.emplace_back(parameter.key);
    return all;
  }();
  return keys;
}

void parse_parameters(const Mapping& fault, const std::string& file, FaultSpec& spec) {
  const std::string kind = to_string(spec.kind);
  for (const Parameter& parameter : parameters()) {
    if (!fault.has(parameter.key) || takes(spec.kind, parameter.key)) continue;
    std::vector<std::string> owners;
    for (const Kind owner : parameter.kinds) owners.push_back(to_string(owner));
    fault.place(parameter.key)
        .fail("'" + std::string(parameter.key) + "' has no meaning for " + kind + " (it belongs to " +
              joined(owners) + ")");
  }
  const Place target = fault.place("target");
  const bool names_qp = spec.target.text.find("/qp:") != std::string::npos;
  if (names_qp && !takes(spec.kind, "qp"))
    target.fail("'" + kind + "' strikes a whole port; its target names no queue pair");
  if (names_qp && fault.has("qp"))
    fault.place("qp").fail("the queue pair is named twice, in 'target' and in 'qp'");
  if (spec.target.port != 0 && strikes_device(spec.kind))
    target.fail("'" + kind + "' strikes a whole device; its target names no port");

  if (fault.has("qp")) spec.target.qp = parse_selector(fault);
  if (fault.has("peer")) parse_peer(fault, file, spec);
  if (fault.has("opcode")) parse_opcodes(fault, file, spec);
  if (fault.has("events")) spec.events = fault.boolean("events");
  if (fault.has("query")) spec.query = fault.boolean("query");
  if (fault.has("min_bytes")) spec.min_bytes = fault.quantity("min_bytes", parse_bytes);
  if (fault.has("report")) spec.after_retries = fault.choice("report", {"at_once", "after_retries"}) == 1;
  if (fault.has("side")) spec.side = Side(fault.choice("side", {"local", "remote", "both"}));
  if (fault.has("direction")) spec.direction = Direction(fault.choice("direction", {"in", "out", "both"}));
  if (fault.has("queue")) spec.receive = fault.choice("queue", {"send", "recv"}) == 1;
  if (spec.receive && spec.opcodes != 0)
    fault.place("opcode").fail("a receive has no opcode; leave it out with 'queue: recv'");
  if (fault.has("state")) spec.state = FaultSpec::Refused(fault.choice("state", {"any", "rtr", "rts"}));
  spec.error = fault.has("errno") ? fault.named("errno", "error", errno_number, errno_names())
                                  : default_error(spec.kind);
  if (spec.kind == Kind::kPortFlap) spec.count = 3;
  if (fault.has("count")) {
    const bool all = fault.text("count") == "all";
    if (!all && fault.text("count").find_first_not_of("0123456789") != std::string::npos)
      fault.place("count").fail("'count: " + fault.text("count") + "' must be a number or all");
    spec.count = all ? FaultSpec::kAll : fault.number("count", 1);
  }
  if (fault.has("gid_index")) spec.gid_index = int(fault.number("gid_index", 0));

  switch (spec.kind) {
    case Kind::kThrottle:
      parse_throttle(fault, file, spec);
      break;
    case Kind::kDelay:
      if (!fault.has("delay")) fault.place("kind").fail("delay needs 'delay', e.g. delay: 1 ms");
      spec.delay = fault.span("delay");
      if (fault.has("jitter")) spec.jitter = fault.span("jitter");
      if (spec.jitter > spec.delay) fault.place("jitter").fail("'jitter' must not be larger than 'delay'");
      break;
    case Kind::kPortFlap:
      if (fault.has("down")) spec.down = fault.span("down");
      if (fault.has("up")) spec.up = fault.span("up");
      if (spec.down.count() == 0 || spec.up.count() == 0)
        fault.place("kind").fail("'down' and 'up' must be longer than 0");
      break;
    case Kind::kReorder:
      if (fault.has("window")) spec.window = fault.span("window");
      if (fault.has("depth")) spec.depth = fault.number("depth", 2);
      if (spec.window.count() == 0) fault.place("window").fail("'window' must be longer than 0");
      break;
    case Kind::kDeviceRemoved:
    case Kind::kDeviceInternalError:
      parse_removal(fault, spec);
      break;
    case Kind::kRealTc:
    case Kind::kRealOvsDrop:
    case Kind::kRealSwitchPort:
      parse_real(fault, spec);
      break;
    case Kind::kCompletionError:
      if (!fault.has("status"))
        fault.place("kind").fail("completion_error needs 'status', e.g. status: REM_ACCESS_ERR");
      spec.status = fault.named("status", "status", status_number, status_names());
      if (spec.status == 0) fault.place("status").fail("SUCCESS is no error");
      break;
    case Kind::kAsyncEvent:
      if (!fault.has("event")) fault.place("kind").fail("async_event needs 'event', e.g. event: PORT_ERR");
      spec.event = fault.named("event", "event", event_number, event_names());
      if (event_name(spec.event) == "WQ_FATAL")
        fault.place("event").fail(
            "WQ_FATAL concerns a work queue (ibv_create_wq), and those are out of reach");
      break;
    default:
      break;
  }
}

}  // namespace faultinject
