// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/engine_pace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace r2ccl::collective {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000 * kMs;

class EnginePaceTest : public ::testing::Test {
 protected:
  /// One period of `ms`, for which NCCL's ring would need `ring_ms`; the host has `host` of it.
  std::optional<EnginePace::Yield> period(uint64_t ms, double ring_ms, double host) {
    now_ += ms * kMs;
    EnginePeriod period;
    period.bytes = 1000 * ms;
    period.took_ns = ms * kMs;
    period.host_ns = uint64_t(host * double(period.took_ns));
    return pace_.ended(period, ring_ms * 1e-3, now_, [this](uint64_t bytes) {
      asked_ = bytes;
      return predicted_;
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
  uint64_t asked_ = 0;
  double predicted_ = 0.9;
};

TEST_F(EnginePaceTest, YieldsAfterFourSlowPeriods) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 200, 0.9)) << i;
  EXPECT_EQ(relative(), 1);
  const auto yield = period(400, 200, 0.9);
  ASSERT_TRUE(yield);
  EXPECT_NEAR(yield->to_ring, 2, 1e-9);
  EXPECT_NEAR(yield->host_share, 0.9, 1e-6);
  EXPECT_NEAR(relative(), 0.45, 1e-9) << "0.9 times as long predicted, 2 times taken";
  EXPECT_EQ(asked_, 400'000u);
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
  EXPECT_EQ(asked_, 110'000u);
}

TEST_F(EnginePaceTest, OneFastPeriodIsEnoughToGoOn) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 100, 0.9));
    EXPECT_FALSE(period(107, 100, 0.9));
  }
  EXPECT_EQ(relative(), 1);
}

// Others may use the NIC, too, or a peer may be late: then NCCL's ring would be no faster.
TEST_F(EnginePaceTest, SlowForOtherReasonsThanTheHost) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(period(200, 100, 0.49));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 100, 0.9));
  EXPECT_FALSE(period(400, 100, 0.49));
  EXPECT_EQ(relative(), 1);
}

TEST_F(EnginePaceTest, ShortOperationsSayNothing) {
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(period(10, 1.9, 0.9));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(period(400, 100, 0.9));
  EXPECT_FALSE(period(10, 1.9, 0));  // nor that it is fast
  EXPECT_TRUE(period(400, 100, 0.9));
}

TEST_F(EnginePaceTest, NeverFasterThanPredicted) {
  predicted_ = 3;
  ASSERT_TRUE(until_it_yields(40));
  EXPECT_EQ(relative(), 1) << "3 times as long predicted, 2 times taken";
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
    EXPECT_FALSE(period(0, 100, 0.9));  // what runs while it yields does not count
    now_ += 1;
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
  now_ += 4 * EnginePace::kFirstNs - kSecond;
  const auto again = until_it_yields(20);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->for_ns, 8 * 32 * kSecond);
  now_ += again->for_ns + 8 * 32 * kSecond;
  const auto anew = until_it_yields(20);
  ASSERT_TRUE(anew);
  EXPECT_EQ(anew->for_ns, 32 * kSecond);
}

class EnginePeriodsTest : public ::testing::Test {
 protected:
  void begins(bool counts = true) { periods_.begins(open_++, counts, look()); }
  std::optional<EnginePeriod> ends(uint64_t bytes) {
    return periods_.ended(bytes, --open_, now_.now, look());
  }
  std::function<std::optional<EnginePeriods::Sight>()> look() {
    return [this]() -> std::optional<EnginePeriods::Sight> {
      ++looks_;
      if (blind_) return std::nullopt;
      return now_;
    };
  }
  void pass(uint64_t ns, uint64_t waits = 0, uint64_t adds = 0) {
    now_.now += ns;
    now_.waited += waits;
    now_.added += adds;
  }
  EnginePeriods periods_;
  EnginePeriods::Sight now_{5 * kSecond, 3 * kSecond, kSecond};
  size_t open_ = 0;
  int looks_ = 0;
  bool blind_ = false;
};

TEST_F(EnginePeriodsTest, LastsUntilNothingIsUnderWay) {
  begins();
  pass(10);
  begins();
  pass(20, 4, 3);
  EXPECT_FALSE(ends(100));
  begins();
  pass(30, 5);
  EXPECT_FALSE(ends(200));
  const auto period = ends(300);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 600u);
  EXPECT_EQ(period->took_ns, 60u);
  EXPECT_EQ(period->host_ns, 12u);
  EXPECT_EQ(looks_, 2) << "only at its ends";
}

TEST_F(EnginePeriodsTest, TimeBetweenPeriodsDoesNotCount) {
  begins();
  pass(10);
  EXPECT_TRUE(ends(1));
  pass(1000, 1000, 1000);
  begins();
  pass(20, 7);
  const auto period = ends(2);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 2u);
  EXPECT_EQ(period->took_ns, 20u);
  EXPECT_EQ(period->host_ns, 7u);
}

TEST_F(EnginePeriodsTest, ALongStreamIsCut) {
  begins();
  begins();
  pass(EnginePeriods::kLongNs - 1);
  EXPECT_FALSE(ends(10));
  begins();
  pass(1, 1);
  auto period = ends(20);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 30u);
  EXPECT_EQ(period->took_ns, EnginePeriods::kLongNs);
  begins();
  pass(EnginePeriods::kLongNs, 2);
  period = ends(40);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 40u);
  EXPECT_EQ(period->host_ns, 2u);
  pass(1);
  EXPECT_FALSE(ends(80)) << "most of its bytes were carried before";
  begins();
  pass(5);
  period = ends(3);
  ASSERT_TRUE(period);
  EXPECT_EQ(period->bytes, 3u);
}

TEST_F(EnginePeriodsTest, OneThatDoesNotCountSpoilsThePeriod) {
  begins();
  begins(false);
  begins();
  pass(10);
  EXPECT_FALSE(ends(1));
  EXPECT_FALSE(ends(1));
  EXPECT_FALSE(ends(1));
  begins(false);
  EXPECT_FALSE(ends(1));
  begins();
  pass(10);
  EXPECT_TRUE(ends(1));
}

TEST_F(EnginePeriodsTest, WithoutTheClockThereIsNone) {
  blind_ = true;
  begins();
  EXPECT_FALSE(ends(1));
  blind_ = false;
  begins();
  blind_ = true;
  EXPECT_FALSE(ends(1));
}

}  // namespace
}  // namespace r2ccl::collective
