// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/capture.h"

#include <cstdlib>
#include <string>

namespace r2bench {

bool captures_operations_only() {
  const char* capture = std::getenv("R2BENCH_CAPTURE");
  return capture != nullptr && std::string(capture) == "operations";
}

}  // namespace r2bench
