// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/messages.h"

namespace r2bench {

namespace {

MessagesKnown unknown(std::string why) { return {MessagesBy::kNothing, std::move(why)}; }

std::string unseen(const Correctness& c) {
  return c.collnet_operations > 0 ? "through CollNet no message is seen" : "no message was recognised";
}

}  // namespace

std::string why_not_compared(const Workload& workload) {
  if (workload.engine == Engine::kExec && workload.exec.nccl_tests)
    return "no element was compared: the table of nccl-tests has none (#wrong is N/A), or no row";
  return workload.engine == Engine::kExec
             ? "r2bench compared no element; of a check by the command itself it knows the exit status only"
             : "no element was compared";
}

MessagesKnown lost_known(const Scenario& scenario, const Correctness& c) {
  const Workload& work = scenario.workload;
  if (c.checked_elements == 0) return unknown(why_not_compared(work));
  if (work.engine == Engine::kExec) return unknown("the command sees no messages, and compares its own data");
  if (c.messages > 0 && c.collnet_operations == 0) return {MessagesBy::kContent, ""};
  if (c.wrong_elements > 0) return unknown(unseen(c) + ", and elements are wrong");
  // A minimum or maximum is right however often an input is taken, and often without it.
  if (reduces(work.op) && (work.reduction == Reduction::kMin || work.reduction == Reduction::kMax))
    return unknown(unseen(c) + ", and a " + (work.reduction == Reduction::kMin ? "minimum" : "maximum") +
                   " does not show a missing or doubled input");
  return {MessagesBy::kElements, ""};
}

MessagesKnown duplicated_known(const Scenario& scenario, const Correctness& c) {
  const MessagesKnown known = lost_known(scenario, c);
  if (known.by != MessagesBy::kElements) return known;
  return unknown(unseen(c) + ", and one that is stored twice in its place leaves every element right");
}

}  // namespace r2bench
