// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/base/cpu_wait.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <thread>

#include "r2ccl/base/clock.h"

namespace r2ccl {
namespace {

constexpr uint64_t kForNs = 400 * kNsPerMs;

// Two threads that have one CPU between them: while one runs the other waits.
TEST(CpuWait, threads_that_share_a_cpu_wait_for_each_other) {
  if (!waited_for_cpu_ns()) GTEST_SKIP() << "this kernel does not say how long threads wait";
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  std::array<uint64_t, 2> waited{}, lasted{};
  std::atomic<int> ready{0};
  const auto spin = [&](size_t thread) {
    sched_setaffinity(0, sizeof one, &one);
    ++ready;
    while (ready < 2) sched_yield();
    const uint64_t from = now_ns(), before = *waited_for_cpu_ns();
    while (now_ns() - from < kForNs) {
    }
    waited[thread] = *waited_for_cpu_ns() - before;
    lasted[thread] = now_ns() - from;
  };
  std::array<std::thread, 2> threads{std::thread(spin, 0), std::thread(spin, 1)};
  for (auto& thread : threads) thread.join();
  EXPECT_GE(waited[0] + waited[1], kForNs / 2);
  for (size_t i = 0; i < 2; ++i) EXPECT_LE(waited[i], lasted[i]) << i;
}

}  // namespace
}  // namespace r2ccl
