// SPDX-License-Identifier: Apache-2.0
// Aligned 8-byte words are never seen half written, and completions come after their data.
#include <gtest/gtest.h>

#include <thread>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

// Every word of a line repeats one byte eight times: a torn word would mix two.
bool is_whole(std::uint64_t word) { return word == (word & 0xff) * 0x0101010101010101ull; }

// The target polls the words while the initiator overwrites them. `offset` shifts the source against the
// destination.
void stress(std::size_t bytes, std::size_t source_offset, unsigned flags) {
  // Within a long message the reader meets the writer only now and then.
  const std::uint64_t wanted_changes = bytes > 1024 ? 2'000 : 20'000;
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [&](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    auto* words = reinterpret_cast<volatile std::uint64_t*>(me.memory());
    const std::size_t count = bytes / 8;
    // Until enough has been seen to change under our eyes; where both processes share one busy core that
    // takes a while.
    const std::uint64_t end = now_ns() + 20'000'000'000;
    std::uint64_t changes = 0, last = 0;
    while (changes < wanted_changes) {
      VHCA_REQUIRE(now_ns() < end || changes > wanted_changes / 100);
      if (now_ns() >= end) break;
      for (std::size_t k = 0; k < 8192; k += count)
        for (std::size_t i = 0; i < count; ++i) {
          const std::uint64_t word = words[i];
          VHCA_REQUIRE(is_whole(word));
          changes += word != last;
          last = word;
        }
    }
    wire.send(changes);
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    for (std::uint64_t i = 0;; ++i) {
      std::memset(me.memory() + source_offset, static_cast<int>(i & 0xff), bytes);
      me.post({.id = i, .offset = source_offset, .bytes = bytes, .flags = IBV_SEND_SIGNALED | flags});
      me.expect(IBV_WC_SUCCESS, i);
    }
  });
  introduce(target, initiator);
  EXPECT_EQ(target.wait(), 0) << bytes << " bytes from offset " << source_offset;
}

TEST(Words, single_words_are_whole) { stress(8, 0, 0); }
TEST(Words, lines_of_64_bytes_have_whole_words) { stress(64, 0, 0); }
TEST(Words, lines_from_a_source_that_is_not_aligned_have_whole_words) { stress(64, 3, 0); }
TEST(Words, inline_lines_have_whole_words) { stress(64, 0, IBV_SEND_INLINE); }
TEST(Words, long_messages_have_whole_words) { stress(65536, 0, 0); }

TEST(Words, long_messages_from_a_source_that_is_not_aligned_have_whole_words) { stress(65536, 3, 0); }

TEST(Words, a_completion_is_never_ahead_of_its_data) {
  const auto fabric = make_fabric(2, 1);
  Process target(fabric, "node1", [&](const Wire& wire) {
    Endpoint me;
    for (std::uint64_t i = 0; i < 100; ++i) me.post_recv(i);
    me.connect_over(wire);
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const ibv_wc wc = me.wait();
      VHCA_REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
      VHCA_REQUIRE_EQ(wc.wr_id, i);
      me.post_recv(i + 100);
      // The data of the message with this number lies in its own slot of 16.
      const auto* slot = reinterpret_cast<const std::uint32_t*>(me.memory() + (i % 16) * 4096);
      for (const std::size_t at : {std::size_t{0}, std::size_t{512}, std::size_t{1023}})
        VHCA_REQUIRE_EQ(slot[at], i);
      if (i % 16 == 15) wire.send('a');
    }
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      auto* slot = reinterpret_cast<std::uint32_t*>(me.memory() + (i % 16) * 4096);
      std::fill(slot, slot + 1024, static_cast<std::uint32_t>(i));
      me.post({.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
               .id = i,
               .offset = (i % 16) * 4096,
               .bytes = 4096,
               .remote_offset = (i % 16) * 4096});
      me.expect(IBV_WC_SUCCESS, i);
      if (i % 16 == 15) wire.receive<char>();
    }
  });
  introduce(target, initiator);
  std::thread relay([&] {
    for (int i = 0; i < 1250; ++i) initiator.wire().send(target.wire().receive<char>());
  });
  EXPECT_EQ(target.wait(), 0);
  EXPECT_EQ(initiator.wait(), 0);
  relay.join();
}

}  // namespace
}  // namespace vhca::test
