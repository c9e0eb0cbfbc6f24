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

uint64_t now_must_not_be_asked() {
  ADD_FAILURE();
  return 0;
}

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

bool no_more(uint32_t) { return false; }

/// Each message is confirmed before the next one, until one does not ask for its ACK, which stays open.
template <class End>
void until_trusted(End& end) {
  while (end.asks_for_ack(true, false, false, no_more, [] { return uint64_t{0}; })) {
    end.ledger.open(1);
    end.confirmed(end.ledger.next(), false, now_must_not_be_asked);
  }
  end.ledger.open(1);
}

// The trial of a deeper level ends with a long wait: the next message asks again.
TEST(AcksAskedFor, long_waits_are_learned_from_each_kind_of_confirmation) {
  using End = SendingEndOf<8>;
  const auto later = [] { return uint64_t{1000}; };
  for (const bool low : {false, true})
    for (const bool waited_long : {false, true}) {
      End end;
      until_trusted(end);
      const uint64_t all = end.ledger.next();
      low ? end.confirmed_low(uint32_t(all), waited_long, later) : end.confirmed(all, waited_long, later);
      EXPECT_EQ(end.ledger.confirmed(), all);
      EXPECT_EQ(end.asks_for_ack(true, false, false, no_more, later), waited_long);
    }
}

TEST(AcksAskedFor, none_without_acks) {
  SendingEndOf<8> end;
  const auto not_asked = [](uint32_t) {
    ADD_FAILURE();
    return true;
  };
  for (uint32_t i = 0; i < 3 * AckSoon::kNeeded; ++i)
    EXPECT_FALSE(end.asks_for_ack(false, false, false, not_asked, now_must_not_be_asked));
}

TEST(AcksAskedFor, what_confirms_nothing_new_teaches_nothing) {
  using End = SendingEndOf<8>;
  End end;
  until_trusted(end);
  const uint64_t before = end.ledger.confirmed();
  end.confirmed(before, true, now_must_not_be_asked);
  end.confirmed_low(uint32_t(before), true, now_must_not_be_asked);
  end.confirmed(end.ledger.next() + 1, true, now_must_not_be_asked);  // never sent
  EXPECT_EQ(end.ledger.confirmed(), before);
  end.confirmed(end.ledger.next(), false, now_must_not_be_asked);
  end.confirmed(end.ledger.next(), true, now_must_not_be_asked);
  end.confirmed_low(uint32_t(end.ledger.next()), true, now_must_not_be_asked);
}

TEST(SendingEnd, a_small_message_without_a_copy_asks_for_its_ack) {
  SendingEndOf<64> end;
  const auto not_open = [](uint32_t) { return false; };
  const auto now = [] { return uint64_t{0}; };
  // Many messages that are never waited for: none asks any more.
  for (int i = 0; i < 100000 && end.asks_for_ack(true, false, false, not_open, now); ++i) {
    end.ledger.open(1);
    if (i % 8 == 7) end.confirmed(end.ledger.next(), false, now);
  }
  EXPECT_TRUE(end.asks_for_ack(true, false, true, not_open, now));
  EXPECT_FALSE(end.asks_for_ack(true, true, false, not_open, now));
  EXPECT_FALSE(end.asks_for_ack(false, false, true, not_open, now)) << "there are no ACKs";
}

TEST(SendingEnd, what_has_left_the_window_is_received) {
  SendingEndOf<64> end;
  for (uint64_t message = 0; message < 200; ++message) {
    EXPECT_EQ(end.surely_received(), message < 64 ? 0 : message - 63);
    end.ledger.open(1);
  }
  end.confirmed(190, false, [] { return uint64_t{0}; });
  EXPECT_EQ(end.surely_received(), 190u);
}

}  // namespace
}  // namespace r2ccl
