// SPDX-License-Identifier: Apache-2.0
// A net plugin that keeps the cores busy: R2CCL, whose interface is found through this library because it is
// linked to it, and threads that compute without end. What such a plugin does to a measurement:
// harness/run/busy_plugin_test.cc. In each process that loads it:
//   BUSYNET_THREADS=n     so many threads; 8 unless told
//   BUSYNET_STOP_MS=n     the process is stopped for n ms, again and again, and runs for 20 ms in between
//   BUSYNET_WAKEUP=PATH   the p99 of the process's own wake-up latency, in ms, goes to PATH.<pid>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "harness/measure/ticker.h"

namespace {

void sleep_ms(long ms) {
  const timespec span{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&span, nullptr);
}

/// In a process of its own, which ends with the thread that loads the plugin.
void stop_again_and_again(long ms) {
  constexpr long kRunningMs = 20;
  const pid_t self = getpid();
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  syscall(SYS_close_range, 0u, ~0u, 0u);
  while (getppid() == self) {
    kill(self, SIGSTOP);
    sleep_ms(ms);
    kill(self, SIGCONT);
    sleep_ms(kRunningMs);
  }
  _exit(0);
}

class BusyThreads {
 public:
  BusyThreads() {
    const char* told = std::getenv("BUSYNET_THREADS");
    for (long i = told ? std::atol(told) : 8; i > 0; --i)
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
    if (const char* path = std::getenv("BUSYNET_WAKEUP"))
      threads_.emplace_back([this, file = path + ("." + std::to_string(getpid()))] {
        while (!stop_) measure_wakeup(file);
      });
    if (const char* ms = std::getenv("BUSYNET_STOP_MS")) stop_again_and_again(std::atol(ms));
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  /// Again and again, since a rank may end without destructors.
  void measure_wakeup(const std::string& file) {
    r2bench::Ticker ticker;
    for (int i = 0; i < 10 && !stop_; ++i) sleep_ms(10);
    const double p99 = ticker.stop().p99;
    if (stop_) return;
    std::ofstream(file + ".new") << p99 << std::endl;
    rename((file + ".new").c_str(), file.c_str());
  }

  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

const BusyThreads busy;

}  // namespace
