// SPDX-License-Identifier: Apache-2.0
// What a schedule says of itself: sizes, text, and that the largest is made at once.
#include "r2ccl/collective/schedule.h"

#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/tests/testing/sanitizer.h"

namespace r2ccl::collective {
namespace {

TEST(Schedule, cuts_elements_without_gap_or_overlap) {
  const std::vector<double> capacities = {1, 0.5, 1, 1, 0.75};
  for (const Schedule& schedule :
       {mix_allreduce(5, mix_fractions(capacities).parts, 3), ring_allgather(natural_order(5), 3),
        unequal_ring_allreduce(natural_order(5), unequal_ring(capacities).shares, 4)}) {
    for (const uint64_t elements : {0ull, 1ull, 7ull, 1000ull, (1ull << 28) + 3}) {
      auto ranges = chunk_ranges(schedule, elements);
      ASSERT_EQ(ranges.size(), schedule.chunks());
      std::sort(ranges.begin(), ranges.end());
      uint64_t next = 0;
      for (const auto& [first, count] : ranges) {
        if (count == 0) continue;
        EXPECT_EQ(first, next) << schedule.name;
        next = first + count;
      }
      EXPECT_EQ(next, elements) << schedule.name;
    }
  }
}

TEST(Schedule, a_ranks_block_of_an_allgather_is_one_piece) {
  const Schedule schedule = ring_allgather({2, 0, 1}, 4);
  const auto ranges = chunk_ranges(schedule, 1200);
  for (uint32_t chunk = 0; chunk < schedule.chunks(); ++chunk) {
    const uint32_t rank = schedule.origin[chunk];
    EXPECT_GE(ranges[chunk].first, rank * 400u);
    EXPECT_LE(ranges[chunk].first + ranges[chunk].second, (rank + 1) * 400u);
  }
}

TEST(Schedule, is_printed_operation_by_operation) {
  const std::string text = to_text(ring_allreduce({0, 1}, 3, 1), std::array{0u});
  EXPECT_EQ(text,
            "ring: AllReduce of 2 ranks, 2 connections, 24 operations\n"
            "part 0: 1 of the data, 3 segments of 2 chunks\n"
            "rank 0\n"
            "  lane 0 to rank 1 (ring, part 0, 3 ×, 3 credits, weight 1)\n"
            "    0: send 0\n"
            "    1: send 1 after 1.0\n"
            "  lane 1 from rank 1 (ring, part 0, 3 ×, 3 credits, weight 1)\n"
            "    0: recvReduce 1\n"
            "    1: recvCopy 0 after 0.0\n");
}

// 1024 ranks × 64 segments are to be made in under a second on a core of their own. CPU time of this thread
// is measured, so that what else runs on the machine counts little; the ratio says how much slower a machine
// may be.
TEST(Schedule, of_1024_ranks_and_64_segments_is_made_in_a_second) {
  constexpr double kSlowMachine = 3 * testing_support::kSanitizerFactor;
  std::vector<double> capacities(1024, 1);
  capacities[5] = 0.75;
  const std::vector<MixPart> mix = mix_fractions(capacities).parts;
  const std::vector<double> shares = direct_shares(capacities).shares;
  const auto operations = [](const char* property, auto make) {
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    const Schedule made = make();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                           1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    RecordProperty(property, static_cast<int>(seconds * 1e3));
    EXPECT_LT(seconds, 1 * kSlowMachine) << property;
    return made.operations();
  };
  EXPECT_EQ(operations("ring_ms", [&] { return ring_allreduce(natural_order(1024), 64); }),
            1024ull * 2 * 2 * 1023 * 2 * 64);
  EXPECT_GT(operations("mix_ms", [&] { return mix_allreduce(1024, mix, 64); }), 2 * 1020ull * 1020 * 64 * 4);
  EXPECT_GT(operations("double_tree_ms", [&] { return double_tree_allreduce(1024, 64); }), 1023ull * 4 * 64);
  EXPECT_GT(operations("r2ccl_allreduce_ms",
                       [&] { return r2ccl_allreduce(1024, r2ccl_rings(capacities, 64).rings, 64); }),
            1024ull * 2 * 2 * 1023);
  // Of each owner two chunks a segment: sent and received by all others, there and back.
  const auto owners = static_cast<uint64_t>(1024 - std::count(shares.begin(), shares.end(), 0.0));
  EXPECT_EQ(operations("direct_ms", [&] { return direct_allreduce(shares, 64); }),
            owners * 1023 * 2 * 2 * 2 * 64);
}

TEST(BridgeOrder, puts_a_rank_with_both_rails_between_ranks_that_lost_different_ones) {
  // 0 lost rail 0, 1 lost rail 1, the others have both.
  const std::vector<uint64_t> rails = {0b10, 0b01, 0b11, 0b11};
  const Ranks order = bridge_order(rails);
  ASSERT_EQ(order.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NE(rails[order[i]] & rails[order[(i + 1) % 4]], 0u) << i;
}

TEST(BridgeOrder, keeps_the_natural_order_where_nothing_is_lost) {
  EXPECT_EQ(bridge_order(std::vector<uint64_t>(6, 0xff)), natural_order(6));
}

/// The worst edge of the best ring, by trying all orders.
int best_worst_edge(const std::vector<uint64_t>& rails) {
  Ranks order = natural_order(static_cast<uint32_t>(rails.size()));
  int best = 0;
  do {
    int worst = 64;
    for (size_t i = 0; i < order.size(); ++i) {
      worst = std::min(worst, std::popcount(rails[order[i]] & rails[order[(i + 1) % order.size()]]));
    }
    best = std::max(best, worst);
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

TEST(BridgeOrder, has_the_best_worst_edge_of_all_orders_of_7_ranks) {
  uint64_t random = 12345;
  int missed = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<uint64_t> rails(7);
    for (uint64_t& mask : rails) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      mask = 0xf & ~(random >> 33 & random >> 40);
    }
    const Ranks order = bridge_order(rails);
    int worst = 64;
    for (size_t i = 0; i < 7; ++i)
      worst = std::min(worst, std::popcount(rails[order[i]] & rails[order[(i + 1) % 7]]));
    missed += worst < best_worst_edge(rails);
  }
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace r2ccl::collective
