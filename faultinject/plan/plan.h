// SPDX-License-Identifier: Apache-2.0
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

// Which queue pairs of a NIC, for the faults that strike queue pairs.
struct QpSelector {
  enum class Kind : uint32_t {
    kBusiest,  // the one that has posted the most bytes since the fault was armed; with no post yet, the next
               // one that posts
    kAll,
    kRandom,  // one of those with traffic, from the seed
    kIndex,   // the index-th RC or XRC queue pair created on that NIC in that process, from 0
  };
  Kind kind = Kind::kBusiest;
  uint32_t index = 0;  // kIndex only
};

// node and nic are patterns: '*', '?', '[a-b]' with numbers ("node[0-3]", "nic[0-1]") or characters. nicK is
// the K-th device of the node in ibv_get_device_list order.
struct Target {
  std::string node = "*";
  std::string nic = "*";
  uint32_t port = 0;  // 0: all ports of the device
  QpSelector qp;
  std::string peer_node,
      peer_nic;      // only queue pairs connected to these (patterns); empty: whatever the peer
  std::string text;  // as written, without the peer
};

struct Trigger {
  enum class Kind : uint32_t {
    kManual,  // BoardHost::fire() only: a fault without 'at' and 'on'
    kNow,     // as soon as it is armed: 'at: now'
    kTime,    // `after` since the board's start, or since the first send posted by anybody (since_first_op)
    kEvent,   // faultinject_event(event, value); "iteration" N fires on the first value >= N
    kWr,      // at the count-th send WR posted on the target since arming (all its processes together)
    kBytes,   // at the WR that posts the count-th byte on the target since arming
    kProbability,  // at each send WR of the target with `probability`, from the seed
    kAfter,        // `after` later than another fault took effect, was healed, or was triggered
  };
  enum class Until : uint32_t { kEffect, kHealed, kTriggered };
  Kind kind = Kind::kManual;
  std::chrono::nanoseconds after{0};
  bool since_first_op = false;
  std::string event;              // kEvent; 'at: {iter: N}' is event "iteration", value N
  std::optional<uint64_t> value;  // kEvent: only this value ("iteration": this value or more)
  uint64_t count = 0;             // kWr, kBytes
  double probability = 0;         // kProbability, above 0 and up to 1
  std::string fault;              // kAfter: the name of a fault armed before this one, or its id on the board
  Until until = Until::kEffect;   // kAfter
  std::chrono::nanoseconds phase_up_to{0};  // a random delay in [0, phase_up_to], from the seed, is added
};

// One entry of a throttle's schedule. bits_per_s 0: not limited; lasts 0: it stays.
struct RateStep {
  uint64_t bits_per_s = 0;
  std::chrono::nanoseconds lasts{0};
};

// What only the real_* kinds have, as written; text is empty where it was left out.
struct RealChange {
  double loss = 0;          // real_tc: share of packets, 0 to 1
  std::string bridge, via;  // real_ovs_drop: the bridge, and the words in front of ovs-ofctl (ssh to the Arm)
  std::string cut, mend, check;  // real_switch_port: commands; check succeeds while the port is cut
};

struct FaultSpec {
  static constexpr uint64_t kAll = UINT64_MAX;
  static constexpr size_t kMaxRates = 16;

  FaultSpec() : FaultSpec(fault_kind("noop")) {}
  explicit FaultSpec(const FaultKind& of_kind);  // with the usual value of each parameter

  // Of a parameter that its kind has alone; 0 where it has none of that name.
  uint64_t value(std::string_view key) const;
  std::chrono::nanoseconds time(std::string_view key) const {
    return std::chrono::nanoseconds(int64_t(value(key)));
  }
  bool strikes_all_until_healed() const {
    return kind->all_until_healed && target.qp.kind == QpSelector::Kind::kAll;
  }
  // Does it end by itself once it has struck?
  bool ends_by_itself() const {
    return (kind->ends == Ends::kAfterStrikes || kind->ends == Ends::kAfterItsTime) && count != kAll &&
           !strikes_all_until_healed();
  }

