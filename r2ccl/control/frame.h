// SPDX-License-Identifier: Apache-2.0
// Control messages on a byte stream: length, type, counter, authentication code, payload. Pure: bytes in,
// messages out. Nothing is believed before its code has been checked; lengths are bounded; a message that
// was seen before has the wrong counter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/control/endpoint.h"

namespace r2ccl::control {

inline constexpr size_t kCodeBytes = 16;
inline constexpr size_t kHeaderBytes = 32;
inline constexpr size_t kMaxPayload = 4096;

/// Random bytes for a listen handle or a nonce.
Token random_token();

/// The key of one direction: derived from the handle's token, the acceptor's nonce and who speaks.
Token direction_key(const Token& token, const Token& nonce, bool from_connector);

struct Message {
  uint16_t type = 0;
  std::vector<std::byte> payload;

  /// The payload as a plain struct. kAuthentication when the size differs: the peer speaks another language.
  template <typename T>
  Result<T> as() const {
    if (payload.size() != sizeof(T))
      return Error{ErrorCode::kAuthentication, "control message of an unexpected size"};
    T out;
    __builtin_memcpy(&out, payload.data(), sizeof(T));
    return out;
  }
};

/// Makes the frames of one direction.
class Encoder {
 public:
  /// `counter`: of its first frame.
  explicit Encoder(const Token& key, uint64_t counter = 0) : key_(key), counter_(counter) {}
  void rekey(const Token& key) { key_ = key; }
  /// Appends one frame to `out`. payload.size() ≤ kMaxPayload.
  void append(uint16_t type, std::span<const std::byte> payload, std::vector<std::byte>& out);

 private:
  Token key_;
  uint64_t counter_;
};

/// Takes the frames of one direction apart.
class Decoder {
 public:
  /// `counter`: of the first frame that it takes.
  explicit Decoder(const Token& key, uint64_t counter = 0) : key_(key), counter_(counter) {}
  void rekey(const Token& key) { key_ = key; }
  /// The type of the next frame before it is authenticated, when its header has arrived (0: not yet).
  static uint16_t peek_type(std::span<const std::byte> buffer);
  /// Its counter, likewise.
  static uint64_t peek_counter(std::span<const std::byte> buffer);
  /// Takes one message off the front of `buffer` (bytes are erased from it). true: `out` is filled;
  /// false: more bytes are needed. kAuthentication: forged, replayed, oversized; the stream is useless.
  Result<bool> next(std::vector<std::byte>& buffer, Message& out);

 private:
  Token key_;
  uint64_t counter_;
};

}  // namespace r2ccl::control
