// The fault plan: what to break, where, and when, as written in YAML. Pure: it knows no verbs, no clock and
// no process; control/board_host.h compiles a FaultSpec onto the fault board.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "faultinject/plan/kind.h"

namespace YAML {
class Node;
}

namespace faultinject {

const char* to_string(FaultKind kind);                               // "port_down"
std::optional<FaultKind> fault_kind(std::string_view name);          // inverse
const std::vector<std::string>& fault_kind_names();                  // in the order of the enum

// Which queue pairs of a NIC, for the faults that strike queue pairs (qp_error, ack_lost, noop).
struct QpSelector {
  enum class Kind : uint32_t {
    kBusiest,  // the one that has posted the most bytes since the fault was armed; with no post yet, the next one that posts
    kAll,
    kRandom,  // one of those with traffic, from the seed
    kIndex,   // the index-th RC queue pair created on that NIC in that process, from 0
  };
  Kind kind = Kind::kBusiest;
  uint32_t index = 0;  // kIndex only
};

// node and nic are patterns: '*', '?', '[a-b]' with numbers ("node[0-3]", "nic[0-1]") or characters. nicK is
// the K-th device of the node in ibv_get_device_list order.
struct Target {
  std::string node = "*";
  std::string nic = "*";
  QpSelector qp;
  std::string text;  // as written
};

struct Trigger {
  enum class Kind : uint32_t {
    kManual,  // BoardHost::fire() only: a fault without 'at' and 'on'
    kNow,     // as soon as it is armed: 'at: now'
    kTime,    // `after` since the board's start, or since the first send posted by anybody (since_first_op)
    kEvent,   // faultinject_event(event, value); "iteration" N fires on the first value >= N
    kWr,      // at the count-th send WR posted on the target since arming (all its processes together)
    kBytes,   // at the WR that posts the count-th byte on the target since arming
  };
  Kind kind = Kind::kManual;
  std::chrono::nanoseconds after{0};
  bool since_first_op = false;
  std::string event;               // kEvent; 'at: {iter: N}' is event "iteration", value N
  std::optional<uint64_t> value;   // kEvent: only this value ("iteration": this value or more)
  uint64_t count = 0;              // kWr, kBytes
  std::chrono::nanoseconds phase_up_to{0};  // a random delay in [0, phase_up_to], from the seed, is added
};

struct FaultSpec {
  std::string name;  // the plan's `name`, else "<kind> <target>"
  FaultKind kind = FaultKind::kNoop;
  Target target;
  Trigger trigger;
  std::optional<std::chrono::nanoseconds> duration;  // `for`: heals by itself that long after it took effect

  bool events = true;  // port_down: PORT_ERR and PORT_ACTIVE are delivered
  bool query = true;   // port_down: ibv_query_port says DOWN
  uint64_t rate_bits_per_s = 0;                // throttle
  std::chrono::nanoseconds delay{0}, jitter{0};  // delay
  uint64_t min_bytes = 1024;                   // ack_lost: only work that carries at least so much
  bool after_retries = false;  // ack_lost: shown after the retry time (`report: after_retries`), not at once

  std::string file;  // where it was written; empty when made in code
  int line = 0, column = 0;
};

// A plan that cannot be carried out. what() is "file:line:column: message", with a suggestion where one is
// near. line and column count from 1; 0 where there is no place in a file.
class PlanError : public std::runtime_error {
 public:
  PlanError(std::string file, int line, int column, std::string message);
  const std::string& file() const { return file_; }
  int line() const { return line_; }
  int column() const { return column_; }
  const std::string& message() const { return message_; }

 private:
  std::string file_, message_;
  int line_, column_;
};

// One fault from a YAML mapping, e.g. {at: {iter: 60}, target: node1/nic0, kind: port_down}; `file` is for
// messages only. Throws PlanError for unknown keys, kinds, units, and parameters that the kind does not have.
//   at:    now | {time: 200 ms [, since: start|first_op]} | {iter: N} | {wr: N} | {bytes: 10 MiB}
//   on:    <event name> | {event: name, value: N}
//   phase: {up_to: 20 ms}      beside, or inside, at/on
//   for: 500 ms    name: text    qp: all|busiest|random|N (or target …/qp:N)
//   events, query (port_down)   rate (throttle)   delay, jitter (delay)   min_bytes, report (ack_lost)
FaultSpec parse_fault(const YAML::Node& node, const std::string& file);

// A sequence of such mappings. A null or absent node is an empty plan.
std::vector<FaultSpec> parse_faults(const YAML::Node& node, const std::string& file);

// "node1/nic0", "*/nic[0-1]/qp:3". Throws PlanError (with the place given).
Target parse_target(std::string_view text, const std::string& file = {}, int line = 0, int column = 0);

// Does `pattern` match the whole of `text`? ('*', '?', '[0-3]' with numbers or characters)
bool pattern_matches(std::string_view pattern, std::string_view text);

// Does the target contain this NIC, and this queue pair where it names one by index?
bool matches(const Target& target, std::string_view node, uint32_t nic, std::optional<uint32_t> qp_index = {});

struct NodeShape {
  std::string name;
  uint32_t nics = 0;
};

// Throws PlanError unless at least one NIC of `nodes` is in the target; the message lists what there is.
void check_targets(const FaultSpec& spec, const std::vector<NodeShape>& nodes);

// The word of `known` nearest to `word` by edit distance, if any is near enough to be meant; for messages.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace faultinject
