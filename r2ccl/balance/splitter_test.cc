// SPDX-License-Identifier: Apache-2.0
// How messages are cut: every byte travels once, and each lane carries its share.
#include "r2ccl/balance/splitter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace r2ccl::balance {
namespace {

std::vector<LaneShare> lanes(const std::vector<double>& shares) {
  std::vector<LaneShare> out;
  for (const double share : shares) out.push_back({share, false});
  return out;
}

/// Cuts `messages` messages of `bytes` and checks each; returns the bytes per lane.
std::vector<double> cut(Splitter& splitter, size_t messages, uint32_t bytes, uint64_t address,
                        size_t* most = nullptr) {
  std::vector<double> carried(splitter.lanes(), 0);
  for (size_t m = 0; m < messages; ++m) {
    std::array<Piece, kMaxRails> pieces;
    const size_t count = splitter.split(address, bytes, pieces);
    if (most) *most = std::max(*most, count);
    EXPECT_GE(count, 1u);
    uint32_t at = 0;
    unsigned lanes = 0;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(pieces[i].offset, at) << "no gap, no overlap";
      EXPECT_LT(pieces[i].lane, splitter.lanes());
      EXPECT_FALSE(lanes & 1u << pieces[i].lane) << "a lane of its own";
      EXPECT_EQ(lanes >> pieces[i].lane, 0u) << "in the order of the lanes";
      lanes |= 1u << pieces[i].lane;
      EXPECT_TRUE(i == 0 || (address + at) % Splitter::kGrain == 0);
      EXPECT_TRUE(count == 1 || pieces[i].bytes >= Splitter::kLeastPiece - Splitter::kGrain);
      at += pieces[i].bytes;
      carried[pieces[i].lane] += pieces[i].bytes;
    }
    EXPECT_EQ(at, bytes);
  }
  return carried;
}

TEST(Splitter, every_byte_travels_once_and_each_lane_carries_its_share) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const size_t count = 1 + random() % kMaxRails;
    std::vector<double> share(count);
    for (double& s : share) s = double(random() % 100);
    share[random() % count] += 1;
    const double all = std::accumulate(share.begin(), share.end(), 0.0);
    for (double& s : share) s /= all;
    Splitter splitter;
    splitter.set(lanes(share));
    const uint32_t bytes = Splitter::kWhole + uint32_t(random() % (2 << 20));
    const auto carried = cut(splitter, 200, bytes, random() * 4ull);
    for (size_t lane = 0; lane < count; ++lane)
      EXPECT_NEAR(carried[lane] / (200.0 * bytes), share[lane], 0.01)
          << "round " << round << ", lane " << lane;
  }
}

TEST(Splitter, small_messages_stay_whole_and_away_from_slow_lanes) {
  Splitter splitter;
  splitter.set(lanes({0.2, 0.5, 0.3}));
  size_t most = 0;
  const uint32_t small = Splitter::kWhole - 1;
  auto carried = cut(splitter, 1000, small, 0, &most);
  EXPECT_EQ(most, 1u);
  for (size_t lane = 0; lane < 3; ++lane)
    EXPECT_NEAR(carried[lane] / (1000.0 * small), (std::array{0.2, 0.5, 0.3}[lane]), 0.01);
  // The largest share may well be that of a slow lane: it is home.
  const std::vector<LaneShare> slow{{0.2, false}, {0.5, true}, {0.3, false}};
  splitter.set(slow);
  carried = cut(splitter, 1000, small, 0, &most);
  EXPECT_EQ(most, 1u);
  EXPECT_EQ(carried[1], 0);
  EXPECT_NEAR(carried[0] / (1000.0 * small), 0.4, 0.01);
  // It is not made up for with large ones.
  carried = cut(splitter, 100, 1 << 20, 0);
  EXPECT_NEAR(carried[1] / 100 / (1 << 20), 0.5, 0.02);
  const std::vector<LaneShare> all_slow{{0.5, true}, {0.5, true}};
  splitter.set(all_slow);
  carried = cut(splitter, 1000, small, 0);
  EXPECT_NEAR(carried[1] / (1000.0 * small), 0.5, 0.01);
}

