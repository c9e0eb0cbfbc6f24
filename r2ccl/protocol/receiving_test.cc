// SPDX-License-Identifier: Apache-2.0
// ReceivingEndOf: when ACKs are written, when CTS entries are repeated, and which path stands still. Which
// runs these rules prevent is protocol_model_test's matter.
#include "r2ccl/protocol/receiving.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "r2ccl/protocol/limits.h"

namespace r2ccl {
namespace {

using End = ReceivingEndOf<8>;

/// A receiver whose active path is number 1, and its lanes numbers 2 and 3.
struct World {
  End end;
  bool acks = true, copies = false, is_ready = true;
  uint32_t carries = 1;
  uint32_t free = 100;  // in the send queue of the active path
  uint32_t given = 40, done = 40;
  std::set<uint32_t> flushes;
  int hidden = 0;  // so many looks pass before everything is visible
  int looks = 0;
  std::string said;

  static constexpr bool holds(Rule) { return true; }
  bool acknowledges() const { return acks; }
  bool peer_copies() const { return copies; }
  bool ready() const { return is_ready; }
  uint32_t active() const { return carries; }
  static std::vector<uint32_t> lanes() { return {2, 3}; }
  bool room(uint32_t wanted) const { return wanted <= free; }
  bool flushing(uint32_t path) const { return flushes.count(path) != 0; }
  uint32_t posted() const { return given; }
  uint32_t completed() const { return done; }
  bool unflushed() const { return looks <= hidden; }
  void look() { ++looks; }
  void write_cts(uint64_t message) {
    said += "cts" + std::to_string(message) + " ";
    ++given;
  }
  void write_ack(bool prove) {
    said += (prove ? "proof" : "ack") + std::to_string(end.tells()) + " ";
    ++given;
  }
  void send_wait(uint64_t) { said += "wait "; }
  void send_received(uint64_t, uint16_t) { said += "received "; }

