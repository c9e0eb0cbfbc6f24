// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/rank_main.h"

#include <csignal>
#include <cstdlib>

#include "harness/workload/cpu/capture.h"
#include "harness/workload/cpu/rank.h"
#include "harness/workload/cpu/rank_control.h"
#include "r2ccl/trace/ring.h"

namespace r2bench {

int cpu_rank_main() {
  auto socket = control_connection("r2bench-cpu-rank");
  if (!socket) return 64;
  signal(SIGPIPE, SIG_IGN);
  if (captures_operations_only()) {
    r2ccl::trace::Writer::instance();  // the workload's own, open from now on; the plugin finds no ring
    unsetenv("R2CC_TRACE");
  }
  Rank rank(std::move(*socket));
  return rank.run();
}

}  // namespace r2bench