TEST(Splitter, the_tiniest_messages_stay_on_one_swift_lane) {
  constexpr uint32_t tiny = Splitter::kTiny - 1;
  Splitter splitter;
  splitter.set(lanes({0.25, 0.25, 0.25, 0.25}));
  EXPECT_EQ(cut(splitter, 1000, tiny, 0), (std::vector<double>{1000.0 * tiny, 0, 0, 0})) << "the active path";
  EXPECT_EQ(splitter.lane_of_tiny(), 0u);
  // Others do not make up for them.
  const auto carried = cut(splitter, 1000, Splitter::kTiny, 0);
  for (const double bytes : carried) EXPECT_EQ(bytes, 250.0 * Splitter::kTiny);
  splitter.set(lanes({0.2, 0.5, 0.3}));
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[1], 10.0 * tiny);
  EXPECT_EQ(splitter.lane_of_tiny(), 1u);
  splitter.set(lanes({0.3, 0.36, 0.34}));
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[0], 10.0 * tiny) << "somewhat less";
  splitter.set(lanes({0.21, 0.35, 0.44}), 0, 1);
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[1], 10.0 * tiny) << "less than half of the largest";
  splitter.set(lanes({0.3, 0.36, 0.34}), Spread::kNoLane, 2);
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[2], 10.0 * tiny) << "another is wanted";
  splitter.set(lanes({0.45, 0.1, 0.45}), Spread::kNoLane, 1);
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[2], 10.0 * tiny) << "the next that is good enough";
  splitter.set(lanes({0.45, 0.45, 0.1}), Spread::kNoLane, 2);
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[0], 10.0 * tiny) << "and after the last one the first";
  splitter.set(lanes({0.5, 0.5}), Spread::kNoLane, 4097);
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[1], 10.0 * tiny) << "modulo the number of lanes";
  splitter.set(lanes({0.3, 0.36, 0.34}), 2, 1);
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[2], 10.0 * tiny) << "the one that is preferred";
  EXPECT_TRUE(splitter.may_carry_tiny(0));
  splitter.set(lanes({0.5, 0.4, 0.1}), 2, 1);
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[1], 10.0 * tiny) << "its share is too small";
  EXPECT_TRUE(splitter.may_carry_tiny(0));
  EXPECT_FALSE(splitter.may_carry_tiny(2));
  // The throttled NIC's own channels do not all go to the same other one.
  for (size_t number = 1; number < 4; ++number) {
    splitter.set(std::vector<LaneShare>{{0.25, true}, {0.25, false}, {0.25, false}, {0.25, false}}, 0,
                 number);
    EXPECT_EQ(cut(splitter, 10, tiny, 0)[number], 10.0 * tiny);
  }
  splitter.set(lanes({-0.5, -0.5}));
  EXPECT_LT(splitter.lane_of_tiny(), 2u) << "of what no share can be";
  splitter.set({});
  EXPECT_EQ(splitter.lane_of_tiny(), 0u);
  splitter.set(std::vector<LaneShare>{{0.1, false}, {0.5, true}, {0.4, false}});
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[2], 10.0 * tiny) << "of the swift ones";
  splitter.set(std::vector<LaneShare>{{0.8, true}, {0.2, true}});
  EXPECT_EQ(cut(splitter, 10, tiny, 0)[0], 10.0 * tiny) << "all are slow";
}

TEST(Splitter, no_more_pieces_than_are_needed) {
  Splitter splitter;
  splitter.set(lanes(std::vector<double>(8, 1.0 / 8)));
  size_t most = 0;
  cut(splitter, 100, Splitter::kWhole, 64, &most);
  EXPECT_LE(most, 4u) << "64 KiB are not cut into pieces below 16 KiB";
  EXPECT_GE(most, 2u) << "from this size on messages are cut";
}

TEST(Splitter, where_all_lanes_are_slow_small_messages_go_by_the_shares) {
  Splitter splitter;
  splitter.set(std::vector<LaneShare>{{0.8, true}, {0.2, true}});
  const auto carried = cut(splitter, 1000, Splitter::kTiny, 0);
  EXPECT_NEAR(carried[0] / (1000.0 * Splitter::kTiny), 0.8, 0.01);
}

TEST(Splitter, other_shares_begin_without_credit) {
  Splitter splitter;
  std::array<Piece, kMaxRails> pieces;
  splitter.set(lanes({0.5, 0.5}));
  splitter.split(0, Splitter::kWhole - 1, pieces);
  ASSERT_EQ(pieces[0].lane, 0) << "so the other one is behind";
  splitter.set(lanes({0.9, 0.1}));
  splitter.split(0, Splitter::kTiny, pieces);
  EXPECT_EQ(pieces[0].lane, 0);
  ASSERT_EQ(splitter.split(0, Splitter::kWhole, pieces), 1u) << "a tenth of it is not worth a piece";
  splitter.set(lanes({0.5, 0.5}));
  ASSERT_EQ(splitter.split(0, Splitter::kWhole, pieces), 2u);
  EXPECT_EQ(pieces[0].bytes, Splitter::kWhole / 2);
}

TEST(Splitter, a_share_that_is_not_worth_a_piece_adds_up_until_it_is) {
  Splitter splitter;
  splitter.set(lanes({0.9, 0.1}));
  const auto carried = cut(splitter, 100, Splitter::kWhole, 0);
  EXPECT_NEAR(carried[1] / (100.0 * Splitter::kWhole), 0.1, 0.005);
}

TEST(Splitter, a_lane_that_gets_none_leaves_its_part_to_the_others_by_their_shares) {
  Splitter splitter;
  splitter.set(lanes({0.45, 0.45, 0.1}));
  std::array<Piece, kMaxRails> pieces;
  ASSERT_EQ(splitter.split(0, Splitter::kWhole, pieces), 2u);
  EXPECT_EQ(pieces[0].bytes, Splitter::kWhole / 2);
}

