// SPDX-License-Identifier: Apache-2.0
// SendingEndOf: which path stands still, and which tests poll. What it does with its messages is explored by
// protocol_model_test.
#include "r2ccl/protocol/sending.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace r2ccl {
namespace {

struct World {
  uint32_t carries = 1;
  std::set<uint32_t> busy;
  uint32_t active() const { return carries; }
  static std::vector<uint32_t> lanes() { return {2, 3}; }
  bool under_way(uint32_t path) const { return busy.count(path) != 0; }
};

TEST(StandingStill, is_a_path_with_work_that_is_not_completed_the_active_one_first) {
  using End = SendingEndOf<8>;
  World w;
  EXPECT_EQ(End::standing_still(w), 0u);
  w.busy = {3};
  EXPECT_EQ(End::standing_still(w), 3u);
  w.busy = {2, 3};
  EXPECT_EQ(End::standing_still(w), 2u);
  w.busy = {1, 2, 3};
  EXPECT_EQ(End::standing_still(w), 1u);
  w.carries = 0;
  EXPECT_EQ(End::standing_still(w), 0u) << "without an active path nothing is watched";
}

TEST(Look, each_test_looks_while_a_completion_is_to_come) {
  SendingEndOf<8> end;
  for (int test = 0; test < 100; ++test) EXPECT_TRUE(end.looks(true));
}

TEST(Look, few_tests_look_where_the_ack_alone_is_missing) {
  using End = SendingEndOf<8>;
  End end;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t test = 1; test < End::kTestsPerIdleLook; ++test) EXPECT_FALSE(end.looks(false)) << test;
    EXPECT_TRUE(end.looks(false)) << "the ACK may be missing because the queue pair is dead";
  }
}

}  // namespace
}  // namespace r2ccl
