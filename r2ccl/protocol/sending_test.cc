// SPDX-License-Identifier: Apache-2.0
// SendingEndOf: which path stands still. What it does with its messages is explored by protocol_model_test.
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

}  // namespace
}  // namespace r2ccl
