// SPDX-License-Identifier: Apache-2.0
// r2bench-cpu-rank: one rank of the cpu workload. Started by r2bench, which names the control connection in
// R2BENCH_CONTROL; there is no other way to use it.
#include "harness/workload/cpu/rank_main.h"

#if defined(__SANITIZE_THREAD__)
// A rank that failed leaves without joining the plugin's, or its own, threads: they may hang.
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }
#endif

int main() { return r2bench::cpu_rank_main(); }
