#include "harness/matrix/cell.h"

#include <algorithm>
#include <sstream>

#include "faultinject/plan/plan.h"
#include "harness/run/runner.h"

namespace r2bench::matrix {
namespace {

using Effect = FaultRow::Effect;

std::vector<std::string> parts(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, '/');) out.push_back(part);
  return out;
}

bool matches(const std::string& pattern, const Cell& cell) {
  const auto wanted = parts(pattern), is = parts(cell.name());
  if (wanted.size() > is.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!faultinject::pattern_matches(wanted[i], is[i])) return false;
  return true;
}

}  // namespace

const char* name(Moment moment) {
  // clang-format off
  switch (moment) {
    case Moment::kConnect: return "connect";
    case Moment::kFirstMessage: return "first_message";
    case Moment::kMidMessage: return "mid_message";
    case Moment::kLastSegment: return "last_segment";
    case Moment::kReplay: return "replay";
    case Moment::kFailback: return "failback";
    case Moment::kClose: return "close";
  }
  // clang-format on
  return "unknown";
}

const char* name(Side side) {
  // clang-format off
  switch (side) {
    case Side::kSender: return "sender";
    case Side::kReceiver: return "receiver";
    case Side::kBoth: return "both";
  }
  // clang-format on
  return "unknown";
}

const char* column_name(Operation op) {
  switch (op) {
    case Operation::kAllReduce:
      return "AllReduce";
    case Operation::kSendRecv:
      return "SendRecv";
    case Operation::kAllToAll:
      return "AlltoAll";
    default:
      return r2bench::name(op);
  }
}

std::string Cell::name() const {
  return fault->name + "/" + matrix::name(moment) + "/" + column_name(op) + "/" + matrix::name(side);
}

const std::vector<FaultRow>& fault_rows() {
  static const std::vector<FaultRow> rows = {
      {"noop", "kind: noop", Effect::kHarmless, 2},
      {"qp_error", "kind: qp_error, qp: all", Effect::kBreaks},
      {"port_down", "kind: port_down", Effect::kBreaks},
      {"port_down_silent", "kind: port_down, events: false, query: false", Effect::kBreaks},
      {"port_flap", "kind: port_flap, down: 10 ms, up: 20 ms, count: 3", Effect::kMayBreak},
      {"blackhole", "kind: blackhole", Effect::kBreaks},
      {"blackhole_in", "kind: blackhole, direction: in", Effect::kMayBreak},
      {"blackhole_out", "kind: blackhole, direction: out", Effect::kMayBreak},
      {"ack_lost", "kind: ack_lost", Effect::kBreaks, 2},
      {"throttle", "kind: throttle, rate: 100 Mbit/s", Effect::kHarmless, 2},
      {"delay", "kind: delay, delay: 2 ms, jitter: 1 ms", Effect::kHarmless, 2},
      {"reorder", "kind: reorder, window: 2 ms", Effect::kHarmless, 6},
      {"freeze", "kind: freeze, for: 300 ms", Effect::kMayBreak},
      {"freeze_for_ever", "kind: freeze", Effect::kBreaks},
      {"device_fatal", "kind: device_fatal", Effect::kBreaks},
      {"device_removed", "kind: device_removed", Effect::kBreaks},
      {"device_internal_error", "kind: device_internal_error", Effect::kBreaks},
      {"cq_error_send", "kind: cq_error, queue: send, qp: busiest", Effect::kBreaks, 2},
      {"cq_error_recv", "kind: cq_error, queue: recv, qp: busiest", Effect::kBreaks, 2},
      {"completion_error", "kind: completion_error, status: REM_ACCESS_ERR", Effect::kMayBreak, 2},
      {"drop_completion_send", "kind: drop_completion, queue: send", Effect::kMayBreak, 2},
      {"drop_completion_recv", "kind: drop_completion, queue: recv", Effect::kMayBreak, 2},
      {"post_fail", "kind: post_fail, errno: ENOMEM", Effect::kMayBreak, 2},
      {"post_fail_recv", "kind: post_fail, errno: ENOMEM, queue: recv", Effect::kMayBreak, 2},
      {"poll_fail", "kind: poll_fail, errno: EIO", Effect::kMayBreak, 2},
      {"reg_fail", "kind: reg_fail, errno: ENOMEM", Effect::kMayBreak, 2, true},
      {"reg_fail_lasting", "kind: reg_fail, errno: ENOMEM, count: all", Effect::kMayBreak, 2, true},
      {"connect_fail", "kind: connect_fail, errno: ETIMEDOUT, state: any", Effect::kMayBreak, 2, true},
      {"gid_change", "kind: gid_change", Effect::kMayBreak},
      {"async_event", "kind: async_event, event: LID_CHANGE", Effect::kHarmless},
  };
  return rows;
}

const std::vector<Moment>& moments() {
  static const std::vector<Moment> all = {Moment::kConnect,     Moment::kFirstMessage, Moment::kMidMessage,
                                          Moment::kLastSegment, Moment::kReplay,       Moment::kFailback,
                                          Moment::kClose};
  return all;
}
const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {Operation::kAllReduce, Operation::kSendRecv,
                                             Operation::kAllToAll};
  return all;
}
const std::vector<Side>& sides() {
  static const std::vector<Side> all = {Side::kSender, Side::kReceiver, Side::kBoth};
  return all;
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const FaultRow& fault : fault_rows())
    for (const Moment moment : moments())
      for (const Operation op : operations())
        for (const Side side : sides()) cells.push_back({&fault, moment, op, side});
  return cells;
}

std::vector<Cell> chosen(const std::vector<std::string>& patterns) {
  std::vector<Cell> cells = all_cells();
  if (patterns.empty()) return cells;
  for (const std::string& pattern : patterns)
    if (std::none_of(cells.begin(), cells.end(), [&](const Cell& cell) { return matches(pattern, cell); }))
      throw UsageError(
          "--only " + pattern +
          " names no cell; write FAULT/MOMENT/OPERATION/SIDE, such as 'port_down/*/SendRecv/*' (--list "
          "prints all names)");
  std::erase_if(cells, [&](const Cell& cell) {
    return std::none_of(patterns.begin(), patterns.end(),
                        [&](const std::string& pattern) { return matches(pattern, cell); });
  });
  return cells;
}

}  // namespace r2bench::matrix
