// SPDX-License-Identifier: Apache-2.0
// Whether whole packets pass on a rail, by what its paths have carried.
#include "r2ccl/health/whole_packets.h"

#include <gtest/gtest.h>

#include "r2ccl/health/peer_rails.h"

namespace r2ccl::health {
namespace {

TEST(WholePackets, what_nothing_has_passed_on_is_not_known_to_work) {
  WholePackets rails;
  WholePackets::Look path;
  for (uint64_t now = 1; now < 100; ++now) rails.look(0, 0, path, 0, now);
  EXPECT_FALSE(rails.passed_within(0, 0, 100, 100));
}

TEST(WholePackets, what_has_passed_counts_from_the_look_before_and_for_its_rail_alone) {
  WholePackets rails;
  WholePackets::Look path;
  rails.look(1, 2, path, 0, 100);
  rails.look(1, 2, path, 3, 110);  // some time after 100
  EXPECT_TRUE(rails.passed_within(1, 2, 21, 120));
  EXPECT_FALSE(rails.passed_within(1, 2, 20, 120)) << "it may have passed before the stall began";
  EXPECT_FALSE(rails.passed_within(2, 1, 1000, 120));
  EXPECT_FALSE(rails.passed_within(1, 3, 1000, 120));
  EXPECT_FALSE(rails.passed_within(3, 2, 1000, 120));
  rails.look(1, 2, path, 3, 130);
  EXPECT_FALSE(rails.passed_within(1, 2, 20, 130)) << "nothing more has passed";
  rails.look(1, 2, path, 4, 140);
  EXPECT_TRUE(rails.passed_within(1, 2, 20, 140));
}

TEST(WholePackets, the_newest_of_all_paths_counts) {
  WholePackets rails;
  WholePackets::Look busy, rare;
  rails.look(0, 0, rare, 0, 100);
  rails.look(0, 0, busy, 0, 190);
  rails.look(0, 0, busy, 1, 200);
  rails.look(0, 0, rare, 1, 200);  // some time after 100 only
  EXPECT_TRUE(rails.passed_within(0, 0, 11, 200));
}

TEST(WholePackets, before_its_first_look_nothing_is_known_of_a_path) {
  WholePackets rails;
  WholePackets::Look path;
  rails.look(0, 0, path, 5, 100);
  EXPECT_FALSE(rails.passed_within(0, 0, 1000, 100));
}

TEST(PeerRails, each_direction_is_known_by_itself) {
  PeerRails rails(1, 2);
  EXPECT_NE(&rails.whole_packets(true), &rails.whole_packets(false));
}

}  // namespace
}  // namespace r2ccl::health
