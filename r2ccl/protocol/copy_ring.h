// SPDX-License-Identifier: Apache-2.0
// Where the sender keeps copies of messages until the receiver has them: a ring of bytes, in the order of the
// messages. Pure: it only says which bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace r2ccl {

/// Of kBytes, a power of two, for the newest kMessages messages, a power of two.
template <uint32_t kBytes, uint32_t kMessages>
class CopyRing {
 public:
  /// The copies of two messages share no cache line.
  static constexpr uint32_t kAlign = 64;

  /// Where the copy of `message`, of up to kBytes, goes; nullopt: there is no room for it. Messages come in
  /// order; those that are not copied need not, and one that comes again has its place anew. Everything
  /// before `received` may be overwritten: the receiver has it.
  std::optional<uint32_t> take(uint64_t message, uint32_t bytes, uint64_t received) {
    if (message == last_)
      next_ = begins_[message % kMessages];
    else
      begin_at(message);
    const uint32_t size = (bytes + kAlign - 1) / kAlign * kAlign;
    const uint32_t to_end = kBytes - next_ % kBytes;
    const uint32_t from = size <= to_end ? next_ : next_ + to_end;  // in one piece
    const uint32_t kept = kept_from(received);
    if (kept != next_ && from + size - kept > kBytes) return std::nullopt;
    begins_[message % kMessages] = from;
    next_ = from + size;
    return from % kBytes;
  }

 private:
  /// Messages since the last one have no copies: what they keep begins where this one does.
  void begin_at(uint64_t message) {
    if (message - last_ > kMessages) last_ = message - kMessages;
    while (last_ < message) begins_[++last_ % kMessages] = next_;
  }
  uint32_t kept_from(uint64_t received) const {
    if (received > last_) return next_;
    const uint64_t oldest = last_ - received >= kMessages ? last_ - kMessages + 1 : received;
    return begins_[oldest % kMessages];
  }

  std::array<uint32_t, kMessages> begins_{};  // where the copy of each message begins, in bytes since ever
  uint64_t last_ = 0;                         // the newest message that is known
  uint32_t next_ = 0;                         // where the next copy begins
};

}  // namespace r2ccl
