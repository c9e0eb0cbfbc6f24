// SPDX-License-Identifier: Apache-2.0
// A net plugin that keeps the cores busy: R2CCL, whose interface is found through this library because it is
// linked to it, and threads that compute without end. What such a plugin does to a measurement:
// harness/run/busy_plugin_test.cc.
//   BUSYNET_THREADS=n   in each process that loads it; 8 unless told
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

class BusyThreads {
 public:
  BusyThreads() {
    const char* told = std::getenv("BUSYNET_THREADS");
    for (long i = told ? std::atol(told) : 8; i > 0; --i)
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

const BusyThreads busy;

}  // namespace
