// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/protocol/copy_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace r2ccl {
namespace {

using Ring = CopyRing<1024, 16>;

TEST(CopyRing, copies_lie_one_behind_the_other) {
  Ring ring;
  EXPECT_EQ(ring.take(0, 8, 0), 0u);
  EXPECT_EQ(ring.take(1, 65, 0), 64u);
  EXPECT_EQ(ring.take(2, 0, 0), 192u);
  EXPECT_EQ(ring.take(3, 64, 0), 192u);
}

TEST(CopyRing, has_room_for_all_of_it_and_no_more) {
  Ring ring;
  for (uint64_t message = 0; message < 4; ++message) EXPECT_EQ(ring.take(message, 256, 0), 256 * message);
  EXPECT_EQ(ring.take(4, 1, 0), std::nullopt);
  EXPECT_EQ(ring.take(5, 1, 0), std::nullopt);
  EXPECT_EQ(ring.take(6, 1, 1), 0u);  // the first is received
  EXPECT_EQ(ring.take(7, 256, 1), std::nullopt);
  EXPECT_EQ(ring.take(8, 192, 1), 64u);
}

TEST(CopyRing, a_message_without_a_copy_keeps_nothing) {
  Ring ring;
  EXPECT_EQ(ring.take(0, 1024, 0), 0u);
  EXPECT_EQ(ring.take(9, 1024, 0), std::nullopt);  // 1 … 8 were not copied
  EXPECT_EQ(ring.take(10, 1024, 1), 0u);
  EXPECT_EQ(ring.take(11, 1024, 10), std::nullopt);
  EXPECT_EQ(ring.take(12, 1024, 11), 0u);
}

TEST(CopyRing, a_copy_is_one_piece) {
  Ring ring;
  EXPECT_EQ(ring.take(0, 640, 0), 0u);
  EXPECT_EQ(ring.take(1, 256, 0), 640u);
  EXPECT_EQ(ring.take(2, 256, 0), std::nullopt);  // the end is too short, and the beginning is kept
  EXPECT_EQ(ring.take(3, 256, 1), 0u);
}

TEST(CopyRing, a_whole_ring_begins_anywhere) {
  Ring ring;
  EXPECT_EQ(ring.take(0, 64, 0), 0u);
  EXPECT_EQ(ring.take(1, 1024, 0), std::nullopt);
  EXPECT_EQ(ring.take(2, 1024, 1), 0u);
}

// The receiver has a message before its slot is used again, whether or not it has said so.
TEST(CopyRing, what_left_the_window_was_received) {
  Ring ring;
  EXPECT_EQ(ring.take(0, 1024, 0), 0u);
  EXPECT_EQ(ring.take(15, 64, 0), std::nullopt);
  EXPECT_EQ(ring.take(16, 64, 0), 0u);
  EXPECT_EQ(ring.take(1000, 1024, 0), 0u);
}

TEST(CopyRing, one_that_comes_again_has_its_place_anew) {
  Ring ring;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ring.take(0, 512, 0), 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ring.take(1, 512, 0), 512u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ring.take(2, 512, 0), std::nullopt);
  EXPECT_EQ(ring.take(2, 512, 1), 0u);
}

/// No copy that may be needed is overwritten, and room is found where the plainest of books finds it.
TEST(CopyRing, keeps_what_is_not_received) {
  std::mt19937_64 random(1);
  for (int run = 0; run < 200; ++run) {
    Ring ring;
    struct Copy {
      uint64_t message;
      uint32_t from, bytes;
    };
    std::deque<Copy> kept;
    uint64_t received = 0;
    int taken = 0, refused = 0;
    // Also beyond 2^32 bytes, where the count of bytes begins anew.
    for (uint64_t message = random() % 40; message < 4000;
         message += 1 + (random() % 8 == 0) * (random() % 20)) {
      received = std::max(received, message - std::min<uint64_t>(message, random() % 18));
      if (message >= 16) received = std::max(received, message - 15);
      while (!kept.empty() && kept.front().message < received) kept.pop_front();
      const auto bytes = uint32_t(random() % 3 == 0 ? random() % 1025 : random() % 257);
      const auto at = ring.take(message, bytes, received);
      if (!at) {
        ++refused;
        ASSERT_FALSE(kept.empty()) << "an empty ring has room for " << bytes;
        continue;
      }
      ++taken;
      ASSERT_EQ(*at % Ring::kAlign, 0u);
      ASSERT_LE(*at + bytes, 1024u);
      for (const Copy& other : kept)
        ASSERT_TRUE(*at + bytes <= other.from || other.from + other.bytes <= *at || bytes == 0 ||
                    other.bytes == 0)
            << message << " over " << other.message;
      kept.push_back({message, *at, bytes});
    }
    EXPECT_GT(taken, 500);
    EXPECT_GT(refused, 50);
  }
}

TEST(CopyRing, goes_on_when_its_count_of_bytes_begins_anew) {
  CopyRing<1u << 31, 16> ring;
  uint64_t message = 0;
  for (int i = 0; i < 10; ++i, ++message)
    EXPECT_EQ(ring.take(message, 1u << 30, message), i % 2 ? 1u << 30 : 0u);
}

}  // namespace
}  // namespace r2ccl
