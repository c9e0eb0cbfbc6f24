// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/engine_pace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace r2ccl::collective {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs;

class EnginePaceTest : public ::testing::Test {
 protected:
  /// One period of `ms`, for which NCCL's ring would need `ring_ms`; of it the engine was late, or
  /// added, for the parts `late` and `added`.
  std::optional<EnginePace::Yield> period(uint64_t ms, double ring_ms, double late, double added = 0) {
    now_ += ms * kMs;
    EnginePeriod period;
    period.bytes = 1000 * ms;
    period.took_ns = ms * kMs;
    period.late_ns = uint64_t(late * double(period.took_ns));
    period.added_ns = uint64_t(added * double(period.took_ns));
    return pace_.ended(period, ring_ms * 1e-3, now_, [this](uint64_t bytes) {
      asked_.push_back(bytes);
      return predicted_of_ ? predicted_of_(bytes) : predicted_;
    });
  }
  /// Slow ones, until it yields.
  std::optional<EnginePace::Yield> until_it_yields(uint64_t ms) {
    for (int i = 0; i < 1000; ++i)
      if (const auto yield = period(ms, double(ms) / 2, 0.9)) return yield;
    return std::nullopt;
  }
  double relative() const { return pace_.relative(now_); }

  EnginePace pace_;
  uint64_t now_ = 77 * kSecond;
  std::vector<uint64_t> asked_;
  std::function<double(uint64_t)> predicted_of_;
  double predicted_ = 0.9;
};

TEST_F(EnginePaceTest, YieldsAfterFourSlowPeriods) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 200, 0.9)) << i;
  EXPECT_EQ(relative(), 1);
  const auto yield = period(400, 200, 0.9);
  ASSERT_TRUE(yield);
  EXPECT_NEAR(yield->to_ring, 2, 1e-9);
  EXPECT_NEAR(yield->late, 0.9, 1e-6);
  EXPECT_NEAR(relative(), 0.45, 1e-9) << "0.9 times as long predicted, 2 times taken";
  EXPECT_EQ(asked_, std::vector<uint64_t>{400'000});
}

TEST_F(EnginePaceTest, ShortPeriodsHaveToLastASecond) {
  int periods = 0;
  const uint64_t from = now_;
  do ++periods;
  while (!period(10, 5, 0.9) && periods < 1000);
  EXPECT_EQ(periods, 100);
  EXPECT_EQ(now_ - from, EnginePace::kLeastNs);
}

TEST_F(EnginePaceTest, TheBestOfThemCounts) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(i == 1 ? 110 : 400, 100, 0.9));
  const auto yield = period(400, 100, 0.9);
  ASSERT_TRUE(yield);
  EXPECT_NEAR(yield->to_ring, 1.1, 1e-9);
  EXPECT_NEAR(relative(), 0.9 / 1.1, 1e-9);
  EXPECT_EQ(asked_.front(), 110'000u);
}

// While it yields nobody judges what still goes over the engine.
TEST_F(EnginePaceTest, AllSizesThatWereSlowGoBack) {
  predicted_of_ = [](uint64_t bytes) { return bytes > 1'000'000 ? 0.6 : 0.8; };
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(i == 1 ? 110 : 1500, i == 1 ? 100 : 1000, 0.9));
  ASSERT_TRUE(period(110, 100, 0.9));
  EXPECT_LE(relative(), 0.6)
      << "the large ones are predicted to take 0.6 times as long as the ring, and took 1.5 times";
}

TEST_F(EnginePaceTest, OneFastPeriodIsEnoughToGoOn) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 100, 0.9));
    EXPECT_FALSE(period(107, 100, 0.9));
  }
  EXPECT_EQ(relative(), 1);
}

// Others may use the NIC, too, or a peer may be late: then NCCL's ring would be no faster. The part of the
// time in which the engine was late explains no more than a part of it.
TEST_F(EnginePaceTest, SlowForOtherReasonsThanTheHost) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(period(200, 100, 0.45));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 100, 0.9));
  EXPECT_FALSE(period(400, 100, 0.72));
  EXPECT_EQ(relative(), 1);
}

