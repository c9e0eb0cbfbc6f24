// SPDX-License-Identifier: Apache-2.0
// The node's tuners share numbers, holds and views: nothing begins at or beyond a hold, in whichever tuner.
#include "r2ccl/collective/host/node_counter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace r2ccl::collective {
namespace {

using namespace std::chrono_literals;
using Counter = std::shared_ptr<NodeCounter>;

NodeCounter::Answer view(uint64_t epoch) { return {epoch, 1000 * epoch}; }

std::string new_name() {
  static int made = 0;
  return "node_counter_test/" + std::to_string(getpid()) + "/" + std::to_string(made++);
}

std::vector<Counter> tuners(int count) {
  const std::string name = new_name();
  std::vector<Counter> all;
  for (int i = 0; i < count; ++i) all.push_back(std::move(NodeCounter::make(name, count).value()));
  for (bool complete = false; !complete;) {
    complete = true;
    for (const Counter& one : all) complete = one->complete() && complete;
  }
  return all;
}

/// 999: held.
uint64_t epoch(const Counter& counter, uint64_t number) {
  auto got = counter->wait_for(number, 1ms);
  return got ? got->epoch : 999;
}

TEST(NodeCounter, one_tuner) {
  const Counter one = tuners(1)[0];
  EXPECT_EQ(epoch(one, 0), 0u);
  EXPECT_EQ(one->hold(2).value(), 3u);
  EXPECT_EQ(epoch(one, 1), 0u);
  EXPECT_EQ(epoch(one, 2), 0u);
  EXPECT_EQ(epoch(one, 3), 999u);
  one->resume(4, view(7));
  EXPECT_EQ(epoch(one, 3), 0u);
  EXPECT_EQ(one->wait_for(4, 1ms).value().epoch, 7u);
  EXPECT_EQ(one->wait_for(5, 1ms).value().least_bytes, 7000u);
}

TEST(NodeCounter, the_hold_is_beyond_the_furthest_tuner_and_for_all) {
  const auto all = tuners(3);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(epoch(all[1], i), 0u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(epoch(all[2], i), 0u);
  EXPECT_EQ(all[0]->hold(1).value(), 11u);
  for (uint64_t i = 0; i < 11; ++i) EXPECT_EQ(epoch(all[0], i), 0u);
  EXPECT_EQ(epoch(all[0], 11), 999u);
  EXPECT_EQ(epoch(all[1], 10), 0u);
  EXPECT_EQ(epoch(all[1], 11), 999u);
  all[0]->resume(12, view(1));
  for (const Counter& one : {all[0], all[1]}) {
    EXPECT_EQ(epoch(one, 11), 0u);
    EXPECT_EQ(epoch(one, 12), 1u);
  }
  for (uint64_t i = 4; i < 20; ++i) EXPECT_EQ(epoch(all[2], i), i < 12 ? 0u : 1u);
}

TEST(NodeCounter, without_the_others_it_does_not_count) {
  const std::string name = new_name();
  const Counter one = std::move(NodeCounter::make(name, 2).value());
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(one->complete());
  EXPECT_FALSE(one->hold(1));
  EXPECT_EQ(epoch(one, 0), 0u);
  const Counter other = std::move(NodeCounter::make(name, 2).value());
  for (bool both = false; !both;) {
    both = one->complete();
    both = other->complete() && both;
  }
  EXPECT_EQ(one->hold(1).value(), 2u);  // what has begun before counts
  EXPECT_EQ(epoch(other, 0), 0u);
}

TEST(NodeCounter, the_first_group_leads) {
  const auto all = tuners(2);
  EXPECT_TRUE(all[0]->lead(5));
  EXPECT_FALSE(all[1]->lead(6));
  EXPECT_TRUE(all[1]->lead(5));
}

// A tuner that lags behind keeps the views that it still needs; meanwhile newer ones are not for the tuners.
TEST(NodeCounter, views_that_somebody_needs_stay) {
  const auto all = tuners(2);
  uint64_t number = 0, agreed = 0;
  std::vector<uint64_t> from;
  for (uint64_t i = 1; i < 20; ++i) {
    EXPECT_LT(epoch(all[0], number++), 999u);
    const auto point = all[0]->hold(0);
    all[0]->resume(point.value_or(kNever), view(i));
    if (!point) continue;
    from.push_back(*point);
    ++agreed;
  }
  EXPECT_EQ(agreed, 8u);
  for (uint64_t i = 0; i < number; ++i) {
    uint64_t expected = 0;
    for (size_t j = 0; j < from.size(); ++j)
      if (from[j] <= i) expected = j + 1;
    EXPECT_EQ(epoch(all[1], i), expected) << i;
  }
  EXPECT_TRUE(all[0]->hold(0));
}

TEST(NodeCounter, a_failed_agreement_ends_every_wait) {
  const auto all = tuners(2);
  all[0]->hold(0);
  all[0]->fail(Error{ErrorCode::kPeerGone, "gone"});
  for (const Counter& one : all) EXPECT_EQ(one->wait_for(0, 1h).error().code, ErrorCode::kPeerGone);
}

// Each group of a communicator has an engine of its own, but one group decides for all tuners.
TEST(NodeCounter, the_slowest_engine_of_the_node_counts) {
  const auto all = tuners(2);
  EXPECT_EQ(all[0]->engine_pace(7, kNominal), kNominal);
  EXPECT_EQ(all[1]->engine_pace(8, 5000), 5000);
  EXPECT_EQ(all[0]->engine_pace(7, kNominal), 5000);
  EXPECT_EQ(all[0]->engine_pace(9, 2000), 2000);  // two groups of a process
  EXPECT_EQ(all[1]->engine_pace(8, 5000), 2000);
  all[0]->forget_engine(9);
  EXPECT_EQ(all[0]->engine_pace(7, kNominal), 5000);
  EXPECT_EQ(all[1]->engine_pace(8, kNominal), kNominal);
  EXPECT_EQ(all[0]->engine_pace(7, kNominal), kNominal);
}

TEST(NodeCounter, no_operation_slips_through_a_hold) {
  const auto all = tuners(2);
  std::atomic<uint64_t> begun[2] = {0, 0};
  std::atomic<bool> stop{false};
  std::vector<std::vector<uint64_t>> epochs(2);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; !stop; ++i) {
        while (begun[1 - t] + 8 < i && !stop) std::this_thread::yield();
        auto got = all[t]->wait_for(i, 1h);
        ASSERT_TRUE(got.ok());
        epochs[t].push_back(got->epoch);
        begun[t] = i + 1;
      }
    });
  std::vector<uint64_t> starts{0};
  for (uint64_t number = 1; number <= 300; ++number) {
    const auto point = all[0]->hold(number % 3);
    if (point) {
      if (number % 2 == 0)
        while (begun[0] < *point || begun[1] < *point) std::this_thread::yield();
      EXPECT_LE(begun[0], *point);
      EXPECT_LE(begun[1], *point);
    }
    all[0]->resume(point.value_or(kNever), view(number));
    if (point) starts.push_back(*point);
    if (point)
      while (begun[0] <= *point + 1 || begun[1] <= *point + 1) std::this_thread::yield();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  const size_t both = std::min(epochs[0].size(), epochs[1].size());
  size_t changes = 0;
  for (size_t i = 0; i < both; ++i) {
    ASSERT_EQ(epochs[0][i], epochs[1][i]) << "operation " << i;
    if (i == 0 || epochs[0][i] == epochs[0][i - 1]) continue;
    EXPECT_EQ(starts[++changes], i);
  }
  EXPECT_GT(changes, 200u);
}

}  // namespace
}  // namespace r2ccl::collective
