// SPDX-License-Identifier: Apache-2.0
// r2bench-cpu-rank: one rank of the cpu workload. Started by r2bench, which names the control connection in
// R2BENCH_CONTROL; there is no other way to use it.
#include <csignal>
#include <cstdlib>

#include "harness/workload/cpu/capture.h"
#include "harness/workload/cpu/rank.h"
#include "harness/workload/cpu/rank_control.h"
#include "r2ccl/trace/ring.h"

#if defined(__SANITIZE_THREAD__)
// A rank that failed leaves without joining the plugin's, or its own, threads: they may hang.
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }
#endif

int main() {
  auto socket = r2bench::control_connection("r2bench-cpu-rank");
  if (!socket) return 64;
  signal(SIGPIPE, SIG_IGN);
  if (r2bench::captures_operations_only()) {
    r2ccl::trace::Writer::instance();  // the workload's own, open from now on; the plugin finds no ring
    unsetenv("R2CC_TRACE");
  }
  r2bench::Rank rank(std::move(*socket));
  return rank.run();
}
