// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/messages.h"

namespace r2bench {

MessagesKnown messages_known(const Scenario& scenario, const Correctness& c) {
  const auto unknown = [](std::string why) { return MessagesKnown{MessagesBy::kNothing, std::move(why)}; };
  const Workload& work = scenario.workload;
  if (c.checked_elements == 0) return unknown("no element was compared");
  if (work.engine == Engine::kExec) return unknown("the command sees no messages, and compares its own data");
  if (c.messages > 0 && c.collnet_operations == 0) return {MessagesBy::kContent, ""};
  const std::string unseen =
      c.collnet_operations > 0 ? "through CollNet no message is seen" : "no message was recognised";
  if (c.wrong_elements > 0) return unknown(unseen + ", and elements are wrong");
  // A minimum or maximum is right however often an input is taken, and often without it.
  if (reduces(work.op) && (work.reduction == Reduction::kMin || work.reduction == Reduction::kMax))
    return unknown(unseen + ", and a " + (work.reduction == Reduction::kMin ? "minimum" : "maximum") +
                   " does not show a missing or doubled input");
  return {MessagesBy::kElements, ""};
}

}  // namespace r2bench
