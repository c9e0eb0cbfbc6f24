// SPDX-License-Identifier: Apache-2.0
// The cases of the conformance suite. Each takes two devices that reach each other, and notes what it saw.
#pragma once

#include <string>
#include <vector>

#include "harness/conformance/endpoint.h"

namespace r2bench::conformance {

struct Case {
  std::string name;  ///< "errors.bad_rkey"
  void (*run)(Device& a, Device& b, Notes& notes);
};

std::vector<Case> state_cases();
std::vector<Case> transfer_cases();
std::vector<Case> error_cases();
std::vector<Case> event_cases();
std::vector<Case> limit_cases();
std::vector<Case> datagram_cases();

/// All of them, in that order.
std::vector<Case> all_cases();

}  // namespace r2bench::conformance
