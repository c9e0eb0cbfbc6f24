// SPDX-License-Identifier: Apache-2.0
// What the test of a request returns.
#pragma once

#include <cstddef>

namespace r2ccl {

struct TestOutcome {
  bool done = false;
  size_t bytes = 0;  ///< of a receive: what the sender sent
};

}  // namespace r2ccl
