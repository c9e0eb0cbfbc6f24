// SPDX-License-Identifier: Apache-2.0
// Control messages: only what the other end of this very connection said, once and in order, is believed.
#include "r2ccl/control/frame.h"

#include <gtest/gtest.h>
#include <sodium.h>

#include <cstring>

namespace r2ccl::control {
namespace {

std::vector<std::byte> bytes(const char* text) {
  const auto* from = reinterpret_cast<const std::byte*>(text);
  return {from, from + std::strlen(text)};
}

class Frames : public testing::Test {
 protected:
  void SetUp() override { ASSERT_GE(sodium_init(), 0); }
  Token token = random_token();
  Encoder encoder{direction_key(token, Token{}, true)};
  Decoder decoder{direction_key(token, Token{}, true)};
  std::vector<std::byte> stream;
  Message message;
};

TEST_F(Frames, come_out_as_they_went_in_whatever_the_pieces) {
  std::vector<std::byte> all;
  encoder.append(3, bytes("first"), all);
  encoder.append(4, {}, all);
  encoder.append(5, bytes("third"), all);
  int seen = 0;
  for (const std::byte b : all) {
    stream.push_back(b);
    auto next = decoder.next(stream, message);
    ASSERT_TRUE(next.ok());
    if (*next) {
      EXPECT_EQ(message.type, 3 + seen);
      EXPECT_EQ(message.payload, bytes(seen == 0 ? "first" : seen == 1 ? "" : "third"));
      ++seen;
    }
  }
  EXPECT_EQ(seen, 3);
  EXPECT_TRUE(stream.empty());
}

TEST_F(Frames, any_flipped_bit_is_refused) {
  std::vector<std::byte> all;
  encoder.append(3, bytes("payload"), all);
  for (size_t bit = 0; bit < all.size() * 8; ++bit) {
    auto forged = all;
    forged[bit / 8] ^= std::byte(1 << (bit % 8));
    Decoder fresh(direction_key(token, Token{}, true));
    auto next = fresh.next(forged, message);
    // A changed length may ask for more bytes; it must never yield a message.
    EXPECT_FALSE(next.ok() && *next) << "bit " << bit;
  }
}

TEST_F(Frames, a_replayed_message_is_refused) {
  encoder.append(3, bytes("once"), stream);
  const auto copy = stream;
  ASSERT_TRUE(*decoder.next(stream, message));
  stream = copy;
  auto again = decoder.next(stream, message);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kAuthentication);
}

TEST_F(Frames, a_message_reflected_to_its_speaker_is_refused) {
  encoder.append(3, bytes("mine"), stream);
  Decoder other(direction_key(token, Token{}, false));
  EXPECT_FALSE(other.next(stream, message).ok());
}

TEST_F(Frames, a_recorded_conversation_fails_under_another_nonce) {
  const Token nonce = random_token();
  encoder.rekey(direction_key(token, nonce, true));
  encoder.append(3, bytes("x"), stream);
  decoder.rekey(direction_key(token, random_token(), true));
  EXPECT_FALSE(decoder.next(stream, message).ok());
}

TEST_F(Frames, a_length_beyond_the_bound_is_refused_at_once) {
  encoder.append(3, bytes("x"), stream);
  const uint16_t huge = kMaxPayload + 1;
  std::memcpy(stream.data() + 6, &huge, sizeof huge);
  EXPECT_FALSE(decoder.next(stream, message).ok());
}

TEST_F(Frames, a_truncated_message_waits) {
  encoder.append(3, bytes("waiting"), stream);
  stream.pop_back();
  auto next = decoder.next(stream, message);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(*next);
}

TEST_F(Frames, a_payload_of_another_size_is_not_taken_for_a_struct) {
  message.payload = bytes("abc");
  EXPECT_FALSE(message.as<uint64_t>().ok());
}

}  // namespace
}  // namespace r2ccl::control