// Memory or CPUs are slower than when the engine measured its additions.
TEST_F(EnginePaceTest, AdditionsThatTakeLongerThanTheRing) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(period(400, 200, 0, 0.49));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 200, 0, 0.51));
  const auto yield = period(400, 200, 0, 0.51);
  ASSERT_TRUE(yield);
  EXPECT_NEAR(yield->added, 0.51, 1e-6);
  EXPECT_EQ(yield->late, 0);
}

TEST_F(EnginePaceTest, ShortOperationsSayNothing) {
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(period(10, 1.9, 0.9));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 100, 0.9));
  EXPECT_FALSE(period(10, 1.9, 0));  // nor that it is fast
  EXPECT_TRUE(period(400, 100, 0.9));
}

TEST_F(EnginePaceTest, NoFasterThanPredictedIsNoReasonToYield) {
  predicted_ = 3;
  EXPECT_FALSE(until_it_yields(40)) << "3 times as long predicted, 2 times taken";
  EXPECT_EQ(relative(), 1);
}

// As of a view in which no node is degraded: there is nothing to compare with.
TEST_F(EnginePaceTest, APredictionThatIsNoNumberIsNoReasonToYield) {
  predicted_ = std::nan("");
  EXPECT_FALSE(until_it_yields(400));
  EXPECT_EQ(relative(), 1);
}

// Another rank's engine yielded after three slow periods of this one.
TEST_F(EnginePaceTest, WhatWasSlowUnderAnotherViewDoesNotCount) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 200, 0.9));
  now_ += 31 * kSecond;
  pace_.view_changes();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 200, 0.9));
  const auto yield = period(400, 200, 0.9);
  ASSERT_TRUE(yield);
  EXPECT_EQ(yield->for_ns, 32 * 4 * 400 * kMs);
}

TEST_F(EnginePaceTest, TimeBetweenSlowPeriodsIsNotSpentOnThem) {
  std::optional<EnginePace::Yield> yield;
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(yield);
    now_ += 20 * kSecond;
    yield = period(300, 150, 0.9);
  }
  ASSERT_TRUE(yield);
  EXPECT_EQ(yield->for_ns, 32 * 4 * 300 * kMs);
}

TEST_F(EnginePaceTest, RestingIsNoProofOfBeingWell) {
  const auto first = until_it_yields(20);
  ASSERT_TRUE(first);
  now_ += 10 * first->for_ns;  // another rank's engine yields, or nothing is to be done
  const auto second = until_it_yields(20);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->for_ns, 2 * first->for_ns);
}

TEST_F(EnginePaceTest, IsTriedAgainEverMoreRarely) {
  uint64_t before = 0;
  for (int i = 0; i < 12; ++i) {
    const auto yield = until_it_yields(200);
    ASSERT_TRUE(yield);
    EXPECT_LT(relative(), 1);
    EXPECT_EQ(yield->for_ns, before == 0 ? 32 * kSecond : std::min(2 * before, EnginePace::kMostNs));
    before = yield->for_ns;
    now_ += yield->for_ns - 1;
    EXPECT_LT(relative(), 1);
    now_ -= 10 * kSecond;
    for (int k = 0; k < 8; ++k)
      EXPECT_FALSE(period(1000, 100, 0.9)) << "what runs while it yields does not count";
    now_ += 2 * kSecond + 1;
    EXPECT_EQ(relative(), 1);
  }
  EXPECT_EQ(before, EnginePace::kMostNs);
}

TEST_F(EnginePaceTest, AFewTrialsCostLittle) {
  const auto yield = until_it_yields(3000);
  ASSERT_TRUE(yield);
  EXPECT_EQ(yield->for_ns, 32 * 4 * 3 * kSecond) << "at most a 32nd of the time is spent on trials";
  now_ += yield->for_ns;
}

