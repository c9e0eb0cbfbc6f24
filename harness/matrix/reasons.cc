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
               : "it strikes registrations and connections, which are made only at set-up and when another "
                 "path is opened";
  if (moment == Moment::kClose)
    return "it strikes posts, polls and completions; an end closes only when there are none left";
  if (moment == Moment::kConnect && strikes == Strikes::kReceives)
    return "it strikes receives; before the first message there are none, because paths are tested by reads";
  if (moment == Moment::kConnect && strikes == Strikes::kMessages)
    return "it strikes messages; before the first one only smaller packets are sent";
  if (strikes == Strikes::kTwoQueuePairs && (moment == Moment::kLastSegment || moment == Moment::kReplay))
    return "it reorders sends of two queue pairs; here only one queue pair has something to send";
  // An end proves its own path by a read; the peer proves it from its side when that read has come back. So
  // the window of the other end would have to close before this end's does, and this end's before the other
  // one's.
  if (strikes == Strikes::kTwoQueuePairs && moment == Moment::kConnect && side == Side::kBoth)
    return "both ends: each end's second queue pair sends only after the peer's first send has completed, and "
           "each fault withholds the send for which the other one waits. So at most one of the two can "
           "reorder";
  return "";
}

Expectation expected(const Cell& cell, bool on_engine) {
  const faultinject::Example& declared = cell.fault->declared;
  const std::vector<std::string> of_a_driver = {"the driver of NIC vhca", "NIC cannot be fenced",
                                                "did not destroy a queue pair"};
  if (declared.fence == Fence::kNoAnswer && cell.moment != Moment::kConnect)
    return {Expected::kExplainedError,
            "a NIC whose driver calls never return can be neither fenced nor closed: the job must survive, or "
            "end within its bound with an error that names the NIC",
            of_a_driver};
  if (declared.fence == Fence::kUnstopped && cell.moment != Moment::kConnect)
    return {
        Expected::kExplainedError,
        "a device that ignores commands, and that no kernel stops, may continue to write, so a receiver "
        "cannot fence it: the job must survive, or end within its bound with an error that says so",
        {"its kernel has not stopped it within"}};
  if (on_engine && declared.no_more_set_up && cell.moment == Moment::kReplay)
    return {Expected::kExplainedError,
            "a new plan of the host engine needs further channels and memory, and no NIC can register more: "
            "the job must survive, or end within its bound with an error that says so",
            {"memory cannot be registered"}};
  return {};
}

}  // namespace r2bench::matrix
