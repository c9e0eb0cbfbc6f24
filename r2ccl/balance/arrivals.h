// SPDX-License-Identifier: Apache-2.0
// Where a receiver looks for a message. Pure. To look at a completion queue costs as much when it is empty as
// when it brings something, and only the sender knows which lane a message travels on (splitter.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "r2ccl/balance/splitter.h"

namespace r2ccl::balance {

class Arrivals {
 public:
  /// After so many right guesses in a row the next message is expected where it is guessed.
  static constexpr uint32_t kTrust = 8;

  /// Calls look(i) of `carriers` (0: the active path, those behind it: lanes), the likeliest first, until one
  /// brings the message: look() returns true then. Each is looked at once at most. The likeliest is the one
  /// that followed the carrier of the last message when that one brought a message before: small messages
  /// travel on lanes in turn, and the tiniest all on one. While guesses are right and begun() says that no
  /// part of the message has come, of the others only one is looked at, another each time.
  template <class Look, class Begun>
  void look(size_t carriers, Look&& look, Begun&& begun) {
    if (std::min(carriers, next_.size()) != carriers_) forget(carriers);
    const size_t likeliest = next_[last_];
    const auto brings = [&](size_t at) {
      if (!look(at)) return false;
      brought(at, at == likeliest);
      return true;
    };
    uint32_t looked_at = 0;  // a bit for each
    if (right_ >= kTrust && carriers_ > 2 && !begun()) {
      do other_ = after(other_);
      while (other_ == likeliest);
      if (brings(likeliest) || brings(other_) || !begun()) return;
      looked_at = 1u << likeliest | 1u << other_;
    }
    for (size_t k = 0, at = likeliest; k < carriers_; ++k, at = after(at))
      if (!(looked_at >> at & 1) && brings(at)) return;
    for (size_t at = carriers_; at < carriers; ++at)
      if (look(at)) return;
  }

 private:
  void forget(size_t carriers) {
    carriers_ = std::min(carriers, next_.size());
    for (size_t at = 0; at < carriers_; ++at) next_[at] = uint8_t(after(at));
    last_ = carriers_ > 0 ? carriers_ - 1 : 0;
    other_ = right_ = 0;
  }
  void brought(size_t at, bool right) {
    right_ = right ? std::min(right_ + 1, kTrust) : 0;
    next_[last_] = uint8_t(at);
    last_ = at;
  }
  size_t after(size_t at) const { return at + 1 < carriers_ ? at + 1 : 0; }

  std::array<uint8_t, 2 * kMaxRails> next_{};  // a lane may stand beside the one that takes its place
  size_t carriers_ = 0;
  size_t last_ = 0;     // the carrier of the last message
  size_t other_ = 0;    // looked at last beside the likeliest
  uint32_t right_ = 0;  // right guesses in a row, kTrust at most
};

}  // namespace r2ccl::balance
