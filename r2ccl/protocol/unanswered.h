// SPDX-License-Identifier: Apache-2.0
// Peer processes that a channel of this process has waited for in vain when it was closed: its others, which
// are closed next, do not wait. Pure; times are CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <cstdint>
#include <map>

namespace r2ccl {

class Unanswered {
 public:
  /// For so long.
  static constexpr uint64_t kRememberNs = 10'000'000'000;

  bool has(uint64_t process, uint64_t now) const {
    const auto it = since_.find(process);
    return it != since_.end() && now - it->second < kRememberNs;
  }
  void note(uint64_t process, uint64_t now) { since_[process] = now; }
  /// It has answered, on any channel.
  void heard(uint64_t process) { since_.erase(process); }

 private:
  std::map<uint64_t, uint64_t> since_;
};

}  // namespace r2ccl
