// SPDX-License-Identifier: Apache-2.0
// What is known of lost and duplicated messages. The engine cpu recognises each message of the net plugin by
// its content. Through CollNet, and with the engine nccl, it sees none: there the comparison of all elements
// tells, because each rank's input is its own and never 0. Pure.
#pragma once

#include <string>

#include "harness/measure/result.h"
#include "harness/scenario/scenario.h"

namespace r2bench {

enum class MessagesBy {
  kContent,   ///< each was recognised: `lost` and `duplicated` are counts
  kElements,  ///< no element is wrong, so nothing is missing and nothing was added or stored twice
  kNothing,   ///< not known
};

struct MessagesKnown {
  MessagesBy by = MessagesBy::kNothing;
  std::string why_not;  ///< of kNothing
};

MessagesKnown messages_known(const Scenario& scenario, const Correctness& correctness);

}  // namespace r2bench
