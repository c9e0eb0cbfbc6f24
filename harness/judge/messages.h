// SPDX-License-Identifier: Apache-2.0
// What is known of lost and duplicated messages. The engine cpu recognises each message of the net plugin by
// its content. Through CollNet, and with the engine nccl, it sees none: there the comparison of all elements
// tells that none was lost, because each rank's input is its own and never 0. A message that is stored twice
// in its place leaves every element right. Pure.
#pragma once

#include <string>

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

enum class MessagesBy {
  kContent,   ///< each was recognised: `lost` and `duplicated` are counts
  kElements,  ///< no element is wrong, so nothing is missing
  kNothing,   ///< not known
};

struct MessagesKnown {
  MessagesBy by = MessagesBy::kNothing;
  std::string why_not;  ///< of kNothing
};

/// Why no element is known to be right, where r2bench compared none: a clause for the user. A command of the
/// engine exec may have checked its own data.
std::string why_not_compared(const Workload& workload);

/// Of lost messages.
MessagesKnown lost_known(const Scenario& scenario, const Correctness& correctness);
/// Of duplicated ones; never by kElements.
MessagesKnown duplicated_known(const Scenario& scenario, const Correctness& correctness);

}  // namespace r2bench
