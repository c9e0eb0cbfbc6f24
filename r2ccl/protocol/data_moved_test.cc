// SPDX-License-Identifier: Apache-2.0
// What data that moves on other channels says of a process that cannot be reached.
#include "r2ccl/protocol/data_moved.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

TEST(DataMoved, on_one_channel_speaks_for_all_to_that_process) {
  DataMoved moved;
  MovedSight one, other;
  const auto turn = [&](MovedSight& channel, uint64_t progress, uint64_t alive) {
    moved.look(7, channel, progress, Phase::kRunning, alive);
  };
  turn(one, 0, 1000);
  EXPECT_EQ(one.anywhere, 0u);
  turn(one, 5, 2000);
  turn(other, 0, 3000);
  turn(one, 5, 4000);
  EXPECT_EQ(other.anywhere, 2000u);
  EXPECT_EQ(other.here, 0u);
  EXPECT_EQ(one.here, 2000u);
  turn(other, 1, 5000);
  turn(one, 5, 6000);
  EXPECT_EQ(one.anywhere, 5000u);
  EXPECT_EQ(one.here, 2000u);
  EXPECT_EQ(moved.at(8), 0u);
}

// It would wait for as long as others have traffic: a migration has no other bound while its messages cannot
// go.
TEST(DataMoved, before_the_connection_broke_is_no_news) {
  DataMoved moved;
  MovedSight seen;
  DataMoved::broke(seen, 7, false);
  moved.look(1, seen, 7, Phase::kRunning, 100);
  EXPECT_EQ(seen.anywhere, 0u);
  moved.look(1, seen, 8, Phase::kRunning, 200);
  EXPECT_EQ(seen.anywhere, 200u);
  DataMoved::broke(seen, 9, true);  // a try has failed; the outage goes on
  moved.look(1, seen, 9, Phase::kRunning, 300);
  EXPECT_EQ(seen.anywhere, 300u);
}

TEST(DataMoved, on_others_is_nothing_to_a_channel_that_leaves_a_path) {
  DataMoved moved;
  MovedSight leaving, other;
  moved.look(7, leaving, 1, Phase::kRunning, 1000);
  moved.look(7, other, 1, Phase::kRunning, 2000);
  moved.look(7, leaving, 1, Phase::kFencing, 3000);
  EXPECT_EQ(leaving.anywhere, 1000u);
  moved.look(7, other, 2, Phase::kRunning, 4000);
  moved.look(7, leaving, 1, Phase::kWaitingForPeer, 5000);
  EXPECT_EQ(leaving.anywhere, 1000u);
  moved.look(7, leaving, 1, Phase::kRunning, 6000);
  EXPECT_EQ(leaving.anywhere, 4000u) << "it carries again";
}

}  // namespace
}  // namespace r2ccl
