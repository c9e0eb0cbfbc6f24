// SPDX-License-Identifier: Apache-2.0
// Which cells are empty, and which cannot be survived: each with its reason, said once for a fault, a moment
// and an end.
#include "harness/matrix/cell.h"

namespace r2bench::matrix {

using faultinject::Fence;
using faultinject::Strikes;

std::string why_empty(const FaultRow& fault, Moment moment, Side side) {
  const Strikes strikes = fault.declared.strikes;
  if (strikes == Strikes::kAnything) return "";
  if (strikes == Strikes::kSetUp)
    return moment == Moment::kConnect || moment == Moment::kReplay
               ? ""
               : "nothing is registered or connected then: that happens at set-up, and when another path is "
                 "opened";
  if (moment == Moment::kClose)
    return "it strikes what is posted, polled or completed; an end closes when nothing is, any more";
  if (moment == Moment::kConnect && strikes == Strikes::kReceives)
    return "nothing is received before the first message: paths are proved by reads";
  if (moment == Moment::kConnect && strikes == Strikes::kMessages)
    return "it strikes messages; what goes over the wire before the first one is smaller";
  if (strikes == Strikes::kTwoQueuePairs && (moment == Moment::kLastSegment || moment == Moment::kReplay))
    return "it lets two queue pairs' sends change places; here only one has something to send";
  // An end proves its own path by a read; the peer proves it from its side when that read has come back. So
  // the window of the other end would have to close before this end's does, and this end's before the other
  // one's.
  if (strikes == Strikes::kTwoQueuePairs && moment == Moment::kConnect && side == Side::kBoth)
    return "both ends: each end's second queue pair sends when the peer's first send has come back, and the "
           "peer keeps that back as long as this end waits for it: at best one of the two can reorder, by "
           "chance";
  return "";
}

Expectation expected(const Cell& cell, bool on_engine) {
  const faultinject::Example& declared = cell.fault->declared;
  const std::vector<std::string> of_a_driver = {"the driver of NIC vhca", "NIC cannot be fenced",
                                                "did not let go of a queue pair"};
  if (declared.fence == Fence::kNoAnswer && cell.moment != Moment::kConnect)
    return {Expected::kExplainedError,
            "a NIC whose driver calls never return can be neither fenced nor closed: survival, or an error "
            "within its bound that names the NIC",
            of_a_driver};
  if (declared.fence == Fence::kUnstopped && cell.moment != Moment::kConnect)
    return {
        Expected::kExplainedError,
        "a device that answers for nothing, and that no kernel stops, may go on writing: what it receives "
        "cannot be fenced. Survival, or an error within its bound that says so",
        {"its kernel has not stopped it within"}};
  if (on_engine && declared.no_more_set_up && cell.moment == Moment::kReplay)
    return {Expected::kExplainedError,
            "a new plan of the host engine has channels and memory of its own, and no NIC registers any "
            "more: survival, or an error within its bound that says so",
            {"memory cannot be registered"}};
  return {};
}

}  // namespace r2bench::matrix
