// SPDX-License-Identifier: Apache-2.0
// r2bench-exec-rank: one rank of the engine exec. Started by r2bench, which names the control connection in
// R2BENCH_CONTROL; there is no other way to use it.
#include <csignal>

#include "harness/workload/cpu/rank_control.h"
#include "harness/workload/exec/exec_rank.h"

int main() {
  auto socket = r2bench::control_connection("r2bench-exec-rank");
  if (!socket) return 64;
  signal(SIGPIPE, SIG_IGN);
  r2bench::ExecRank rank(std::move(*socket));
  return rank.run();
}
