// SPDX-License-Identifier: Apache-2.0
// AckPatience with two kinds of senders: one sends whether or not an ACK comes, the other waits for it.
#include "r2ccl/protocol/ack_patience.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

/// Tests in vain until the ACK that waits is written.
uint32_t wait_until_due(AckPatience& patience) {
  uint32_t tests = 1;
  while (!patience.test_in_vain()) ++tests;
  patience.told();
  return tests;
}

/// So many operations of four messages with `gap` tests between them, of which none waits for an ACK. The
/// number of ACKs before the last message of its operation, which has no wait.
uint32_t acks_in_between(AckPatience& patience, uint32_t operations, uint32_t gap) {
  uint32_t acks = 0;
  for (uint32_t i = 0; i < operations; ++i) {
    for (uint32_t message = 0; message < 4; ++message) {
      patience.arrived();
      bool owes = true;
      for (uint32_t test = 0; message < 3 && test < gap; ++test) {
        if (!owes || !patience.test_in_vain()) continue;
        patience.told();
        owes = false;
        ++acks;
      }
    }
    patience.told();
  }
  return acks;
}

/// A sender with two buffers: `apart` tests lie between its two messages, and it goes on when the ACK has
/// come. The tests in vain that it has waited for ACKs.
uint64_t waited_by_sender(AckPatience& patience, uint32_t rounds, uint32_t apart) {
  uint64_t waited = 0;
  for (uint32_t i = 0; i < rounds; ++i) {
    patience.arrived();
    bool owes = true;
    for (uint32_t test = 0; test < apart; ++test) {
      if (!owes || !patience.test_in_vain()) continue;
      patience.told();
      owes = false;
    }
    patience.arrived();
    waited += wait_until_due(patience);
  }
  return waited;
}

TEST(AckPatience, is_short_at_first) {
  AckPatience patience;
  for (uint32_t i = 0; i < AckPatience::kNeeded; ++i)
    EXPECT_EQ(wait_until_due(patience), AckPatience::kShort) << i;
  EXPECT_EQ(wait_until_due(patience), AckPatience::kLong) << "tried";
  EXPECT_EQ(wait_until_due(patience), AckPatience::kShort) << "that was over, too";
}

TEST(AckPatience, what_was_told_with_a_cts_entry_was_no_wait) {
  AckPatience patience;
  for (uint32_t i = 0; i < 3 * AckPatience::kNeeded; ++i) {
    for (uint32_t test = 1; test < AckPatience::kShort; ++test) EXPECT_FALSE(patience.test_in_vain());
    patience.told();
  }
  EXPECT_EQ(wait_until_due(patience), AckPatience::kShort);
}

TEST(AckPatience, grows_where_messages_come_without_an_ack) {
  for (const uint32_t gap : {20U, 50U, 150U}) {
    AckPatience patience;
    acks_in_between(patience, 20, gap);
    EXPECT_EQ(acks_in_between(patience, 1000, gap), 0u) << gap;
  }
}

TEST(AckPatience, is_kept_where_few_messages_are_late) {
  AckPatience patience;
  acks_in_between(patience, 20, 100);
  uint32_t acks = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    acks_in_between(patience, 19, 100);
    acks += acks_in_between(patience, 1, 2 * AckPatience::kLong);
  }
  EXPECT_LE(acks, 300u) << "of 6000: those of the late ones alone";
}

TEST(AckPatience, counts_from_the_last_message_on) {
  AckPatience patience;
  acks_in_between(patience, 20, 50);
  for (uint32_t message = 0; message < 3; ++message) {
    for (uint32_t test = 1; test < AckPatience::kLong; ++test) EXPECT_FALSE(patience.test_in_vain());
    patience.arrived();
  }
  EXPECT_EQ(wait_until_due(patience), AckPatience::kLong);
}

TEST(AckPatience, stays_short_where_messages_come_later_than_a_long_wait) {
  AckPatience patience;
  acks_in_between(patience, 200, 2 * AckPatience::kLong);
  EXPECT_EQ(wait_until_due(patience), AckPatience::kShort);
}

// A long wait costs such a sender kLong tests, one of at most kMostNeeded waits.
TEST(AckPatience, costs_a_sender_little_that_waits_for_acks) {
  for (const uint32_t apart : {0U, 3U, 12U, 30U, 200U}) {
    AckPatience patience;
    waited_by_sender(patience, 2 * AckPatience::kMostNeeded, apart);
    constexpr uint32_t kRounds = 4 * AckPatience::kMostNeeded;
    EXPECT_LE(waited_by_sender(patience, kRounds, apart), uint64_t(kRounds) * AckPatience::kShort * 11 / 10)
        << apart;
  }
}

TEST(AckPatience, is_tried_less_and_less_where_it_fails) {
  AckPatience patience;
  const auto short_ones = [&] {
    uint32_t found = 0;
    while (wait_until_due(patience) == AckPatience::kShort) ++found;
    return found;
  };
  for (uint32_t needed = AckPatience::kNeeded; needed < AckPatience::kMostNeeded; needed *= 2)
    EXPECT_EQ(short_ones(), needed);
  EXPECT_EQ(short_ones(), AckPatience::kMostNeeded);
  EXPECT_EQ(short_ones(), AckPatience::kMostNeeded) << "no more than that";
}

// What a sender that waits has made it learn is forgotten by and by where another one does not wait.
TEST(AckPatience, is_forgiven_where_it_was_right) {
  AckPatience patience;
  waited_by_sender(patience, 2 * AckPatience::kMostNeeded, 0);
  acks_in_between(patience, AckPatience::kMostNeeded, 50);
  uint32_t forgiven = 0;
  while (wait_until_due(patience) == AckPatience::kLong) {
    ++forgiven;
    acks_in_between(patience, AckPatience::kMostNeeded, 50);
    if (forgiven == 20) break;
  }
  EXPECT_EQ(forgiven, 20u);
  // Now kNeeded messages are enough, and fewer are not.
  acks_in_between(patience, 6, 50);
  EXPECT_EQ(wait_until_due(patience), AckPatience::kLong);
  acks_in_between(patience, 6, 50);
  EXPECT_EQ(wait_until_due(patience), AckPatience::kLong);
  acks_in_between(patience, 5, 50);
  EXPECT_EQ(wait_until_due(patience), AckPatience::kLong) << "15 are not";
  EXPECT_EQ(wait_until_due(patience), AckPatience::kShort);
}

}  // namespace
}  // namespace r2ccl
