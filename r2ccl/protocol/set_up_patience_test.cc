// SPDX-License-Identifier: Apache-2.0
// How long an end of a channel waits in set-up for what its peer owes it.
#include "r2ccl/protocol/outage.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(SetUpPatience, grows_with_each_connection_that_brings_nothing) {
  SetUpPatience patience;
  uint64_t alive = 1000 * kMs;
  const auto lasts = [&](bool waiting) {
    uint64_t ms = 0;
    while (ms < 60'000 && !patience.is_over(alive, waiting)) ++ms, alive += kMs;
    patience.broke();
    return ms;
  };
  EXPECT_EQ(lasts(true), 2001u);
  EXPECT_EQ(lasts(true), 4001u);
  EXPECT_EQ(lasts(true), 8001u);
  EXPECT_EQ(lasts(true), 8001u);
  EXPECT_EQ(lasts(false), 60'000u) << "nothing is owed";
  EXPECT_EQ(patience.breaks(), 5u);
}

TEST(SetUpPatience, begins_anew_with_what_comes) {
  SetUpPatience patience;
  EXPECT_FALSE(patience.is_over(1000 * kMs, true));
  EXPECT_FALSE(patience.is_over(2900 * kMs, true));
  patience.heard(2900 * kMs);
  EXPECT_FALSE(patience.is_over(4800 * kMs, true));
  EXPECT_TRUE(patience.is_over(4901 * kMs, true));
}

TEST(SetUpPatience, looks_after_the_connection_of_a_resilient_sender) {
  SetUpPatience patience;
  const uint64_t now = 1000 * kMs;
  EXPECT_EQ(patience.look({.open = false}, now), SetUpAct::kBegin) << "the first one could not be begun";
  EXPECT_EQ(patience.look({.open = false, .outage = true}, now), SetUpAct::kNone) << "it is being made";
  EXPECT_EQ(patience.look({.sender = false, .open = false}, now), SetUpAct::kNone);
  EXPECT_EQ(patience.look({.resilient = false, .open = false}, now), SetUpAct::kNone);
  EXPECT_EQ(patience.look({.greeted = false}, now), SetUpAct::kNone);
  EXPECT_EQ(patience.look({.sender = false, .greeted = false}, now + 9000 * kMs), SetUpAct::kNone);
  EXPECT_EQ(patience.look({.greeted = false}, now + 2001 * kMs), SetUpAct::kReplace);
}

TEST(SetUpPatience, the_peer_owes_its_greeting_its_answer_and_its_part_of_a_path) {
  EXPECT_FALSE(SetUpSight().owed());
  EXPECT_TRUE(SetUpSight{.greeted = false}.owed());
  EXPECT_TRUE(SetUpSight{.asks = true}.owed());
  EXPECT_TRUE(SetUpSight{.opens = true}.owed());
}

TEST(SetUpPatience, counts_from_when_something_was_owed_first) {
  SetUpPatience patience;
  const uint64_t now = 1000 * kMs;
  for (uint64_t ms = 0; ms < 9000; ms += 1000) EXPECT_EQ(patience.look({}, now + ms * kMs), SetUpAct::kNone);
  EXPECT_EQ(patience.look({.opens = true}, now + 9000 * kMs), SetUpAct::kNone);
  EXPECT_EQ(patience.look({.opens = true}, now + 10'001 * kMs), SetUpAct::kReplace);
}

TEST(SetUpPatience, the_first_break_is_told_and_later_each) {
  SetUpPatience patience;
  EXPECT_TRUE(patience.is_news(false));
  patience.broke();
  EXPECT_FALSE(patience.is_news(false));
  EXPECT_TRUE(patience.is_news(true));
}

}  // namespace
}  // namespace r2ccl
