// SPDX-License-Identifier: Apache-2.0
// The two ledgers and the words on the wire: what counts as arrived, what must be sent again.
#include "r2ccl/protocol/ledger.h"

#include <gtest/gtest.h>

#include "r2ccl/protocol/receiving.h"
#include "r2ccl/protocol/unflushed.h"

namespace r2ccl {
namespace {

wire::Immediate whole(uint64_t message) { return {uint32_t(message) & wire::kTicketMask, 0, 1}; }

TEST(Immediate, survives_its_encoding_at_every_limit) {
  for (const uint32_t ticket : {0u, 1u, 0xabcdefu, wire::kTicketMask})
    for (const uint32_t segments : {1u, 7u, wire::kMaxSegments})
      for (uint32_t segment = 0; segment < segments; ++segment)
        for (const bool soon : {false, true}) {
          const wire::Immediate back = wire::decode(wire::encode({ticket, segment, segments, soon}));
          EXPECT_EQ(back.ticket, ticket & wire::kTicketMask);
          EXPECT_EQ(back.segment, segment);
          EXPECT_EQ(back.segments, segments);
          EXPECT_EQ(back.ack_soon, soon);
        }
}

TEST(CtsLine, the_mark_of_a_long_wait_is_no_nic_and_no_number_of_a_message) {
  EXPECT_EQ(wire::kWaitedLong & ((1u << wire::kMaxNics) - 1), 0u);
  EXPECT_GT(wire::kAckWaitedLong, uint64_t{1} << 62);
  wire::CtsLine line{};
  const uint32_t before = wire::cts_check(line);
  line.far_nics |= wire::kWaitedLong;
  EXPECT_NE(wire::cts_check(line), before);
}

TEST(CtsLine, any_changed_word_breaks_the_check) {
  wire::CtsLine line{};
  line.head = line.tail = 7;
  line.address = 0x7f0012345000;
  line.bytes = 1 << 20;
  for (int i = 0; i < wire::kMaxNics; ++i) line.keys[i] = uint32_t(1000 + i);
  line.check = wire::cts_check(line);
  for (size_t byte = 0; byte < sizeof line; ++byte) {
    if (byte >= offsetof(wire::CtsLine, check) && byte < offsetof(wire::CtsLine, check) + 4) continue;
    wire::CtsLine torn = line;
    reinterpret_cast<unsigned char*>(&torn)[byte] ^= 0x40;
    EXPECT_NE(wire::cts_check(torn), line.check) << "byte " << byte;
  }
}

TEST(ReceiveLedger, counts_a_message_when_its_last_segment_is_here_in_any_order) {
  ReceiveLedger ledger;
  const uint64_t message = ledger.open();
  EXPECT_EQ(ledger.arrive({uint32_t(message), 2, 3}, 30).arrival, Arrival::kSegment);
  EXPECT_EQ(ledger.arrive({uint32_t(message), 0, 3}, 10).arrival, Arrival::kSegment);
  EXPECT_FALSE(ledger.complete(message));
  EXPECT_EQ(ledger.segments(message), 0b101);
  EXPECT_EQ(ledger.arrive({uint32_t(message), 1, 3}, 20).arrival, Arrival::kMessage);
  EXPECT_TRUE(ledger.complete(message));
  EXPECT_EQ(ledger.bytes(message), 60u);
  EXPECT_EQ(ledger.received(), 1u);
}

TEST(ReceiveLedger, a_hidden_segment_completes_nothing_until_it_is_seen) {
  ReceiveLedger ledger;
  ledger.open();
  EXPECT_EQ(ledger.arrive({0, 0, 2}, 100, true).arrival, Arrival::kSegment);
  EXPECT_EQ(ledger.arrive({0, 1, 2}, 50, true).arrival, Arrival::kSegment) << "the last, and hidden";
  EXPECT_EQ(ledger.arrive({0, 1, 2}, 50, true).arrival, Arrival::kDuplicate);
  EXPECT_FALSE(ledger.complete(0));
  EXPECT_FALSE(ledger.seen(0, 1));
  EXPECT_EQ(ledger.received(), 0u);
  EXPECT_EQ(ledger.segments(0), 0b11) << "they have arrived";
  EXPECT_TRUE(ledger.seen(0, 0));
  EXPECT_EQ(ledger.received(), 1u);
  EXPECT_EQ(ledger.bytes(0), 150u);
}

TEST(ReceiveLedger, a_hidden_segment_that_is_forgotten_is_missing_and_may_come_again) {
  ReceiveLedger ledger;
  ledger.open();
  ledger.arrive({0, 0, 2}, 100, true);
  ledger.arrive({0, 1, 2}, 50, true);
  EXPECT_FALSE(ledger.seen(0, 0));
  ledger.forget(0, 0, 100);  // seen: it stays
  ledger.forget(0, 1, 50);
  std::array<uint16_t, wire::kRingLines> report{};
  EXPECT_EQ(ledger.report(report), 0u);
  EXPECT_EQ(report[0], 0b01);
  EXPECT_EQ(ledger.arrive({0, 1, 2}, 50).arrival, Arrival::kMessage);
  EXPECT_EQ(ledger.bytes(0), 150u);
}

TEST(ReceiveLedger, received_up_to_has_no_gap) {
  ReceiveLedger ledger;
  for (int i = 0; i < 3; ++i) ledger.open();
  EXPECT_EQ(ledger.arrive(whole(2), 1).arrival, Arrival::kMessage);
  EXPECT_EQ(ledger.received(), 0u);
  EXPECT_EQ(ledger.arrive(whole(0), 1).arrival, Arrival::kMessage);
  EXPECT_EQ(ledger.received(), 1u);
  EXPECT_EQ(ledger.arrive(whole(1), 1).arrival, Arrival::kMessage);
  EXPECT_EQ(ledger.received(), 3u);
}

TEST(ReceiveLedger, tells_a_duplicate_from_a_stranger) {
  ReceiveLedger ledger;
  ledger.open();
  ledger.open();
  EXPECT_EQ(ledger.arrive(whole(0), 1).arrival, Arrival::kMessage);
  EXPECT_EQ(ledger.arrive(whole(0), 1).arrival, Arrival::kDuplicate);
  EXPECT_EQ(ledger.arrive({1, 0, 2}, 1).arrival, Arrival::kSegment);
  EXPECT_EQ(ledger.arrive({1, 0, 2}, 1).arrival, Arrival::kDuplicate);
  EXPECT_EQ(ledger.arrive({1, 1, 4}, 1).arrival, Arrival::kUnknown) << "another segment count";
  EXPECT_EQ(ledger.arrive(whole(5), 1).arrival, Arrival::kUnknown) << "no such irecv";
}

TEST(ReceiveLedger, reports_what_is_here_of_everything_that_is_open) {
  ReceiveLedger ledger;
  for (int i = 0; i < 4; ++i) ledger.open();
  ledger.arrive(whole(0), 1);
  ledger.arrive({1, 1, 2}, 1);
  ledger.arrive(whole(2), 1);
  std::array<uint16_t, wire::kRingLines> segments{};
  EXPECT_EQ(ledger.report(segments), 1u);
  EXPECT_EQ(segments[0], 0b10);
  EXPECT_EQ(segments[1], 1);
  EXPECT_EQ(segments[2], 0);
}

TEST(ReceiveLedger, tickets_wrap_after_2_to_the_24_messages) {
  ReceiveLedger ledger;
  for (uint64_t message = 0; message < (1u << 24) + 100; ++message) {
    ASSERT_EQ(ledger.open(), message);
    const auto outcome = ledger.arrive(whole(message), 8);
    ASSERT_EQ(outcome.arrival, Arrival::kMessage) << message;
    ASSERT_EQ(outcome.message, message);
  }
}

TEST(SendLedger, words_about_messages_that_do_not_exist_yet_say_nothing) {
  SendLedger ledger;
  ledger.open(1);
  ledger.take_report(100, {});
  ledger.released(200);
  EXPECT_EQ(ledger.confirmed(), 0u);
  EXPECT_EQ(ledger.reported(), 0u);
  const uint64_t next = ledger.open(1);
  EXPECT_FALSE(ledger.done(next, false));
  EXPECT_EQ(ledger.missing(next), 1u);
}

TEST(SendLedger, a_buffer_is_given_back_only_after_the_receivers_word) {
  SendLedger ledger;
  const uint64_t message = ledger.open(1);
  EXPECT_FALSE(ledger.done(message, true));
  ledger.completed(message, 0);
  EXPECT_TRUE(ledger.done(message, false));
  EXPECT_FALSE(ledger.done(message, true));
  ledger.confirmed(1);
  EXPECT_TRUE(ledger.done(message, true));
}

TEST(SendLedger, the_receivers_word_alone_does_not_free_a_buffer_the_nic_still_reads) {
  SendLedger ledger;
  const uint64_t message = ledger.open(2);
  ledger.confirmed(1);
  EXPECT_FALSE(ledger.done(message, true));
  ledger.completed(message, 0);
  EXPECT_FALSE(ledger.done(message, true));
  ledger.completed(message, 1);
  EXPECT_TRUE(ledger.done(message, true));
}

TEST(SendLedger, replays_only_what_the_receiver_misses) {
  SendLedger ledger;
  const uint64_t message = ledger.open(4);
  const uint64_t behind = ledger.open(1);
  const uint16_t some[] = {0b0101, 1}, all[] = {0b1111, 1}, none[] = {0, 0};
  ledger.take_report(message, some);
  EXPECT_EQ(ledger.missing(message), 0b1010);
  EXPECT_EQ(ledger.missing(behind), 0) << "it is there, although not in its turn";
  ledger.take_report(message, all);
  EXPECT_EQ(ledger.missing(message), 0);
  ledger.confirmed(1);
  ledger.take_report(1, none);
  EXPECT_EQ(ledger.missing(message), 0) << "confirmed messages are never sent again";
  EXPECT_EQ(ledger.missing(behind), 1);
}

TEST(SendLedger, knows_how_far_the_nic_has_reported_without_a_gap) {
  SendLedger ledger;
  for (int i = 0; i < 3; ++i) ledger.open(1);
  ledger.completed(1, 0);
  EXPECT_EQ(ledger.reported(), 0u);
  ledger.completed(0, 0);
  EXPECT_EQ(ledger.reported(), 2u);
  ledger.confirmed(2);
  ledger.completed(2, 0);
  EXPECT_EQ(ledger.reported(), 3u);
}

TEST(SendLedger, what_the_nic_said_counts_for_nothing_after_the_receivers_report) {
  SendLedger ledger;
  const uint64_t message = ledger.open(2);
  ledger.completed(message, 0);
  ledger.completed(message, 1);
  const uint16_t arrived[] = {0b01};
  ledger.take_report(message, arrived);
  ledger.confirmed(1);
  EXPECT_FALSE(ledger.done(message, true));
  ledger.completed(message, 1);
  EXPECT_TRUE(ledger.done(message, true));
}

TEST(SendLedger, a_confirmation_never_goes_back_nor_beyond_what_was_sent) {
  SendLedger ledger;
  ledger.open(1);
  ledger.open(1);
  ledger.confirmed(2);
  ledger.confirmed(1);
  EXPECT_EQ(ledger.confirmed(), 2u);
  ledger.confirmed(99);
  EXPECT_EQ(ledger.confirmed(), 2u);
}

TEST(SendLedger, a_message_whose_acknowledgement_was_lost_is_done_when_the_fence_shows_that_it_arrived) {
  SendLedger ledger;
  ledger.open(1);
  ledger.take_report(1, {});  // the NIC reported an error, or nothing; the receiver has it
  EXPECT_TRUE(ledger.done(0, true));
  EXPECT_EQ(ledger.missing(0), 0);
}

TEST(SendLedger, a_peer_that_closed_releases_what_it_received) {
  SendLedger ledger;
  ledger.open(1);
  ledger.open(1);
  ledger.released(1);
  EXPECT_TRUE(ledger.done(0, true));
  EXPECT_FALSE(ledger.done(1, true));
}

TEST(ReceivingEnd, what_the_left_path_has_placed_and_no_flush_has_shown_counts_as_missing) {
  ReceivingEndOf<8> end;
  Unflushed unflushed;
  for (int i = 0; i < 3; ++i) end.ledger.open();
  end.ledger.arrive(whole(0), 100);
  for (const uint64_t message : {1, 2}) {
    ASSERT_EQ(end.ledger.arrive(whole(message), 100, true).arrival, Arrival::kSegment);
    unflushed.arrived(message, 0, 100, message == 1 ? 7 : 8);
  }
  std::array<uint16_t, 8> segments{};
  EXPECT_EQ(end.report(unflushed, 7, segments), 1u) << "message 0 is there";
  EXPECT_EQ(segments[0], 0) << "of message 1 nothing: path 7 is left";
  EXPECT_NE(segments[1], 0) << "message 2 came over another path, whose flush is still to come";
  EXPECT_EQ(unflushed.newest(7), nullptr);
  EXPECT_NE(unflushed.newest(8), nullptr);
  EXPECT_EQ(end.ledger.arrive(whole(1), 100).arrival, Arrival::kMessage) << "it may arrive again";
}

}  // namespace
}  // namespace r2ccl
