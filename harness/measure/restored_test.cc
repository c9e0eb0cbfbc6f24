// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/restored.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

using r2ccl::trace::EventType;

class Home : public testing::Test {
 protected:
  void emit(uint64_t time_ns, EventType type, uint32_t rank, uint32_t channel, uint64_t b = 0,
            uint64_t c = 0) {
    r2ccl::trace::Event event{};
    event.time_ns = time_ns;
    event.type = type;
    event.channel = channel;
    event.b = b;
    event.c = c;
    trace.push_back({rank, event});
  }
  /// A channel's end leaves `from` and carries on on `to`.
  void migrate(uint64_t time_ns, uint32_t rank, uint32_t channel, uint64_t from, uint64_t to) {
    emit(time_ns, EventType::kFenceStarted, rank, channel, from);
    emit(time_ns, EventType::kMigrationStarted, rank, channel, from);
    emit(time_ns + 5, EventType::kMigrationDone, rank, channel, 1, to);
  }
  void fail_back(uint64_t time_ns, uint32_t rank, uint32_t channel, uint64_t from, uint64_t to) {
    migrate(time_ns, rank, channel, from, to);
    emit(time_ns + 6, EventType::kFailback, rank, channel);
  }
  std::optional<uint64_t> since(uint64_t until_ns = 1'000'000) { return home_since(trace, until_ns, why); }

  std::vector<RankEvent> trace;
  std::string why;
};

TEST_F(Home, is_where_everything_is_after_the_last_failback) {
  migrate(100, 0, 3, 1, 2);
  migrate(110, 1, 3, 1, 2);
  fail_back(500, 0, 3, 2, 7);
  fail_back(520, 1, 3, 2, 7);
  EXPECT_EQ(since(), 526u);
}

TEST_F(Home, is_nowhere_while_one_end_of_a_channel_is_elsewhere) {
  migrate(100, 0, 3, 1, 2);
  migrate(110, 1, 3, 1, 2);
  fail_back(500, 0, 3, 2, 7);
  EXPECT_EQ(since(), std::nullopt);
  EXPECT_EQ(why, "1 ends of channels were not home again");
}

TEST_F(Home, is_nowhere_when_a_channel_left_again) {
  migrate(100, 0, 3, 1, 2);
  fail_back(500, 0, 3, 2, 7);
  migrate(900, 0, 3, 7, 9);
  EXPECT_EQ(since(), std::nullopt);
}

TEST_F(Home, is_nowhere_while_a_channel_moves) {
  migrate(100, 0, 3, 1, 2);
  fail_back(500, 0, 3, 2, 7);
  emit(900, EventType::kMigrationStarted, 0, 3, 7);
  EXPECT_EQ(since(), std::nullopt);
  EXPECT_EQ(since(899), 506u);
}

TEST_F(Home, was_not_left_by_a_migration_that_came_back_to_its_path) {
  migrate(100, 0, 3, 1, 2);
  fail_back(500, 0, 3, 2, 7);
  migrate(600, 0, 3, 7, 7);
  EXPECT_EQ(since(), 605u) << "but it was a disturbance";
}

TEST_F(Home, was_not_left_by_a_lane_that_failed_beside_it) {
  migrate(100, 0, 3, 5, 1);  // lane 5; path 1 goes on
  EXPECT_EQ(since(), 105u);
  migrate(200, 0, 3, 1, 6);
  migrate(300, 0, 3, 4, 6);
  EXPECT_EQ(since(), std::nullopt);
  fail_back(400, 0, 3, 6, 9);
  migrate(500, 0, 3, 8, 9);
  EXPECT_EQ(since(), 505u);
}

TEST_F(Home, is_where_nothing_ever_left) { EXPECT_EQ(since(), 0u); }

TEST_F(Home, does_not_count_what_comes_after_the_end) {
  migrate(100, 0, 3, 1, 2);
  fail_back(500, 0, 3, 2, 7);
  EXPECT_EQ(since(300), std::nullopt) << "not yet home";
  migrate(2'000'000, 0, 3, 7, 9);
  EXPECT_EQ(since(), 506u);
}

uint64_t at(double ms) { return uint64_t(ms * 1e6); }

std::vector<OperationSpan> back_to_back(const std::vector<double>& lengths_ms) {
  std::vector<OperationSpan> operations;
  double now = 0;
  for (double length : lengths_ms) {
    operations.push_back({operations.size(), {at(now), at(now + length)}, true});
    now += length;
  }
  return operations;
}

