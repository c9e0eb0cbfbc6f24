// SPDX-License-Identifier: Apache-2.0
// The two ledgers and the words on the wire: what counts as arrived, what must be sent again.
#include "r2ccl/protocol/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "r2ccl/protocol/receiving.h"
#include "r2ccl/protocol/unflushed.h"

namespace r2ccl {
namespace {

/// Of message 6.
wire::CtsEntry an_entry() {
  static constexpr uint32_t kKeys[wire::kMaxNics] = {1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007};
  return {
      .head = 7, .address = 0x7f0012345000, .bytes = 1 << 20, .received = 5, .keys = kKeys, .far_nics = 2};
}

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
  wire::CtsLine line, marked;
  wire::CtsEntry entry = an_entry();
  wire::write_line(entry, line);
  entry.far_nics |= wire::kWaitedLong;
  wire::write_line(entry, marked);
  EXPECT_NE(marked.check, line.check);
}

TEST(CtsLine, says_what_was_written) {
  wire::CtsLine line, read;
  wire::write_line(an_entry(), line);
  ASSERT_TRUE(wire::read_line(line, 7, read));
  EXPECT_EQ(std::memcmp(&read, &line, sizeof line), 0);
  EXPECT_EQ(read.head, 7u);
  EXPECT_EQ(read.tail, 7u);
  EXPECT_EQ(read.address, 0x7f0012345000u);
  EXPECT_EQ(read.bytes, 1u << 20);
  EXPECT_EQ(read.received, 5u);
  EXPECT_EQ(read.far_nics, 2u);
  for (uint32_t i = 0; i < wire::kMaxNics; ++i) EXPECT_EQ(read.keys[i], 1000 + i);
}

TEST(CtsLine, is_not_read_for_another_message) {
  wire::CtsLine line, read;
  wire::write_line(an_entry(), line);
  for (const uint32_t head : {0u, 6u, 8u, 7u + wire::kRingLines})
    EXPECT_FALSE(wire::read_line(line, head, read));
}

TEST(CtsLine, any_changed_bit_breaks_it) {
  wire::CtsLine line, read;
  wire::write_line(an_entry(), line);
  for (size_t bit = 0; bit < 8 * sizeof line; ++bit) {
    wire::CtsLine torn = line;
    reinterpret_cast<unsigned char*>(&torn)[bit / 8] ^= uint8_t(1u << bit % 8);
    EXPECT_FALSE(wire::read_line(torn, 7, read)) << "bit " << bit;
  }
}

// A NIC has written some of the words, in any order: the others are those of the line that was there before,
// of an earlier round of the ring.
TEST(CtsLine, words_of_two_lines_are_none) {
  wire::CtsEntry entry = an_entry();
  wire::CtsLine before, after, read;
  wire::write_line(entry, before);
  uint32_t keys[wire::kMaxNics];
  for (uint32_t i = 0; i < wire::kMaxNics; ++i) keys[i] = 2000 + i;
  entry = {.head = 7 + wire::kRingLines,
           .address = 0x7f0012346000,
           .bytes = 1 << 19,
           .received = 69,
           .keys = keys,
           .far_nics = 1};
  wire::write_line(entry, after);
  constexpr uint32_t kAll = (1u << sizeof(wire::CtsLine) / 8) - 1;
  for (uint32_t written = 0; written < kAll; ++written) {
    wire::CtsLine torn = before;
    for (uint32_t word = 0; word < 8; ++word)
      if (written >> word & 1)
        std::memcpy(reinterpret_cast<char*>(&torn) + 8 * word,
                    reinterpret_cast<const char*>(&after) + 8 * word, 8);
    EXPECT_FALSE(wire::read_line(torn, entry.head, read)) << "words " << written;
  }
  EXPECT_TRUE(wire::read_line(after, entry.head, read));
}

// Neighbouring words that change places: the check knows where a word is.
TEST(CtsLine, words_that_change_places_break_it) {
  wire::CtsLine line, read;
  wire::write_line(an_entry(), line);
  for (size_t word = 1; word + 1 < sizeof line / 8; ++word)
    for (size_t other = word + 1; other + 1 < sizeof line / 8; ++other) {
      wire::CtsLine torn = line;
      auto* const bytes = reinterpret_cast<char*>(&torn);
      std::swap_ranges(bytes + 8 * word, bytes + 8 * word + 8, bytes + 8 * other);
      EXPECT_FALSE(wire::read_line(torn, 7, read)) << word << " and " << other;
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
