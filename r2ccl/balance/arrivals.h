// SPDX-License-Identifier: Apache-2.0
// Where a receiver looks for a message. Pure. To look at a completion queue costs as much when it is empty as
// when it brings something, and only the sender knows which lane a message travels on (splitter.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "r2ccl/balance/splitter.h"

namespace r2ccl::balance {

class Arrivals {
 public:
  /// After so many right guesses in a row …
  static constexpr unsigned kTrusted = 16;
  /// … one of so many tests in vain looks beyond the guess. One wrong guess ends that.
  static constexpr unsigned kElsewhere = 8;

  /// Calls look(i) of `carriers` (0: the active path, those behind it: lanes), the likeliest first, until one
  /// brings the message: look() returns true then. Each is looked at once at most. The likeliest is the one
  /// that followed the carrier of the last message when that one brought a message before: small messages
  /// travel on lanes in turn, and the tiniest all on one. A message that is not where a trusted guess says is
  /// found kElsewhere tests later at the latest.
  template <class Look>
  void look(size_t carriers, Look&& look) {
    if (std::min(carriers, next_.size()) != carriers_) forget(carriers);
    if (carriers_ == 0) return;
    size_t at = next_[last_];
    if (look(at)) return brought(at, true);
    if (right_ == kTrusted && ++in_vain_ % kElsewhere != 0) return;
    for (size_t k = 1; k < carriers_; ++k)
      if (at = after(at); look(at)) return brought(at, false);
    for (at = carriers_; at < carriers; ++at)
      if (look(at)) {
        right_ = 0;
        return;
      }
  }

 private:
  void forget(size_t carriers) {
    carriers_ = std::min(carriers, next_.size());
    for (size_t at = 0; at < carriers_; ++at) next_[at] = uint8_t(after(at));
    last_ = carriers_ > 0 ? carriers_ - 1 : 0;
    right_ = in_vain_ = 0;
  }
  void brought(size_t at, bool as_guessed) {
    right_ = as_guessed ? std::min(right_ + 1, kTrusted) : 0;
    in_vain_ = 0;
    next_[last_] = uint8_t(at);
    last_ = at;
  }
  size_t after(size_t at) const { return at + 1 < carriers_ ? at + 1 : 0; }

  std::array<uint8_t, 2 * kMaxRails> next_{};  // a lane may stand beside the one that takes its place
  size_t carriers_ = 0;
  size_t last_ = 0;       // the carrier of the last message
  unsigned right_ = 0;    // guesses in a row, up to kTrusted
  unsigned in_vain_ = 0;  // tests since a message came
};

}  // namespace r2ccl::balance