  /// So many messages of 4 KiB are open, and so many of them have arrived.
  explicit World(int open = 0, int arrived = 0) {
    for (int i = 0; i < open; ++i) end.ledger.open();
    for (int i = 0; i < arrived; ++i) arrive(uint32_t(i));
  }
  void arrive(uint32_t message, uint32_t copied_bytes = 0, uint64_t bytes = 4096) {
    end.ledger.arrive({message, 0, 1}, bytes);
    end.is_whole(message, copied_bytes);
  }
  void arrive_ack_soon(uint32_t message) {
    end.segment_came(message, true);
    arrive(message);
  }
  /// So many tests in vain, of which none makes an ACK due.
  void in_vain(uint32_t tests) {
    for (uint32_t i = 0; i < tests; ++i) ASSERT_EQ(end.ack_after_test(true, false, false), Ack::kNone) << i;
  }
  std::string patient() {
    said.clear();
    end.waited(*this, true);
    return said;
  }
  std::string carries_on(bool moved) {
    said.clear();
    end.carries_on(*this, moved);
    return said;
  }
};

// With half of the queue free, what is posted until the next look finds room: a CTS entry and an ACK for each
// message of the window.
TEST(Room, the_active_path_is_looked_at_in_time) {
  constexpr uint32_t kDepth = 320;
  EXPECT_FALSE(End::is_crowded(kDepth / 2, kDepth));
  EXPECT_TRUE(End::is_crowded(kDepth / 2 + 1, kDepth));
  EXPECT_LE(kDepth / 2 + 2 * uint32_t(wire::kRingLines), kDepth);
}

TEST(Acks, are_due_at_once_when_nothing_more_is_open) {
  World w(2, 1);
  EXPECT_FALSE(w.end.ack_due(true)) << "it goes with the next CTS entry";
  w.arrive(1);
  EXPECT_TRUE(w.end.ack_due(true));
  EXPECT_FALSE(w.end.ack_due(false)) << "nobody waits for ACKs (R2CC_STRICT_ACK=0)";
  EXPECT_EQ(w.end.tells(), 2u);
  EXPECT_FALSE(w.end.ack_due(true)) << "told";
}

TEST(Acks, wait_for_few_messages_only_while_others_are_open) {
  for (const bool soon : {false, true}) {
    const auto most = uint32_t(soon ? End::kMessagesToWaitForCts : End::kMessagesUnlessSoon);
    ReceivingEndOf<32> end;
    for (uint32_t i = 0; i < 32; ++i) end.ledger.open();
    for (uint32_t i = 0; i < most; ++i) {
      EXPECT_FALSE(end.ack_due(true)) << i;
      end.segment_came(i, soon && i == 1);
      end.ledger.arrive({i, 0, 1}, 4096);
      end.is_whole(i, 0);
    }
    EXPECT_TRUE(end.ack_due(true));
    end.tells();
    for (uint32_t i = most; i < most + End::kMessagesToWaitForCts; ++i) {
      end.ledger.arrive({i, 0, 1}, 4096);
      end.is_whole(i, 0);
    }
    EXPECT_FALSE(end.ack_due(true)) << "and is confirmed";
  }
  EXPECT_LE(2 * End::kMessagesUnlessSoon, uint64_t(kMaxRequests)) << "far less than may be open";
}

TEST(Acks, wait_for_a_number_of_tests_only) {
  World w(3);
  w.arrive_ack_soon(0);
  w.in_vain(End::kTestsToWaitForCts - 1);
  EXPECT_EQ(w.end.ack_after_test(true, false, false), Ack::kNow);
  w.end.tells();
  w.arrive(1);
  w.in_vain(End::kTestsUnlessSoon - 1);
  EXPECT_EQ(w.end.ack_after_test(true, false, false), Ack::kNow) << "another message had asked";
  World other(2, 1);
  for (uint32_t i = 0; i < 2 * End::kTestsUnlessSoon; ++i)
    EXPECT_EQ(other.end.ack_after_test(false, false, false), Ack::kNone) << "R2CC_STRICT_ACK=0";
}

TEST(Acks, a_long_wait_begins_anew_with_each_message) {
  World w(3, 1);
  w.in_vain(End::kTestsUnlessSoon - 1);
  w.arrive(1);
  w.in_vain(End::kTestsUnlessSoon - 1);
  EXPECT_EQ(w.end.ack_after_test(true, false, false), Ack::kNow);
  World other(3);
  other.arrive_ack_soon(0);
  other.in_vain(End::kTestsToWaitForCts - 1);
  other.arrive(1);
  EXPECT_EQ(other.end.ack_after_test(true, false, false), Ack::kNow) << "a short one does not";
}

TEST(Acks, that_wait_for_long_are_due_soon_when_a_message_comes_that_asks) {
  World w(4, 1);
  w.in_vain(End::kTestsToWaitForCts + 5);
  w.arrive_ack_soon(1);
  EXPECT_EQ(w.end.ack_after_test(true, false, false), Ack::kNow);
}

TEST(Acks, say_whether_the_newest_message_has_waited_for_longer_than_one_that_asks) {
  World w(5, 1);
  w.in_vain(End::kTestsToWaitForCts - 1);
  EXPECT_FALSE(w.end.waited_long());
  w.in_vain(1);
  EXPECT_TRUE(w.end.waited_long());
  w.arrive(1);
  EXPECT_FALSE(w.end.waited_long()) << "its sender had not waited for the ACK of the first one";
  w.in_vain(End::kTestsToWaitForCts);
  EXPECT_TRUE(w.end.waited_long());
  w.arrive(2, 4096);
  EXPECT_TRUE(w.end.waited_long()) << "one from a copy says nothing of the others";
  EXPECT_EQ(w.end.mark(), wire::kWaitedLong);
  EXPECT_EQ(w.end.tells_alone(), 3 | wire::kAckWaitedLong);
  EXPECT_FALSE(w.end.waited_long()) << "told";
  EXPECT_EQ(w.end.mark(), 0u);
  EXPECT_EQ(w.end.tells_alone(), 3u);
  w.in_vain(2 * End::kTestsToWaitForCts);
  w.arrive(3);
  EXPECT_FALSE(w.end.waited_long()) << "nothing was owed";
}

TEST(Acks, tests_count_only_while_one_is_owed) {
  World w(2);
  for (uint32_t i = 0; i < 2 * End::kTestsToWaitForCts; ++i)
    EXPECT_EQ(w.end.ack_after_test(true, false, false), Ack::kNone);
  w.arrive_ack_soon(0);
  EXPECT_EQ(w.end.ack_after_test(true, false, false), Ack::kNone);
}

TEST(Acks, wait_until_the_program_is_told_where_it_tests_again_soon) {
  World w(1, 1);
  EXPECT_EQ(w.end.ack_after_test(true, true, true), Ack::kLater);
  EXPECT_TRUE(w.end.late_ack_due());
  EXPECT_EQ(w.end.tells(), 1u);
  EXPECT_FALSE(w.end.late_ack_due()) << "written";
  World alone(1, 1);
  EXPECT_EQ(alone.end.ack_after_test(true, true, false), Ack::kNow)
      << "nothing else is open: who would write it?";
  World waits(2, 2);
  EXPECT_EQ(waits.end.ack_after_test(true, false, true), Ack::kNow) << "the program is not told anything";
  World loose(1, 1);
  EXPECT_EQ(loose.end.ack_after_test(false, true, true), Ack::kNone) << "R2CC_STRICT_ACK=0";
}

TEST(Acks, one_waits_at_most) {
  World w(1, 1);
  EXPECT_EQ(w.end.ack_after_test(true, true, true), Ack::kLater);
  w.end.ledger.open();
  w.arrive(1);
  EXPECT_EQ(w.end.ack_after_test(true, true, true), Ack::kNow)
      << "a thread that always finds something never looks for it";
  EXPECT_EQ(w.end.tells(), 2u);
  EXPECT_FALSE(w.end.late_ack_due());
  w.end.ledger.open();
  w.arrive(2);
  EXPECT_EQ(w.end.ack_after_test(true, true, true), Ack::kLater);
}

TEST(Acks, that_wait_go_with_a_cts_entry_or_behind_a_migration) {
  World w(1, 1);
  EXPECT_EQ(w.end.ack_after_test(true, true, true), Ack::kLater);
  w.end.ledger.open();
  w.end.tells();  // with the CTS entry
  EXPECT_FALSE(w.end.late_ack_due());
  World moved(1, 1);
  EXPECT_EQ(moved.end.ack_after_test(true, true, true), Ack::kLater);
  EXPECT_EQ(moved.carries_on(true), "ack1 ");
  EXPECT_FALSE(moved.end.late_ack_due());
}

TEST(Acks, of_messages_that_were_sent_from_copies_are_waited_for_by_nobody) {
  World w(1);
  w.arrive(0, 4096);
  EXPECT_TRUE(w.end.owes_ack());
  EXPECT_FALSE(w.end.ack_due(true));
  World larger(1);
  larger.arrive(0, 4095);
  EXPECT_TRUE(larger.end.ack_due(true));
  World empty(1);
  empty.arrive(0, 0, 0);
  EXPECT_TRUE(empty.end.ack_due(true)) << "a sender that copies nothing waits for every ACK";
}

TEST(StandingStill, is_a_path_whose_flush_is_under_way_the_active_one_first) {
  World w;
  EXPECT_EQ(w.end.standing_still(w), 0u);
  w.flushes = {3};
  EXPECT_EQ(w.end.standing_still(w), 3u);
  w.flushes = {2, 3};
  EXPECT_EQ(w.end.standing_still(w), 2u);
  w.flushes = {1, 2};
  EXPECT_EQ(w.end.standing_still(w), 1u);
  w.carries = 0;
  EXPECT_EQ(w.end.standing_still(w), 0u) << "without an active path nothing is watched";
}

TEST(StandingStill, is_the_active_path_when_its_queue_has_no_room_for_a_cts_entry_and_an_ack) {
  World w;
  w.free = End::kRoomForCts;
  EXPECT_EQ(w.end.standing_still(w), 0u);
  w.free = End::kRoomForCts - 1;
  EXPECT_EQ(w.end.standing_still(w), 1u);
}

TEST(StandingStill, is_the_active_path_until_the_ack_that_proves_it_has_completed) {
  World w(1);
  ASSERT_EQ(w.patient(), "cts0 proof0 ");
  EXPECT_EQ(w.end.standing_still(w), 1u);
  w.done = w.given - 1;
  EXPECT_EQ(w.end.standing_still(w), 1u);
  w.done = w.given;
  EXPECT_EQ(w.end.standing_still(w), 0u);
}

TEST(StandingStill, what_was_to_prove_one_path_says_nothing_of_the_next) {
  World w(1);
  w.patient();
  ASSERT_EQ(w.end.standing_still(w), 1u);
  w.carries_on(true);
  EXPECT_EQ(w.end.standing_still(w), 0u);
}

TEST(Waited, only_a_patient_receiver_repeats_its_cts_entries) {
  World w(3, 1);
  w.end.waited(w, false);
  EXPECT_EQ(w.said, "");
  EXPECT_EQ(w.patient(), "cts1 cts2 proof1 ");
}

TEST(Waited, nothing_is_repeated_while_an_earlier_repetition_has_not_completed) {
  World w(1);
  ASSERT_NE(w.patient(), "");
  EXPECT_EQ(w.patient(), "");
  w.done = w.given;
  EXPECT_NE(w.patient(), "");
}

TEST(Waited, nothing_is_repeated_without_room_for_all_cts_entries_and_an_ack) {
  World w(1);
  w.free = 8;
  EXPECT_EQ(w.patient(), "");
  w.free = 9;
  EXPECT_EQ(w.patient(), "cts0 proof0 ");
}

TEST(Waited, a_path_that_has_just_been_marked_failed_is_not_proved) {
  World w(1);
  w.is_ready = false;
  EXPECT_EQ(w.patient(), "cts0 ");
  w.done = 0;
  EXPECT_EQ(w.end.standing_still(w), 0u) << "nothing was written whose completion is awaited";
}

TEST(Waited, a_sender_that_copies_is_asked_to_query_once) {
  World w(1);
  w.copies = true;
  w.end.waited(w, false);
  w.end.waited(w, false);
  EXPECT_EQ(w.said, "wait ");
  w.end.on_ack_query(w);
  w.end.waited(w, false);
  EXPECT_EQ(w.said, "wait received wait ");
}

TEST(AckQuery, is_answered_when_what_has_arrived_is_visible_or_a_flush_takes_too_long) {
  World w(1);
  w.hidden = 5;
  w.end.on_ack_query(w);
  EXPECT_EQ(w.looks, 6);
  EXPECT_EQ(w.said, "received ");
  w.looks = 0;
  w.hidden = 10 * End::kLooksAtFlush;
  w.end.on_ack_query(w);
  EXPECT_EQ(w.looks, 1 + End::kLooksAtFlush);
}

TEST(CarriesOn, on_another_path_cts_entries_are_repeated_and_the_ack_follows) {
  World w(3, 1);
  w.end.tells();
  EXPECT_EQ(w.carries_on(true), "cts1 cts2 ack1 ");
  World none(3);
  EXPECT_EQ(none.carries_on(true), "cts0 cts1 cts2 ") << "there is nothing to confirm";
  World lax(3, 1);
  lax.acks = false;
  EXPECT_EQ(lax.carries_on(true), "cts1 cts2 ");
}

TEST(CarriesOn, on_the_same_path_cts_entries_are_repeated_where_there_is_room) {
  World w(3, 1);
  w.free = 9;
  EXPECT_EQ(w.carries_on(false), "cts1 cts2 ack1 ");
  w.free = 8;
  EXPECT_EQ(w.carries_on(false), "ack1 ");
  w.free = 0;
  EXPECT_EQ(w.carries_on(false), "") << "an ACK that finds no room is owed";
  EXPECT_TRUE(w.end.owes_ack());
  EXPECT_EQ(w.carries_on(true), "cts1 cts2 ") << "a path that was not in use has room";
}

TEST(Signals, are_due_with_every_eighth_work_request_of_the_active_path) {
  Signals signals;
  EXPECT_FALSE(signals.due(Signals::kEvery - 1));
  EXPECT_TRUE(signals.due(Signals::kEvery));
  signals.set(100);
  EXPECT_FALSE(signals.due(107));
  EXPECT_TRUE(signals.due(108));
  signals.set(~0u);
  EXPECT_FALSE(signals.due(6)) << "numbers wrap";
  EXPECT_TRUE(signals.due(7));
}

TEST(Acks, a_small_message_is_awaited_if_it_asks) {
  for (const bool asks : {false, true}) {
    World world(2);
    world.arrive(0, 8192);
    EXPECT_FALSE(world.end.ack_due(true)) << "it was sent from a copy";
    world.end.segment_came(1, asks);
    world.arrive(1, 8192);
    EXPECT_EQ(world.end.ack_due(true), asks);
  }
}

}  // namespace
}  // namespace r2ccl
