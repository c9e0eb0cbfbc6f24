// SPDX-License-Identifier: Apache-2.0
// A rank's part of a schedule: no more of it than this rank needs, and ends that its peers number alike.
#include "r2ccl/collective/host/program.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/cost.h"

namespace r2ccl::collective {
namespace {

Schedule mix_of(uint32_t ranks) {
  std::vector<double> capacities(ranks, 1.0);
  capacities[1] = 0.5;
  capacities[2] = 0.75;
  return mix_allreduce(ranks, mix_fractions(capacities).parts, 4);
}

// A ring of 1024 ranks has 8 million operations, of which one rank runs 8 thousand.
TEST(Program, keeps_the_lanes_of_its_rank_alone) {
  for (uint32_t rank = 0; rank < 5; ++rank) {
    const Schedule whole = mix_of(5);
    const Program program(mix_of(5), rank, [](uint32_t, bool, uint32_t) { return 0u; });
    ASSERT_EQ(program.lanes().size(), whole.lanes[rank].size());
    for (size_t lane = 0; lane < program.lanes().size(); ++lane)
      EXPECT_EQ(program.lanes()[lane].ops, whole.lanes[rank][lane].ops);
    size_t operations = 0;
    for (const auto& lanes : program.schedule().lanes)
      for (const Lane& lane : lanes) operations += lane.ops.capacity();
    for (const Lane& lane : program.lanes()) operations -= lane.ops.capacity();
    EXPECT_EQ(operations, 0u) << rank;
  }
}

TEST(Program, both_ends_of_a_connection_have_one_ordinal_in_each_slot) {
  constexpr uint32_t kRanks = 5, kSlots = 3;
  // By sender, receiver, ordinal: how many ends.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> ends;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    std::set<std::tuple<uint32_t, bool, uint32_t>> own;
    const auto end_of = [&](uint32_t peer, bool sends, uint32_t ordinal) {
      EXPECT_TRUE(own.emplace(peer, sends, ordinal).second) << "an end of two lanes";
      ++ends[{sends ? rank : peer, sends ? peer : rank, ordinal}];
      return uint32_t(own.size());
    };
    const Program program(mix_of(kRanks), rank, end_of, {}, kSlots);
    EXPECT_EQ(own.size(), program.lanes().size() * kSlots);
  }
  for (const auto& [whose, count] : ends) EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace r2ccl::collective
