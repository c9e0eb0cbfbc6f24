// SPDX-License-Identifier: Apache-2.0
// What one history has shown so far. Every part of the simulation reports here.
#pragma once

#include <cstdio>
#include <string>

#include "r2ccl/tests/simulation/history.h"

namespace r2ccl::simulation {

struct Findings {
  Verdict verdict;
  const bool tell;  ///< the log, the trace and the faults go to stdout

  static double seconds() { return double(scheduler().now()) / 1e9; }
  void violate(const std::string& what) {
    if (verdict.violation.empty()) verdict.violation = what;
    if (tell)
      std::printf("%12.6f VIOLATION %s\n", seconds(), what.c_str());
    else
      scheduler().stop();
  }
  void digest(uint64_t value) { verdict.digest = (verdict.digest ^ value) * 0x100000001b3; }
};

}  // namespace r2ccl::simulation
