// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/protocol/owner_claim.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Looks every 10 ms from `from` for `length` ms; the time at which it is given up, in ms; -1: it is not.
int64_t given_up_after(OwnerClaim& claim, uint64_t from, uint64_t length, uint64_t bound = 100) {
  for (uint64_t at = from; at < from + length; at += 10)
    if (claim.look(at * kMs, bound * kMs)) return int64_t(at - from);
  return -1;
}

TEST(OwnerClaim, what_nobody_waits_for_is_somebodys_for_good) {
  OwnerClaim claim;
  EXPECT_EQ(given_up_after(claim, 1000, 1000), -1);
  EXPECT_TRUE(claim.ask());
  EXPECT_TRUE(claim.take());
}

TEST(OwnerClaim, what_nobody_asks_for_is_given_up_once_after_the_bound) {
  OwnerClaim claim;
  claim.wait();
  EXPECT_EQ(given_up_after(claim, 1000, 1000), 110);
  EXPECT_EQ(given_up_after(claim, 3000, 1000), -1) << "twice";
  EXPECT_FALSE(claim.ask());
  EXPECT_FALSE(claim.take());
}

TEST(OwnerClaim, the_time_before_somebody_waits_does_not_count) {
  OwnerClaim claim;
  EXPECT_EQ(given_up_after(claim, 1000, 1000), -1);
  claim.wait();
  EXPECT_EQ(given_up_after(claim, 2000, 1000), 110);
}

TEST(OwnerClaim, who_asks_begins_the_time_anew) {
  OwnerClaim claim;
  claim.wait();
  EXPECT_EQ(given_up_after(claim, 1000, 90), -1);
  EXPECT_TRUE(claim.ask());
  EXPECT_EQ(given_up_after(claim, 1090, 1000), 110);
}

TEST(OwnerClaim, who_takes_it_keeps_it) {
  OwnerClaim claim;
  claim.wait();
  EXPECT_TRUE(claim.ask());
  EXPECT_TRUE(claim.take());
  EXPECT_EQ(given_up_after(claim, 1000, 1000), -1);
  EXPECT_TRUE(claim.take()) << "of one that is taken already";
}

TEST(OwnerClaim, a_process_that_was_stopped_has_not_been_silent) {
  OwnerClaim claim;
  claim.wait();
  EXPECT_FALSE(claim.look(1000 * kMs, 200 * kMs));
  EXPECT_FALSE(claim.look(9000 * kMs, 200 * kMs)) << "one step counts for 150 ms at most";
  EXPECT_TRUE(claim.look(9051 * kMs, 200 * kMs));
}

}  // namespace
}  // namespace r2ccl
