// SPDX-License-Identifier: Apache-2.0
// r2bench-nccl-rank: one rank of the nccl workload. Started by r2bench, which names the control connection in
// R2BENCH_CONTROL; there is no other way to use it.
#include <csignal>
#include <cstdlib>

#include "harness/workload/cpu/capture.h"
#include "harness/workload/cpu/rank_control.h"
#include "harness/workload/nccl/nccl_rank.h"
#include "r2ccl/trace/ring.h"

int main() {
  auto socket = r2bench::control_connection("r2bench-nccl-rank");
  if (!socket) return 64;
  signal(SIGPIPE, SIG_IGN);
  if (r2bench::captures_operations_only()) {
    r2ccl::trace::Writer::instance();  // the workload's own, open from now on; the plugin finds no ring
    unsetenv("R2CC_TRACE");
  }
  r2bench::NcclRank rank(std::move(*socket));
  return rank.run();
}
