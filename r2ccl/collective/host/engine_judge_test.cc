// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/engine_judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>

namespace r2ccl::collective {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs;

/// Four nodes, of which one carries half; a group of one NIC of 1 GB/s.
class EngineJudgeTest : public ::testing::Test {
 protected:
  static ViewPointer view(uint64_t epoch, double of_node_two) {
    return std::make_shared<const View>(View{.epoch = epoch, .capacities = {1, 1, of_node_two, 1}});
  }
  /// What NCCL's ring needs for `bytes` where NICs carry `seen` of their rate.
  double ring_ms(uint64_t bytes, double seen) const {
    Speeds speeds = speeds_;
    speeds.bytes_per_second *= seen;
    return 1e3 * ring_seconds(view_->capacities, bytes, speeds);
  }
  /// One AllReduce alone, of `ms`, in which the engine found something to do every millisecond; it was late
  /// each time, or it added for all of it.
  std::optional<EnginePace::Yield> one(uint64_t ms, bool late = true, bool adds = false) {
    judge_.begins(0, view_, planned_, now_, added_);
    for (uint64_t i = 0; i < ms; ++i) {
      const uint64_t before = now_;
      now_ += kMs;
      if (adds) added_ += kMs;
      if (judge_.counts()) judge_.polled(late ? now_ : before, now_, true);
    }
    return judge_.ended(bytes_, 0, now_, added_, speeds_, [this] {
      ++asked_;
      return seen_;
    });
  }
  std::optional<EnginePace::Yield> some(int operations, uint64_t ms, bool late = true, bool adds = false) {
    for (int i = 0; i < operations; ++i)
      if (const auto yield = one(ms, late, adds)) return yield;
    return std::nullopt;
  }

  const Speeds speeds_{.bytes_per_second = 1e9};
  EngineJudge judge_;
  ViewPointer view_ = view(1, 0.5);
  bool planned_ = true;
  uint64_t bytes_ = 64 << 20, now_ = 7 * kSecond, added_ = 3 * kSecond;
  double seen_ = 1;
  int asked_ = 0;
};

TEST_F(EngineJudgeTest, an_engine_that_is_late_yields) {
  const double ring = ring_ms(bytes_, 1);
  ASSERT_GT(ring, 100);  // 1.5 · 64 MiB at 0.5 GB/s
  ASSERT_LT(ring, 300);
  const auto yield = some(8, uint64_t(2 * ring));
  ASSERT_TRUE(yield);
  EXPECT_NEAR(yield->to_ring, 2, 0.02);
  EXPECT_GT(yield->late, 0.9);
  EXPECT_EQ(asked_, 4);
  EXPECT_LT(judge_.relative(now_), 0.6);
  EXPECT_EQ(judge_.relative(now_ + yield->for_ns + kSecond), 1);
}

TEST_F(EngineJudgeTest, so_does_one_that_adds_all_the_time) {
  const auto yield = some(8, uint64_t(2 * ring_ms(bytes_, 1)), false, true);
  ASSERT_TRUE(yield);
  EXPECT_GT(yield->added, 0.9);
  EXPECT_EQ(yield->late, 0);
}

TEST_F(EngineJudgeTest, one_that_is_slow_but_there_does_not) {
  EXPECT_FALSE(some(20, uint64_t(2 * ring_ms(bytes_, 1)), false));
  EXPECT_EQ(asked_, 20);
}

// What the ring needs follows what the NICs were seen to carry, not what their ports say.
TEST_F(EngineJudgeTest, nics_that_carry_half_of_their_rate_slow_the_ring_too) {
  seen_ = 0.5;
  const double ring = ring_ms(bytes_, 0.5);
  ASSERT_GT(ring, 1.9 * ring_ms(bytes_, 1));
  EXPECT_FALSE(some(20, uint64_t(ring)));
  const auto yield = some(8, uint64_t(1.5 * ring));
  ASSERT_TRUE(yield);
  EXPECT_NEAR(yield->to_ring, 1.5, 0.02);
}

TEST_F(EngineJudgeTest, nothing_is_judged_while_no_rate_has_been_seen) {
  for (const double seen : {0.0, std::nan("")}) {
    seen_ = seen;
    EXPECT_FALSE(some(20, uint64_t(3 * ring_ms(bytes_, 1)))) << seen;
  }
  EXPECT_EQ(asked_, 40);
}

TEST_F(EngineJudgeTest, nor_a_forced_schedule_nor_healthy_nodes) {
  const auto ms = uint64_t(3 * ring_ms(bytes_, 1));
  planned_ = false;
  EXPECT_FALSE(some(8, ms));
  planned_ = true;
  for (const ViewPointer& healthy : {view(2, 1), view(0, 0.5)}) {
    view_ = healthy;
    EXPECT_FALSE(some(8, ms)) << healthy->epoch;
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(EngineJudgeTest, operations_of_milliseconds_show_latencies) {
  bytes_ = 256 << 10;
  EXPECT_FALSE(some(400, uint64_t(5 * ring_ms(bytes_, 1)) + 1));
  EXPECT_EQ(asked_, 400);
}

TEST_F(EngineJudgeTest, another_view_begins_anew) {
  const auto ms = uint64_t(2 * ring_ms(bytes_, 1));
  EXPECT_FALSE(some(3, ms));
  view_ = view(2, 0.5);
  EXPECT_FALSE(some(3, ms));
  EXPECT_TRUE(one(ms));
}

// Two operations without a break between them, the second by another view: together they are slow because of
// the first one.
TEST_F(EngineJudgeTest, another_view_in_the_middle_of_a_period_does_too) {
  const auto ring = uint64_t(ring_ms(bytes_, 1));
  const auto ended = [&](size_t open) {
    return judge_.ended(bytes_, open, now_, added_, speeds_, [] { return 1.0; });
  };
  judge_.begins(0, view_, true, now_, added_);
  now_ += 2 * ring * kMs;
  judge_.polled(now_, now_, true);
  view_ = view(2, 0.5);
  judge_.begins(1, view_, true, now_, added_);
  EXPECT_FALSE(ended(1));
  now_ += ring / 2 * kMs;
  judge_.polled(now_, now_, true);
  EXPECT_FALSE(ended(0));
  EXPECT_FALSE(some(3, 2 * ring));
  EXPECT_TRUE(one(2 * ring));
}

}  // namespace
}  // namespace r2ccl::collective