  std::string name;                 // the plan's `name`, else "<kind> <target>"
  const FaultKind* kind = nullptr;  // never nullptr
  Target target;
  Trigger trigger;
  std::optional<std::chrono::nanoseconds> duration;  // `for`: heals by itself that long after it took effect
  uint32_t repeat = 1;                               // how often it fires in all
  std::chrono::nanoseconds every{0};  // from one firing to the next; 0: when its trigger is met again

  OwnValues own{};      // of the parameters that its kind has alone, in the order of FaultKind::own
  std::string written;  // all parameters as they stand in the plan: "rate: 100 Mbit/s, peer: 'node0/*'"

  // What several kinds share.
  uint32_t opcodes = 0;  // a bit per ibv_wr_opcode: only these send WRs count and are struck; 0: all
  uint64_t count = 1;    // how often it strikes per firing, over the whole target; kAll: until it is healed
  bool events = true;    // async events are delivered
  bool query = true;     // ibv_query_port says DOWN
  bool receive = false;  // `queue: recv`
  int error = 0;         // errno
  int status = 0;        // ibv_wc_status
  int event = 0;         // ibv_event_type
  std::vector<RateStep> rates;   // a schedule, from the firing on; begins anew after its last step
  uint64_t rate_bits_per_s = 0;  // with a schedule its least; 0: it limits no rate
  std::chrono::nanoseconds delay{0};
  RealChange real;

  std::string file;  // where it was written; empty when made in code
  int line = 0, column = 0;
};

inline FaultSpec::FaultSpec(const FaultKind& of_kind)
    : kind(&of_kind), count(of_kind.count), error(of_kind.error) {
  for (size_t i = 0; i < of_kind.own.size(); i++) own.at(i) = of_kind.own[i].usual;
}

inline uint64_t FaultSpec::value(std::string_view key) const {
  for (size_t i = 0; i < kind->own.size(); i++)
    if (kind->own[i].key == key) return own[i];
  return 0;
}

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
//   at:    now | {time: 200 ms [, since: start|first_op]} | {iter: N} | {wr: N} | {bytes: 10 MiB} |
//   {probability: 0.01} on:    <event name> | {event: name, value: N} after: <fault name> | {fault: name,
//   until: effect|healed|triggered, wait: 50 ms} phase: {up_to: 20 ms}      beside, or inside, at/on/after
//   for: 500 ms    repeat: 5    every: 2 s    name: text
//   qp: all|busiest|random|N (or target …/qp:N)    peer: 'node2/*'    opcode: write | [write, send]
// The parameters of each kind are in its FaultKind.
FaultSpec parse_fault(const YAML::Node& node, const std::string& file);

// A sequence of such mappings. A null or absent node is an empty plan. 'after' names a fault that stands
// before it in the sequence; a number is the id of one that is on the board already.
std::vector<FaultSpec> parse_faults(const YAML::Node& node, const std::string& file);

// "node1/nic0", "*/nic[0-1]/qp:3", "node1/nic0/port:2". Throws PlanError (with the place given).
Target parse_target(std::string_view text, const std::string& file = {}, int line = 0, int column = 0);

// Does `pattern` match the whole of `text`? ('*', '?', '[0-3]' with numbers or characters)
bool pattern_matches(std::string_view pattern, std::string_view text);

// Does the target contain this NIC, and this queue pair where it names one by index?
bool matches(const Target& target, std::string_view node, uint32_t nic,
             std::optional<uint32_t> qp_index = {});

struct NodeShape {
  std::string name;
  uint32_t nics = 0;
  uint32_t ports = 0;  // of each NIC; 0: unknown
};

// Throws PlanError unless at least one NIC of `nodes` is in the target, and one in `peer` where there is one;
// and for a port that no such NIC has. The message lists what there is.
void check_targets(const FaultSpec& spec, const std::vector<NodeShape>& nodes);

// The word of `known` nearest to `word` by edit distance, if any is near enough to be meant; for messages.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace faultinject
