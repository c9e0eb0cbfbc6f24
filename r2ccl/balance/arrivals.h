// SPDX-License-Identifier: Apache-2.0
// Where a receiver looks for a message. Pure. To look at a completion queue costs as much when it is empty as
// when it brings something, and only the sender knows which lane a message travels on (splitter.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>

#include "r2ccl/balance/splitter.h"

namespace r2ccl::balance {

class Arrivals {
 public:
  /// Calls look(i) of `carriers` (0: the active path, those behind it: lanes), the likeliest first, until one
  /// brings the message: look() returns its size in bytes then. Each is looked at once at most. The likeliest
  /// is the one that has brought nothing for longest, as messages travel on lanes in turn; or the one that
  /// has brought the last message, if that was one of those that stay on a lane.
  template <class Look>
  void look(size_t carriers, Look&& look) {
    if (std::min(carriers, order_.size()) != carriers_) forget(carriers);
    for (size_t k = 0; k < carriers_; ++k)
      if (const std::optional<uint64_t> bytes = look(size_t{order_[k]}))
        return brought(k, Splitter::stays(*bytes));
    for (size_t at = carriers_; at < carriers; ++at)
      if (look(at)) return;
  }

 private:
  void forget(size_t carriers) {
    carriers_ = std::min(carriers, order_.size());
    std::iota(order_.begin(), order_.end(), uint8_t{0});
  }
  void brought(size_t at, bool stays) {
    const auto from = order_.begin() + at;
    if (stays)
      std::rotate(order_.begin(), from, from + 1);
    else
      std::rotate(from, from + 1, order_.begin() + carriers_);
  }

  std::array<uint8_t, 2 * kMaxRails> order_{};  // a lane may stand beside the one that takes its place
  size_t carriers_ = 0;
};

}  // namespace r2ccl::balance