TEST(Splitter, has_no_more_lanes_than_a_message_may_have_pieces) {
  Splitter splitter;
  splitter.set(lanes(std::vector<double>(kMaxRails + 1, 1.0 / (kMaxRails + 1))));
  EXPECT_EQ(splitter.lanes(), kMaxRails);
}

TEST(Splitter, empty_messages_and_a_single_lane) {
  Splitter splitter;
  splitter.set(lanes({1}));
  cut(splitter, 3, 1 << 20, 5);
  std::array<Piece, kMaxRails> pieces;
  EXPECT_EQ(splitter.split(0, 0, pieces), 1u);
  EXPECT_EQ(pieces[0].bytes, 0u);
}

TEST(Splitter, shares_that_differ_hardly_at_all_are_alike) {
  EXPECT_TRUE(alike({0.5, false}, {0.509, false}));
  EXPECT_FALSE(alike({0.5, false}, {0.511, false}));
  EXPECT_FALSE(alike({0.5, false}, {0.5, true}));
}

TEST(Spread, is_over_the_paths_that_are_to_carry_something) {
  const std::vector<uint32_t> carriers{7, 4, 9};
  const std::vector<LaneShare> shares{{0.5, false}, {0, false}, {0.5, true}};
  const Spread over = spread(carriers, shares);
  EXPECT_EQ(over.over, (std::vector<uint32_t>{7, 9}));
  ASSERT_EQ(over.parts.size(), 2u);
  EXPECT_TRUE(alike(over.parts[0], shares[0]));
  EXPECT_TRUE(alike(over.parts[1], shares[2]));
}

TEST(Spread, is_over_nothing_where_the_active_path_carries_everything) {
  const std::vector<uint32_t> carriers{7, 4};
  EXPECT_TRUE(spread(carriers, {}).over.empty());
  EXPECT_TRUE(spread(carriers, std::vector<LaneShare>{{1, false}, {0, false}}).over.empty());
  EXPECT_EQ(spread(carriers, std::vector<LaneShare>{{0, false}, {1, false}}).over, std::vector<uint32_t>{4})
      << "a lane may carry everything";
}

TEST(Spread, shares_without_a_path_and_paths_without_a_share_count_for_nothing) {
  const std::vector<LaneShare> shares{{0.5, false}, {0.25, false}, {0.25, false}};
  EXPECT_EQ(spread(std::vector<uint32_t>{0, 4, 9}, shares).over, (std::vector<uint32_t>{4, 9}));
  EXPECT_EQ(spread(std::vector<uint32_t>{7, 4}, shares).over, (std::vector<uint32_t>{7, 4}));
  EXPECT_EQ(spread(std::vector<uint32_t>{7, 4, 9, 3}, shares).over, (std::vector<uint32_t>{7, 4, 9}));
}

TEST(Spread, is_the_same_while_paths_are_and_shares_hardly_differ) {
  const auto over = [](uint32_t lane, double share) {
    return spread(std::vector<uint32_t>{7, lane}, std::vector<LaneShare>{{1 - share, false}, {share, false}});
  };
  EXPECT_TRUE(over(4, 0.5) == over(4, 0.505));
  EXPECT_FALSE(over(4, 0.5) == over(4, 0.6));
  EXPECT_FALSE(over(4, 0.5) == over(5, 0.5));
  EXPECT_FALSE(over(4, 0.5) == over(4, 0));
  // The same lanes, of which the first is the active path, or not.
  const std::vector<LaneShare> halves{{0.5, false}, {0.5, false}};
  EXPECT_FALSE(
      spread(std::vector<uint32_t>{4, 5}, halves) ==
      spread(std::vector<uint32_t>{7, 4, 5}, std::vector<LaneShare>{{0, false}, {0.5, false}, {0.5, false}}));
}

TEST(Spread, prefers_a_path_for_the_tiniest_messages) {
  const std::vector<uint32_t> carriers{7, 4, 9};
  const std::vector<LaneShare> shares{{0.5, false}, {0, false}, {0.5, false}};
  EXPECT_EQ(spread(carriers, shares).for_tiny, 0u) << "the active path";
  EXPECT_EQ(spread(carriers, shares, 9).for_tiny, 1u);
  EXPECT_EQ(spread(carriers, shares, 4).for_tiny, 0u) << "it carries nothing";
  EXPECT_EQ(spread(carriers, shares, 3).for_tiny, 0u) << "it is gone";
  const std::vector<LaneShare> lanes_alone{{0, false}, {0.5, false}, {0.5, false}};
  EXPECT_EQ(spread(carriers, lanes_alone).for_tiny, Spread::kNoLane);
  EXPECT_EQ(spread(carriers, lanes_alone, 9).for_tiny, 1u);
  EXPECT_FALSE(spread(carriers, shares) == spread(carriers, shares, 9));
}

}  // namespace
}  // namespace r2ccl::balance
