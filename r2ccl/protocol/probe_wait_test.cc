// SPDX-License-Identifier: Apache-2.0
// ProbeWait: since when the answer to a probe is awaited.
#include "r2ccl/protocol/probe_wait.h"

#include <gtest/gtest.h>

#include "r2ccl/protocol/choice.h"

namespace r2ccl {
namespace {

constexpr uint64_t kLimit = 8;

TEST(ProbeWait, an_answer_is_awaited_since_the_probe_was_posted) {
  ProbeWait wait;
  wait.begin(100);
  EXPECT_EQ(wait.awaited(105), 5u);
  EXPECT_EQ(wait.age(105), 5u);
  EXPECT_FALSE(wait.end()) << "it says something of now";
}

// A packet of the probe is lost, the stall ends, and the next one comes much later.
TEST(ProbeWait, the_next_stall_does_not_count_the_time_before_it) {
  ProbeWait wait;
  wait.begin(100);
  wait.forget();
  EXPECT_EQ(awaits(wait.awaited(5000), kLimit), ProbeSight::kAwaited) << "the path would be left at once";
  EXPECT_EQ(awaits(wait.awaited(5000 + kLimit), kLimit), ProbeSight::kAwaited);
  EXPECT_EQ(awaits(wait.awaited(5001 + kLimit), kLimit), ProbeSight::kFailed) << "a dead rail is noticed";
  EXPECT_EQ(wait.age(5000), 4900u) << "what its answer tells, and when it is pushed";
}

TEST(ProbeWait, each_stall_that_ends_begins_the_time_anew) {
  ProbeWait wait;
  wait.begin(100);
  wait.forget();
  EXPECT_EQ(wait.awaited(200), 0u);
  EXPECT_EQ(wait.awaited(206), 6u);
  wait.forget();
  wait.forget();
  EXPECT_EQ(wait.awaited(300), 0u);
}

TEST(ProbeWait, an_answer_that_was_asked_for_before_the_stall_is_stale_once) {
  ProbeWait wait;
  wait.begin(100);
  wait.forget();
  EXPECT_EQ(wait.awaited(200), 0u);
  EXPECT_TRUE(wait.end());
  EXPECT_FALSE(wait.end());
  wait.begin(300);
  EXPECT_EQ(wait.awaited(304), 4u);
  EXPECT_FALSE(wait.end());
}

}  // namespace
}  // namespace r2ccl
