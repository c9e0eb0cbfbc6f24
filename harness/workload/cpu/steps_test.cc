// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/steps.h"

#include <gtest/gtest.h>

#include <deque>
#include <tuple>
#include <vector>

namespace r2bench {
namespace {

constexpr uint64_t contribution(size_t rank) { return uint64_t{1} << (8 * rank); }
constexpr uint64_t everybody(int ranks) {
  uint64_t all = 0;
  for (int r = 0; r < ranks; ++r) all |= contribution(size_t(r));
  return all;
}

/// Runs the lanes of all ranks, on buffers of `total` elements, on sets of contributions (one bit per rank)
/// instead of numbers.
std::vector<std::vector<uint64_t>> simulate(const std::vector<Lane>& lanes, size_t total) {
  const size_t ranks = lanes.size();
  std::vector<std::vector<uint64_t>> output(size_t(ranks), std::vector<uint64_t>(total, 0));
  std::vector<std::deque<std::vector<uint64_t>>> wire(static_cast<size_t>(ranks));  // towards that rank
  std::vector<size_t> next(size_t(ranks), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < size_t(ranks); ++r) {
      if (next[r] == lanes[r].size()) continue;
      const Step& step = lanes[r][next[r]];
      if (step.receives && wire[r].empty()) continue;
      std::vector<uint64_t> value(step.count, contribution(r));
      if (step.receives) {
        const auto received = wire[r].front();
        wire[r].pop_front();
        EXPECT_EQ(received.size(), step.count);
        uint64_t said = 0;
        for (int i = 0; i < step.addends; ++i) said += contribution(size_t(step.origin + i) % ranks);
        for (const uint64_t contributions : received) EXPECT_EQ(contributions, said);
        for (size_t k = 0; k < step.count; ++k)
          value[k] = step.reduces ? value[k] + received[k] : received[k];
      }
      if (step.stores)
        for (size_t k = 0; k < step.count; ++k) output[r][step.first + k] += value[k];
      if (step.sends) wire[(r + 1) % size_t(ranks)].push_back(value);
      ++next[r];
      moved = true;
    }
  }
  for (size_t r = 0; r < size_t(ranks); ++r) {
    EXPECT_EQ(next[r], lanes[r].size()) << "rank " << r << " is stuck";
    EXPECT_TRUE(wire[r].empty());
  }
  return output;
}

class RingAllReduce : public testing::TestWithParam<std::tuple<int, size_t, size_t>> {};

TEST_P(RingAllReduce, every_rank_ends_with_every_contribution_exactly_once) {
  const auto [ranks, count, slice] = GetParam();
  const uint64_t all = everybody(ranks);
  std::vector<Lane> lanes;
  for (int r = 0; r < ranks; ++r) lanes.push_back(ring_all_reduce(r, ranks, {10, count}, slice));
  const auto output = simulate(lanes, 10 + count);
  for (const auto& rank : output) {
    for (size_t k = 0; k < 10; ++k) ASSERT_EQ(rank[k], 0u);
    for (size_t k = 10; k < 10 + count; ++k) ASSERT_EQ(rank[k], all) << "element " << k;
  }
}

// The others, on the part [10, 10 + count) of chunks that are 5 elements longer at each end.
class RingOperations : public testing::TestWithParam<std::tuple<int, size_t, size_t>> {};

TEST_P(RingOperations, all_gather_leaves_each_rank_with_each_others_chunk_once) {
  const auto [ranks, count, slice] = GetParam();
  const size_t share = count + 15, n = size_t(ranks);
  std::vector<Lane> lanes;
  for (int r = 0; r < ranks; ++r) lanes.push_back(ring_all_gather(r, ranks, share, {10, count}, slice));
  for (const auto& rank : simulate(lanes, share * n))
    for (size_t k = 0; k < share * n; ++k)
      ASSERT_EQ(rank[k], k % share >= 10 && k % share < 10 + count ? contribution(k / share) : 0)
          << "element " << k;
}

TEST_P(RingOperations, reduce_scatter_leaves_each_rank_with_every_contribution_to_its_chunk_once) {
  const auto [ranks, count, slice] = GetParam();
  const size_t share = count + 15, n = size_t(ranks);
  std::vector<Lane> lanes;
  for (int r = 0; r < ranks; ++r) lanes.push_back(ring_reduce_scatter(r, ranks, share, {10, count}, slice));
  const auto output = simulate(lanes, share * n);
  for (size_t r = 0; r < n; ++r)
    for (size_t k = 0; k < share * n; ++k)
      ASSERT_EQ(output[r][k],
                k / share == r && k % share >= 10 && k % share < 10 + count ? everybody(ranks) : 0)
          << "element " << k << " of rank " << r;
}

TEST_P(RingOperations, broadcast_leaves_every_other_rank_with_the_first_ones_part_once) {
  const auto [ranks, count, slice] = GetParam();
  std::vector<Lane> lanes;
  for (int r = 0; r < ranks; ++r) lanes.push_back(ring_broadcast(r, ranks, {10, count}, slice));
  const auto output = simulate(lanes, 10 + count);
  for (size_t r = 1; r < size_t(ranks); ++r)
    for (size_t k = 0; k < 10 + count; ++k)
      ASSERT_EQ(output[r][k], k >= 10 ? contribution(0) : 0) << "element " << k;
}

INSTANTIATE_TEST_SUITE_P(Sizes, RingAllReduce,
                         testing::Combine(testing::Values(2, 3, 4, 8),
                                          testing::Values<size_t>(1, 3, 16, 1000, 1024, 4097, 10000),
                                          testing::Values<size_t>(64, 512)));

INSTANTIATE_TEST_SUITE_P(Sizes, RingOperations,
                         testing::Combine(testing::Values(2, 3, 8), testing::Values<size_t>(1, 3, 1000, 4097),
                                          testing::Values<size_t>(64, 512)));

TEST(RingAllReduceEdges, an_empty_part_has_no_steps) {
  EXPECT_TRUE(ring_all_reduce(0, 4, {0, 0}, 64).empty());
}

TEST(ChannelPart, parts_cover_the_buffer_without_overlap) {
  for (size_t count : {1, 63, 64, 1000, 4096}) {
    size_t next = 0;
    for (int c = 0; c < 7; ++c) {
      const Part part = channel_part(count, c, 7, 64);
      EXPECT_EQ(part.first, next);
      next += part.count;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(SendRecv, an_empty_part_is_one_empty_message) {
  const auto lanes = send_recv({5, 0}, {5, 0}, 100);
  ASSERT_EQ(lanes[0].size(), 1u);
  EXPECT_EQ(lanes[0][0].count, 0u);
  EXPECT_TRUE(lanes[0][0].sends);
  EXPECT_TRUE(lanes[1][0].receives);
}

TEST(SendRecv, messages_cover_the_part_in_order) {
  const auto lanes = send_recv({5, 250}, {1005, 250}, 100);
  ASSERT_EQ(lanes[0].size(), 3u);
  EXPECT_EQ(lanes[0][2].first, 205u);
  EXPECT_EQ(lanes[0][2].count, 50u);
  ASSERT_EQ(lanes[1].size(), 3u);
  EXPECT_EQ(lanes[1][2].first, 1205u);
}

}  // namespace
}  // namespace r2bench
