// SPDX-License-Identifier: Apache-2.0
// What a test's own process writes into its trace.
#pragma once

#include <cstdlib>

#include "r2ccl/trace/ring.h"

namespace r2ccl::collective {

inline trace::Reader& traced() {
  static trace::Reader reader = [] {
    auto made = trace::Reader::create();
    setenv("R2CC_TRACE", made.path().c_str(), 1);
    return made;
  }();
  return reader;
}
[[maybe_unused]] inline const trace::Reader& g_before_the_first_event = traced();

}  // namespace r2ccl::collective
