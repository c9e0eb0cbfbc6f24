// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/control/frame.h"

#include <sodium.h>

#include <cstring>

namespace r2ccl::control {
namespace {

constexpr uint32_t kMagic = 0x52324343;  // "CC2R"

struct Header {
  uint32_t magic;
  uint16_t type;
  uint16_t payload_bytes;
  uint64_t counter;
  uint8_t code[kCodeBytes];
};
static_assert(sizeof(Header) == kHeaderBytes);

// BLAKE2b with a key is a MAC (RFC 7693, section 2.9).
void authenticate(const Token& key, const Header& header, std::span<const std::byte> payload,
                  uint8_t (&code)[kCodeBytes]) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), kCodeBytes);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&header), offsetof(Header, code));
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(payload.data()), payload.size());
  crypto_generichash_final(&state, code, kCodeBytes);
}

}  // namespace

Token random_token() {
  Token token;
  randombytes_buf(token.data(), token.size());
  return token;
}

Token direction_key(const Token& token, const Token& nonce, bool from_connector) {
  Token key;
  crypto_generichash_state state;
  crypto_generichash_init(&state, token.data(), token.size(), key.size());
  crypto_generichash_update(&state, nonce.data(), nonce.size());
  const unsigned char who = from_connector ? 'c' : 'a';
  crypto_generichash_update(&state, &who, 1);
  crypto_generichash_final(&state, key.data(), key.size());
  return key;
}

void Encoder::append(uint16_t type, std::span<const std::byte> payload, std::vector<std::byte>& out) {
  const size_t at = out.size();
  out.resize(at + sizeof(Header) + payload.size());  // first: without memory nothing is counted
  Header header{kMagic, type, uint16_t(payload.size()), counter_++, {}};
  authenticate(key_, header, payload, header.code);
  std::memcpy(out.data() + at, &header, sizeof header);
  if (!payload.empty()) std::memcpy(out.data() + at + sizeof header, payload.data(), payload.size());
}

uint16_t Decoder::peek_type(std::span<const std::byte> buffer) {
  if (buffer.size() < sizeof(Header)) return 0;
  Header header;
  std::memcpy(&header, buffer.data(), sizeof header);
  return header.type;
}

uint64_t Decoder::peek_counter(std::span<const std::byte> buffer) {
  if (buffer.size() < sizeof(Header)) return 0;
  Header header;
  std::memcpy(&header, buffer.data(), sizeof header);
  return header.counter;
}

Result<bool> Decoder::next(std::vector<std::byte>& buffer, Message& out) {
  if (buffer.size() < sizeof(Header)) return false;
  Header header;
  std::memcpy(&header, buffer.data(), sizeof header);
  if (header.magic != kMagic || header.payload_bytes > kMaxPayload)
    return Error{ErrorCode::kAuthentication,
                 "what arrived on the control connection is not a control message"};
  if (buffer.size() < sizeof header + header.payload_bytes) return false;
  const std::span<const std::byte> payload(buffer.data() + sizeof header, header.payload_bytes);
  uint8_t code[kCodeBytes];
  authenticate(key_, header, payload, code);
  if (sodium_memcmp(code, header.code, kCodeBytes) != 0)
    return Error{ErrorCode::kAuthentication, "a control message failed its authentication"};
  if (header.counter != counter_)
    return Error{ErrorCode::kAuthentication, "a control message was replayed or lost"};
  ++counter_;
  out.type = header.type;
  out.payload.assign(payload.begin(), payload.end());
  buffer.erase(buffer.begin(), buffer.begin() + long(sizeof header + header.payload_bytes));
  return true;
}

}  // namespace r2ccl::control
