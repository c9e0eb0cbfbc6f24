// SPDX-License-Identifier: Apache-2.0
#include "harness/matrix/cell_scenario.h"

namespace r2bench::matrix {
namespace {

// A message takes 10.5 ms on its NIC: long enough to be struck in its middle by a process that is woken late.
constexpr int kMessageKiB = 256;
constexpr const char* kRate = "200 Mbit/s";
constexpr const char* kHalfAMessage = "4 ms";
constexpr int kMidMessage = 3;
constexpr int kMessages = 8;
// The home rail is tried again 100 ms after it failed: by then the job must still run, and some time after.
constexpr int kMessagesOfFailback = 44;

// On the host engine an AllReduce of 1 MiB leaves node 0 in 16 messages of 64 KiB, which take turns on its
// two NICs. The group has said 5 small messages on the first of them by then: a greeting for each of its four
// slots, and how fast node 0 adds.
constexpr int kSetUpMessagesOnEngine = 5;
constexpr int kMessagesOnEngine = 8;
constexpr int kOperationsOnEngine = 3;
constexpr int kOperationsOfFailbackOnEngine = 20;

std::string fault(const std::string& name, const std::string& when, const std::string& target,
                  const std::string& what) {
  return "  - {name: " + name + ", " + when + ", target: " + target + ", " + what + "}\n";
}

/// Makes a fault that strikes the busiest queue pair strike the one that carries the message: node 0 sends it
/// by writes with immediate, and node 1 permits it by CTS entries, which are plain writes. Without this,
/// standby paths would count, too: they are proved by reads of 4 KiB. While paths are opened there is nothing
/// else.
std::string aim(const Cell& cell, int node) {
  if (cell.moment == Moment::kConnect || cell.fault->parameters.find("qp: busiest") == std::string::npos)
    return "";
  return node == 0 ? ", opcode: write_imm" : ", opcode: write";
}

/// `on` or `after` of the cell's own fault.
std::string trigger(Moment moment) {
  switch (moment) {
    case Moment::kConnect:
      return "on: {event: path_opening, value: 1}";
    case Moment::kMidMessage:
      return "after: {fault: clock, until: effect, wait: " + std::string(kHalfAMessage) + "}";
    case Moment::kFirstMessage:
    case Moment::kLastSegment:
      return "after: {fault: clock, until: effect}";
    case Moment::kReplay:
      return "on: replayed";
    case Moment::kFailback:
      return "on: {event: fence_started, value: 0}";  // detected by nobody: it is planned
    case Moment::kClose:
      return "on: channel_closing";
  }
  return "";
}

}  // namespace

bool on_engine(Operation op, const std::string& mode) {
  return mode == "allreduce" && op == Operation::kAllReduce;
}

int messages_per_operation(Operation op, bool on_engine) {
  if (on_engine) return kMessagesOnEngine;
  // Two ranks: a ring's AllReduce is two steps of two slices; the others are one chunk.
  return op == Operation::kAllReduce ? 4 : 1;
}

int operations_of(Moment moment, Operation op, bool on_engine) {
  const bool failback = moment == Moment::kFailback;
  if (on_engine) return failback ? kOperationsOfFailbackOnEngine : kOperationsOnEngine;
  return (failback ? kMessagesOfFailback : kMessages) / messages_per_operation(op, false);
}

int message_of(Moment moment, Operation op, bool on_engine) {
  const int before = on_engine ? kSetUpMessagesOnEngine : 0;
  switch (moment) {
    case Moment::kFirstMessage:
      return before + 1;
    case Moment::kMidMessage:
    case Moment::kReplay:
    case Moment::kFailback:
      return before + kMidMessage;
    case Moment::kLastSegment:
      // The engine's last but two: behind its very last a node posts nothing more that could be struck.
      return before + operations_of(moment, op, on_engine) * messages_per_operation(op, on_engine) -
             (on_engine ? 2 : 0);
    case Moment::kConnect:
    case Moment::kClose:
      return 0;
  }
  return 0;
}

std::string scenario_text(const Cell& cell, uint64_t seed, const std::string& mode) {
  const bool engine = on_engine(cell.op, mode);
  // Bytes of an operation such that each message of a ring is kMessageKiB.
  const int kib = kMessageKiB * (cell.op == Operation::kAllReduce  ? 4
                                 : cell.op == Operation::kAllToAll ? 2
                                                                   : 1);
  std::string text =
      "# One cell of the fault matrix: " + cell.name() +
      "\nversion: 1\nname: cell\nseed: " + std::to_string(seed) +
      "\narm: start\n"
      "fabric: {kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 2, nic_rate: " +
      kRate + "}\nworkload: {engine: cpu, op: " + std::string(r2bench::name(cell.op)) +
      ", dtype: int32, bytes: " + std::to_string(kib) +
      " KiB, iters: " + std::to_string(operations_of(cell.moment, cell.op, engine)) +
      ", warmup: 0, channels: 1, verify: true" + (engine ? ", collnet: force" : "") + "}\nmodes: [" + mode +
      "]\n"
      "env: {NCCL_IB_TIMEOUT: 14, R2CC_FAILBACK_MS: 5, R2CC_FAILBACK_MAX_MS: 50, R2CC_CONNECT_MS: 20000, "
      "R2CC_REMOVAL_MS: 1000, "
      "NCCL_P2P_NET_CHUNKSIZE: " +
      std::to_string(kMessageKiB * 1024) + "}\ntimeouts: {setup: 40 s, stall: 30 s, job: 120 s}\nfaults:\n";
  if (const int message = message_of(cell.moment, cell.op, engine); message > 0)
    text += fault(kClockFault, "at: {wr: " + std::to_string(message) + "}", "node0/nic0",
                  "kind: noop, opcode: write_imm");
  const bool provoked = cell.moment == Moment::kReplay || cell.moment == Moment::kFailback;
  if (provoked)
    text += fault(kProvokerFault,
                  "after: {fault: clock, until: effect, wait: " + std::string(kHalfAMessage) + "}",
                  "node0/nic0", "kind: qp_error, qp: all");
  // A replay goes over the other NIC; everything else happens on the first. A path that is opened meanwhile,
  // which is when something is registered or connected, may be on either.
  const std::string nic = cell.moment != Moment::kReplay                                 ? "/nic0"
                          : cell.fault->declared.strikes == faultinject::Strikes::kSetUp ? "/nic*"
                                                                                         : "/nic1";
  for (const int node : {0, 1}) {
    if (cell.side == Side::kSender && node != 0) continue;
    if (cell.side == Side::kReceiver && node != 1) continue;
    const std::string where = "node" + std::to_string(node);
    text += fault(std::string(kCellFault) + "-" + where, trigger(cell.moment), where + nic,
                  cell.fault->parameters + aim(cell, node));
  }
  return text;
}

}  // namespace r2bench::matrix
