// SPDX-License-Identifier: Apache-2.0
#include "harness/matrix/cell.h"

#include <algorithm>
#include <sstream>

#include "faultinject/plan/plan.h"
#include "harness/run/runner.h"

namespace r2bench::matrix {
namespace {

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
  static const std::vector<FaultRow> rows = [] {
    std::vector<FaultRow> all;
    for (const faultinject::FaultKind& kind : faultinject::fault_kinds()) {
      if (kind.outside) continue;
      for (const faultinject::Example& example : kind.examples) {
        const std::string parameters = example.parameters;
        all.push_back({kind.name + std::string(example.suffix),
                       std::string("kind: ") + kind.name + (parameters.empty() ? "" : ", ") + parameters,
                       example});
      }
    }
    return all;
  }();
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

std::vector<Cell> chosen(const std::vector<std::string>& patterns, const std::string& mode) {
  std::vector<Cell> cells = all_cells();
  if (mode == "allreduce")
    std::erase_if(cells, [](const Cell& cell) { return cell.op != Operation::kAllReduce; });
  if (patterns.empty()) return cells;
  for (const std::string& pattern : patterns)
    if (std::none_of(cells.begin(), cells.end(), [&](const Cell& cell) { return matches(pattern, cell); }))
      throw UsageError("--only " + pattern + " names no cell" +
                       (mode == "allreduce" ? " of mode allreduce, which has AllReduce only" : "") +
                       "; write FAULT/MOMENT/OPERATION/SIDE, such as 'port_down/*/SendRecv/*' (--list "
                       "prints all names)");
  std::erase_if(cells, [&](const Cell& cell) {
    return std::none_of(patterns.begin(), patterns.end(),
                        [&](const std::string& pattern) { return matches(pattern, cell); });
  });
  return cells;
}

}  // namespace r2bench::matrix
