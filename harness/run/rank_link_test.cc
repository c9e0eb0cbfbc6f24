// SPDX-License-Identifier: Apache-2.0
#include "harness/run/rank_link.h"

#include <gtest/gtest.h>

namespace r2bench {
namespace {

TEST(AddFact, names_the_rank_whose_surroundings_are_others) {
  std::string version;
  add_fact(version, "2.28.9", "node0/rank0");
  add_fact(version, "2.28.9", "node0/rank1");
  EXPECT_EQ(version, "2.28.9");
  add_fact(version, "2.27.3", "node1/rank0");
  add_fact(version, "2.28.9", "node1/rank1");
  add_fact(version, "2.27.3", "node1/rank2");
  EXPECT_EQ(version, "2.28.9; node1/rank0: 2.27.3");
}

}  // namespace
}  // namespace r2bench
