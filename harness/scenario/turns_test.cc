// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/turns.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace r2bench {
namespace {

/// One round of each number of copies, as turns.py is held to as well.
std::map<int, std::string> rounds_of_table() {
  std::map<int, std::string> rounds;
  std::ifstream file(R2BENCH_TURNS);
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#')) rounds[std::stoi(line)] += line.substr(line.find(' ') + 1);
  return rounds;
}

TEST(TurnsTest, sides_are_those_of_the_table_in_every_round) {
  const auto rounds = rounds_of_table();
  ASSERT_EQ(rounds.size(), 4u);
  for (const auto& [copies, sides] : rounds) {
    const Turns turns{copies};
    ASSERT_EQ(turns.round(), int(sides.size()));
    for (uint64_t i = 0; i < 3 * sides.size(); ++i)
      ASSERT_EQ(turns.side(i), sides[i % sides.size()] - '0') << copies << " copies, operation " << i;
  }
}

TEST(TurnsTest, each_turn_is_of_two_sets_four_eight_four) {
  for (int copies = 1; copies <= 16; ++copies) {
    const Turns turns{copies};
    for (int turn = 0; turn < 4 * copies; ++turn) {
      std::vector<int> sets;
      for (int i = 0; i < Turns::kTurn; ++i) sets.push_back(turns.set(uint64_t(turn * Turns::kTurn + i)));
      const int one = sets[0], other = sets[4];
      EXPECT_EQ(one / 2, turn % copies) << "the next pair";
      EXPECT_EQ(other, one ^ 1) << "of the same pair";
      std::vector<int> wanted(4, one);
      wanted.insert(wanted.end(), 8, other);
      wanted.insert(wanted.end(), 4, one);
      EXPECT_EQ(sets, wanted) << copies << " copies, turn " << turn;
    }
  }
}

TEST(TurnsTest, in_a_round_every_set_begins_once_and_has_as_many_operations) {
  for (int copies = 1; copies <= 16; ++copies) {
    const Turns turns{copies};
    std::map<int, int> begins, operations;
    for (int i = 0; i < turns.round(); ++i) {
      const int set = turns.set(uint64_t(i));
      ASSERT_EQ(Turns::side_of_set(set), turns.side(uint64_t(i))) << copies << " copies, operation " << i;
      ++operations[set];
      begins[set] += i % Turns::kTurn == 0;
    }
    ASSERT_EQ(int(operations.size()), turns.sets());
    for (int set = 0; set < turns.sets(); ++set) {
      EXPECT_EQ(begins[set], 1) << "set " << set << " of " << copies << " copies";
      EXPECT_EQ(operations[set], Turns::kTurn);
    }
  }
}

/// Made in the order 0 1 1 0 …: neither side has the older communicators.
TEST(TurnsTest, sets_are_made_alternately) {
  const std::vector<int> wanted = {0, 1, 1, 0, 0, 1, 1, 0};
  for (size_t set = 0; set < wanted.size(); ++set) EXPECT_EQ(Turns::side_of_set(int(set)), wanted[set]);
}

TEST(TurnsTest, warm_ups_go_through_all_sets) {
  const Turns turns{3};
  std::set<int> seen;
  for (uint64_t warmup = 0; warmup < 6; ++warmup) seen.insert(turns.set_of_warmup(warmup));
  EXPECT_EQ(seen.size(), 6u);
}

TEST(TurnsTest, without_a_comparison_there_is_one_set) {
  const Turns turns;
  EXPECT_EQ(turns.sets(), 1);
  for (uint64_t i = 0; i < 64; ++i) EXPECT_EQ(turns.set(i) + turns.side(i) + turns.set_of_warmup(i), 0);
}

}  // namespace
}  // namespace r2bench