/// Twelve of 10 ms, a fault at 125 ms, ten of 20 ms, repaired at 320 ms, then `after`.
Restored of(const std::vector<double>& after, double repaired_ms = 320) {
  std::vector<double> lengths(12, 10.0);
  lengths.insert(lengths.end(), 10, 20.0);
  lengths.insert(lengths.end(), after.begin(), after.end());
  return restored(back_to_back(lengths), at(125), {at(repaired_ms), at(100'000)});
}

TEST(Restored, compares_the_median_after_with_the_median_before) {
  std::vector<double> after(11, 10.0);
  after[3] = 400;  // the machine held its breath
  const Restored result = of(after);
  ASSERT_TRUE(result.ratio) << result.why_not;
  EXPECT_DOUBLE_EQ(*result.ratio, 1);
  EXPECT_EQ(result.operations_before, 12u);
  EXPECT_EQ(result.operations_after, 11u);
}

TEST(Restored, sees_operations_that_stay_slow) {
  EXPECT_NEAR(*of(std::vector<double>(20, 10.25)).ratio, 0.9756, 1e-4);
  EXPECT_DOUBLE_EQ(*of(std::vector<double>(20, 20.0)).ratio, 0.5);
}

TEST(Restored, counts_whole_operations_only) {
  const Restored result = of(std::vector<double>(20, 10.0), 325);
  EXPECT_EQ(result.operations_after, 19u) << "one had begun before everything was repaired";
  auto operations = back_to_back(std::vector<double>(40, 10.0));
  operations.back().complete = false;
  EXPECT_EQ(restored(operations, at(105), {at(200), at(400)}).operations_after, 19u);
  EXPECT_EQ(restored(operations, at(105), {at(200), at(400)}).operations_before, 10u);
}

Restored round_of(std::optional<double> ratio, const char* why_not = "", size_t operations_after = 20) {
  return {ratio, why_not, 10, ratio ? 10 / *ratio : 0, 12, operations_after, 1, 1, 0};
}

TEST(Restored, is_that_of_the_worst_round) {
  const Restored worst = worst_of({round_of(0.99), round_of(0.5, "", 11), round_of(1.01)});
  EXPECT_DOUBLE_EQ(worst.ratio.value_or(0), 0.5);
  EXPECT_DOUBLE_EQ(worst.after_ms, 20);
  EXPECT_EQ(worst.operations_after, 11u);
  EXPECT_EQ(worst.rounds, 3u);
  EXPECT_EQ(worst.rounds_home, 3u);
  EXPECT_EQ(worst.why_not, "");
}

TEST(Restored, says_which_round_is_missing) {
  for (const auto& rounds : {std::vector{round_of(0.9), round_of({}, "round 2"), round_of({}, "round 3")},
                             std::vector{round_of({}, "round 2"), round_of(0.9), round_of({}, "round 3")}}) {
    const Restored worst = worst_of(rounds);
    EXPECT_DOUBLE_EQ(worst.ratio.value_or(0), 0.9);
    EXPECT_EQ(worst.why_not, "round 2");
    EXPECT_EQ(worst.rounds, 3u);
  }
}

TEST(Restored, is_not_known_where_no_round_was_measured) {
  const Restored none = worst_of({round_of({}, "round 1"), round_of({}, "round 2")});
  EXPECT_FALSE(none.ratio);
  EXPECT_EQ(none.why_not, "round 1");
  Restored late = round_of(0.5);
  late.rounds_home = 0, late.rounds_late = 1;
  EXPECT_EQ(worst_of({late, late, round_of(1)}).rounds_late, 2u);
  EXPECT_EQ(worst_of({late, late, round_of(1)}).rounds_home, 1u);
}

TEST(Restored, is_not_known_from_a_few_operations) {
  const Restored few_after = of(std::vector<double>(9, 10.0));
  EXPECT_FALSE(few_after.ratio);
  EXPECT_EQ(few_after.why_not, "only 9 operations once everything was repaired; 10 are wanted");
  const Restored few_before =
      restored(back_to_back(std::vector<double>(40, 10.0)), at(95), {at(200), at(400)});
  EXPECT_FALSE(few_before.ratio);
  EXPECT_EQ(few_before.why_not, "only 9 operations before the first fault; 10 are wanted");
}

}  // namespace
}  // namespace r2bench
