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

/// What a look at a carrier brought: the message, or else whether anything came at all.
enum class Looked : uint8_t { kNothing, kSomething, kMessage };
constexpr Looked looked(bool message, bool anything) {
  return message ? Looked::kMessage : anything ? Looked::kSomething : Looked::kNothing;
}

class Arrivals {
 public:
  /// After so many right guesses in a row a guess is trusted; after each that was wrong then, twice as many
  /// are needed, up to kMostTrusted.
  static constexpr unsigned kTrusted = 16;
  static constexpr unsigned kMostTrusted = 4096;
  /// One of so many tests in vain looks beyond a trusted guess.
  static constexpr unsigned kElsewhere = 8;

  /// Calls Looked look(i) of `carriers` (0: the active path, those behind it: lanes), the likeliest first,
  /// until one brings the message. Each is looked at once at most. The likeliest is the one that followed the
  /// carrier of the last message when that one brought a message before: small messages travel on lanes in
  /// turn, and the tiniest all on one. A message that is not where a trusted guess says is found kElsewhere
  /// tests later at the latest, and so is anything else that has come there; it ends the trust.
  template <class Look>
  void look(size_t carriers, Look&& look) {
    if (std::min(carriers, next_.size()) != carriers_) forget(carriers);
    if (carriers_ == 0) return;
    size_t at = next_[last_];
    const Looked first = look(at);
    if (first == Looked::kMessage) return brought(at, true);
    if (first == Looked::kNothing && trusted() && ++in_vain_ % kElsewhere != 0) return;
    for (size_t k = 1; k < carriers; ++k) {
      at = k < carriers_ ? after(at) : k;
      const Looked found = look(at);
      if (found == Looked::kMessage && at < carriers_) return brought(at, false);
      if (found != Looked::kNothing) wrong();
      if (found == Looked::kMessage) return;
    }
  }

 private:
  bool trusted() const { return right_ >= needed_; }
  void forget(size_t carriers) {
    carriers_ = std::min(carriers, next_.size());
    for (size_t at = 0; at < carriers_; ++at) next_[at] = uint8_t(after(at));
    last_ = carriers_ > 0 ? carriers_ - 1 : 0;
    right_ = in_vain_ = 0;
    needed_ = kTrusted;
  }
  void wrong() {
    if (trusted()) needed_ = std::min(2 * needed_, kMostTrusted);
    right_ = 0;
  }
  // in_vain_ goes on: tests of a message that is elsewhere may alternate with those of others.
  void brought(size_t at, bool as_guessed) {
    if (as_guessed)
      right_ = std::min(right_ + 1, kMostTrusted);
    else
      wrong();
    next_[last_] = uint8_t(at);
    last_ = at;
  }
  size_t after(size_t at) const { return at + 1 < carriers_ ? at + 1 : 0; }

  std::array<uint8_t, 2 * kMaxRails> next_{};  // a lane may stand beside the one that takes its place
  size_t carriers_ = 0;
  size_t last_ = 0;             // the carrier of the last message
  unsigned right_ = 0;          // guesses in a row
  unsigned needed_ = kTrusted;  // of them, to be trusted
  unsigned in_vain_ = 0;        // tests while a guess was trusted
};

}  // namespace r2ccl::balance
