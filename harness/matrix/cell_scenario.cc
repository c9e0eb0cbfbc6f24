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

std::string fault(const std::string& name, const std::string& when, const std::string& target,
                  const std::string& what) {
  return "  - {name: " + name + ", " + when + ", target: " + target + ", " + what + "}\n";
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

int messages_per_operation(Operation op) {
  // Two ranks: a ring's AllReduce is two steps of two slices; the others are one chunk.
  return op == Operation::kAllReduce ? 4 : 1;
}

int operations_of(Moment moment, Operation op) {
  const int messages = moment == Moment::kFailback ? kMessagesOfFailback : kMessages;
  return messages / messages_per_operation(op);
}

int message_of(Moment moment, Operation op) {
  switch (moment) {
    case Moment::kFirstMessage:
      return 1;
    case Moment::kMidMessage:
    case Moment::kReplay:
    case Moment::kFailback:
      return kMidMessage;
    case Moment::kLastSegment:
      return operations_of(moment, op) * messages_per_operation(op);
    case Moment::kConnect:
    case Moment::kClose:
      return 0;
  }
  return 0;
}

std::string scenario_text(const Cell& cell, uint64_t seed, const std::string& mode) {
  // Bytes of an operation such that each message is kMessageKiB.
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
      " KiB, iters: " + std::to_string(operations_of(cell.moment, cell.op)) +
      ", warmup: 0, channels: 1, verify: true}\nmodes: [" + mode +
      "]\n"
      "env: {NCCL_IB_TIMEOUT: 14, R2CC_FAILBACK_MS: 5, R2CC_FAILBACK_MAX_MS: 50, R2CC_COLLNET_MARGIN: 100, R2CC_CONNECT_MS: 20000, "
      "NCCL_P2P_NET_CHUNKSIZE: " +
      std::to_string(kMessageKiB * 1024) + "}\ntimeouts: {setup: 40 s, stall: 30 s, job: 120 s}\nfaults:\n";
  if (const int message = message_of(cell.moment, cell.op); message > 0)
    text += fault(kClockFault, "at: {wr: " + std::to_string(message) + "}", "node0/nic0",
                  "kind: noop, opcode: write_imm");
  const bool provoked = cell.moment == Moment::kReplay || cell.moment == Moment::kFailback;
  if (provoked)
    text += fault(kProvokerFault,
                  "after: {fault: clock, until: effect, wait: " + std::string(kHalfAMessage) + "}",
                  "node0/nic0", "kind: qp_error, qp: all");
  // A replay goes over the other NIC; everything else happens on the first. A path that is opened meanwhile,
  // which is when something is registered or connected, may be on either.
  const std::string nic = cell.moment != Moment::kReplay ? "/nic0"
                          : cell.fault->at_registration  ? "/nic*"
                                                         : "/nic1";
  for (const int node : {0, 1}) {
    if (cell.side == Side::kSender && node != 0) continue;
    if (cell.side == Side::kReceiver && node != 1) continue;
    const std::string where = "node" + std::to_string(node);
    text += fault(std::string(kCellFault) + "-" + where, trigger(cell.moment), where + nic,
                  cell.fault->parameters);
  }
  return text;
}

}  // namespace r2bench::matrix
