// SPDX-License-Identifier: Apache-2.0
// What connections cost a process: queue pairs, memory, threads, CPU while nothing happens. OPERATING.md
// states these bounds.
#include <gtest/gtest.h>

#include "r2ccl/path/path.h"
#include "r2ccl/tests/testing/cost.h"
#include "r2ccl/tests/testing/sanitizer.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr int kFew = 8, kMany = 48, kStandbys = 32;  // R2CC_STANDBYS

// One process sends over many channels to another. All cost is counted in the sender; the receiver mirrors
// it.
TEST(Budget, of_a_process_with_many_channels) {
  const auto fabric = make_fabric(2, 2);
  const auto queue_pairs = [](int channels) { return queue_pairs_of_both(channels, kStandbys); };
  const auto settled = [&](int channels) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (fabric.usage().queue_pairs != queue_pairs(channels) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(20ms);
    EXPECT_EQ(fabric.usage().queue_pairs, queue_pairs(channels));
    EXPECT_LE(fabric.usage().memory_regions, queue_pairs(channels) / 2) << "one region a path";
  };
  const Child receiver = start(fabric, 1, {}, [&](const Link& link) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    for (int i = 0; i < kMany; ++i) {
      Listener* listener = nullptr;
      ASSERT_NE(accept_one(*n, i % 2, link, listener), nullptr);
    }
    wait_for_word(link);
  });
  const Child sender = start(fabric, 0, {}, [&](const Link& link) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    const auto connect_up_to = [&](int from, int to) {
      for (int i = from; i < to; ++i) ASSERT_NE(connect_one(*n, i % 2, link), nullptr);
    };
    connect_up_to(0, kFew);
    settled(kFew);
    const Cost few = Cost::of(getpid());
    connect_up_to(kFew, kMany);
    settled(kMany);
    const Cost many = Cost::of(getpid());
    const long own = (many.own_kib - few.own_kib) / (kMany - kFew);
    const long rings = (many.shared_kib - few.shared_kib) / (kMany - kFew);
    EXPECT_GT(few.own_kib, 0);
    EXPECT_LE(own + rings, 512 * kSanitizerFactor)
        << "KiB a channel end, the queues of the virtual HCA included";
    EXPECT_EQ(many.threads, few.threads) << "no thread belongs to a channel";
    std::this_thread::sleep_for(4s);
    const Cost later = Cost::of(getpid());
    const double idle = later.cpu_seconds - many.cpu_seconds;
    const double device = later.device_cpu_seconds - many.device_cpu_seconds;
    EXPECT_LE(idle + device, 0.04 * kSanitizerFactor)
        << "seconds of CPU in four seconds without traffic: 1 %";
    std::printf(
        "a channel end: %ld KiB, and %ld KiB shared with the fabric; pinned for the peer: %zu bytes; %d "
        "threads; idle: %.2f %% of a CPU, and %.2f %% for the virtual HCA\n",
        own, rings, channel_memory_bytes(true), many.threads, idle / 4 * 100, device / 4 * 100);
    say(link);
  });
  for (int i = 0; i < kMany; ++i) relay_handle(receiver, sender);
  wait_for_word(sender.link);
  say(receiver.link);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
}

}  // namespace
}  // namespace r2ccl
