// SPDX-License-Identifier: Apache-2.0
// Mode 1: the move of a channel that is away from home to a NIC that has less to carry. Which NIC that is the
// caller finds (nic_load.h); here is when it looks, which path it has for it, and where it does not go. Pure;
// times are CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "r2ccl/protocol/nic_load.h"
#include "r2ccl/protocol/wire.h"

namespace r2ccl {

class SpreadMove {
 public:
  static constexpr uint64_t kLookEveryNs = 25'000'000;

  /// As SpreadTimer; a NIC that turned out not to work is left alone for `ceiling_ns`.
  SpreadMove(uint64_t settle_ns, uint64_t ceiling_ns, uint64_t seed)
      : timer_(settle_ns, ceiling_ns, seed), ceiling_(ceiling_ns) {}

  /// The path that it moves to when that has answered a probe; 0: none.
  uint32_t path() const { return path_; }
  bool has(uint32_t path) const { return path_ != 0 && path_ == path; }
  bool may_go_to(int nic, uint64_t now) const { return now >= not_before_[size_t(nic)]; }

  // --- what happens
  void rests(uint64_t now) { timer_.due(false, now); }
  void takes(uint32_t path) { path_ = path; }
  void dropped(uint32_t path) {
    if (has(path)) path_ = 0;
  }
  /// Traffic flows over another path, for whatever reason.
  void carries() { path_ = 0; }
  void failed(int nic, uint64_t now) {
    not_before_[size_t(nic)] = now + ceiling_;
    ended(now);
  }
  /// It has moved, or found that it need not.
  void ended(uint64_t now) {
    path_ = 0;
    timer_.moved(now);
  }

  // --- what is due
  bool may_look(uint64_t now) {
    if (now < next_look_) return false;
    next_look_ = now + kLookEveryNs;
    return true;
  }
  /// `better`: another NIC has less to carry. True: move now.
  bool due(bool better, uint64_t now) { return timer_.due(better, now); }

 private:
  SpreadTimer timer_;
  const uint64_t ceiling_;
  uint64_t next_look_ = 0;
  uint32_t path_ = 0;
  std::array<uint64_t, wire::kMaxNics> not_before_{};
};

}  // namespace r2ccl