TEST_F(EnginePaceTest, LongAfterATrialItBeginsAnew) {
  for (int i = 0; i < 3; ++i) {
    const auto yield = until_it_yields(20);
    ASSERT_TRUE(yield);
    now_ += yield->for_ns;
  }
  const auto well = [this](uint64_t seconds) {
    for (uint64_t i = 0; i < seconds; ++i) EXPECT_FALSE(period(1000, 1000, 0.9));
  };
  well(4 * 32 - 1);
  now_ += 100 * EnginePace::kMostNs;  // another rank's engine yields, or nothing is to be done
  const auto again = until_it_yields(20);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->for_ns, 8 * 32 * kSecond);
  now_ += again->for_ns;
  well(8 * 32);
  const auto anew = until_it_yields(20);
  ASSERT_TRUE(anew);
  EXPECT_EQ(anew->for_ns, 32 * kSecond);
}

class EnginePeriodsTest : public ::testing::Test {
 protected:
  void begins(bool counts = true) { periods_.begins(open_++, counts, now_, added_); }
  std::optional<EnginePeriod> ends(uint64_t bytes) { return periods_.ended(bytes, --open_, now_, added_); }
  /// Polled after so long, for so long.
  void poll(uint64_t after, uint64_t lasts, bool moved) {
    now_ += after + lasts;
    periods_.polled(now_ - lasts, now_, moved);
  }
  EnginePeriods periods_;
  uint64_t now_ = 5 * kSecond, added_ = kSecond;
  size_t open_ = 0;
};

TEST_F(EnginePeriodsTest, LastsUntilNothingIsUnderWay) {
  begins();
  now_ += 10;
  begins();
  now_ += 20;
  added_ += 3;
  EXPECT_FALSE(ends(100));
  begins();
  now_ += 30;
  EXPECT_FALSE(ends(200));
  const auto period = ends(300);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 600u);
  EXPECT_EQ(period->took_ns, 60u);
  EXPECT_EQ(period->added_ns, 3u);
  EXPECT_EQ(period->late_ns, 0u);
}

TEST_F(EnginePeriodsTest, TimeBetweenPeriodsDoesNotCount) {
  begins();
  now_ += 10;
  EXPECT_TRUE(ends(1));
  added_ += 1000;
  poll(kSecond, 0, true);
  begins();
  poll(20, 5, true);
  const auto period = ends(2);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 2u);
  EXPECT_EQ(period->took_ns, 25u);
  EXPECT_EQ(period->added_ns, 0u);
  EXPECT_EQ(period->late_ns, 0u);
}

TEST_F(EnginePeriodsTest, NobodyPolledAlthoughThereWasSomethingToDo) {
  begins();
  poll(kMs, 10, true);
  poll(EnginePeriods::kGapNs, 5 * kMs, true);  // in time, and then at work for long
  poll(2 * kMs, 10, true);
  poll(4 * kMs, 10, false);  // a thread with nothing to do may have yielded
  poll(100, 10, true);
  const auto period = ends(1);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->late_ns, 3 * kMs);
}

TEST_F(EnginePeriodsTest, ALongStreamIsCut) {
  begins();
  begins();
  now_ += EnginePeriods::kLongNs - 1;
  EXPECT_FALSE(ends(10));
  begins();
  poll(1, 0, true);
  auto period = ends(20);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 30u);
  EXPECT_EQ(period->took_ns, EnginePeriods::kLongNs);
  EXPECT_EQ(period->late_ns, EnginePeriods::kLongNs);
  begins();
  added_ += 2;
  now_ += EnginePeriods::kLongNs;
  period = ends(40);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 40u);
  EXPECT_EQ(period->added_ns, 2u);
  EXPECT_EQ(period->late_ns, 0u);
  now_ += 1;
  EXPECT_FALSE(ends(80)) << "most of its bytes were carried before";
  begins();
  now_ += 5;
  period = ends(3);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 3u);
}

TEST_F(EnginePeriodsTest, OneThatDoesNotCountSpoilsThePeriod) {
  begins();
  begins(false);
  begins();
  EXPECT_FALSE(periods_.counts());
  now_ += 10;
  EXPECT_FALSE(ends(1));
  EXPECT_FALSE(ends(1));
  EXPECT_FALSE(ends(1));
  begins(false);
  EXPECT_FALSE(ends(1));
  begins();
  EXPECT_TRUE(periods_.counts());
  now_ += 10;
  EXPECT_TRUE(ends(1));
}

}  // namespace
}  // namespace r2ccl::collective
