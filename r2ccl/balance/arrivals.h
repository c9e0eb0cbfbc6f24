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
  /// Calls look(i) of `carriers` (0: the active path, those behind it: lanes), the likeliest first, until one
  /// brings the message: look() returns true then. Each is looked at once at most. The likeliest is the one
  /// that followed the carrier of the last message when that one brought a message before: small messages
  /// travel on lanes in turn, and the tiniest all on one.
  template <class Look>
  void look(size_t carriers, Look&& look) {
    if (std::min(carriers, next_.size()) != carriers_) forget(carriers);
    for (size_t k = 0, at = next_[last_]; k < carriers_; ++k, at = after(at))
      if (look(at)) return brought(at);
    for (size_t at = carriers_; at < carriers; ++at)
      if (look(at)) return;
  }

 private:
  void forget(size_t carriers) {
    carriers_ = std::min(carriers, next_.size());
    for (size_t at = 0; at < carriers_; ++at) next_[at] = uint8_t(after(at));
    last_ = carriers_ > 0 ? carriers_ - 1 : 0;
  }
  void brought(size_t at) {
    next_[last_] = uint8_t(at);
    last_ = at;
  }
  size_t after(size_t at) const { return at + 1 < carriers_ ? at + 1 : 0; }

  std::array<uint8_t, 2 * kMaxRails> next_{};  // a lane may stand beside the one that takes its place
  size_t carriers_ = 0;
  size_t last_ = 0;  // the carrier of the last message
};

}  // namespace r2ccl::balance
