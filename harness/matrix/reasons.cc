// SPDX-License-Identifier: Apache-2.0
// Which cells are empty, and which cannot be survived: each with its reason, said once for a fault and a
// moment.
#include <algorithm>

#include "harness/matrix/cell.h"

namespace r2bench::matrix {
namespace {

bool any_of(const FaultRow& fault, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return fault.name == name; });
}

}  // namespace

std::string why_empty(const FaultRow& fault, Moment moment) {
  if (fault.at_registration && moment != Moment::kConnect && moment != Moment::kReplay)
    return "nothing is registered or connected then: that happens at set-up, and when another path is opened";
  if (moment == Moment::kClose &&
      any_of(fault, {"noop", "ack_lost", "throttle", "delay", "reorder", "completion_error",
                     "drop_completion_send", "drop_completion_recv", "post_fail", "post_fail_recv",
                     "poll_fail", "blackhole_in", "blackhole_out"}))
    return "it strikes what is posted, polled or completed; an end closes when nothing is, any more";
  if (moment == Moment::kConnect && fault.name == "drop_completion_recv")
    return "nothing is received before the first message: paths are proved by reads";
  if (moment == Moment::kConnect && fault.name == "ack_lost")
    return "it strikes a message's acknowledgement; what goes over the wire before the first one is smaller";
  if (fault.name == "reorder" && (moment == Moment::kLastSegment || moment == Moment::kReplay))
    return "it lets two queue pairs' sends change places; here only one has something to send";
  return "";
}

Expectation expected(const Cell& cell, bool on_engine) {
  const std::vector<std::string> of_a_driver = {"the driver of NIC vhca", "NIC cannot be fenced",
                                                "did not let go of a queue pair"};
  if (cell.fault->name == "freeze_for_ever" && cell.moment != Moment::kConnect)
    return {Expected::kExplainedError,
            "a NIC whose driver calls never return can be neither fenced nor closed: survival, or an error "
            "within its bound that "
            "names the NIC",
            of_a_driver};
  if (cell.fault->name == "device_internal_error" && cell.side == Side::kBoth &&
      cell.moment != Moment::kConnect)
    return {
        Expected::kExplainedError,
        "two devices that answer for nothing, and go on writing: neither end can be fenced. Survival, or an "
        "error within its bound that names the NIC",
        of_a_driver};
  if (on_engine && cell.fault->name == "reg_fail_lasting" && cell.moment == Moment::kReplay)
    return {
        Expected::kExplainedError,
        "a new plan of the host engine has channels and memory of its own, and no NIC registers any more: "
        "survival, or an error within its bound that says so",
        {"memory cannot be registered"}};
  return {};
}

}  // namespace r2bench::matrix
