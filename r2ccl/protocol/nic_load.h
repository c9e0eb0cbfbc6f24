// SPDX-License-Identifier: Apache-2.0
// How many sending channels each NIC carries, or is about to, and whether one of them should move to another
// NIC. Pure: times are what the caller says they are, in nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "r2ccl/protocol/wire.h"

namespace r2ccl {

/// How sending channels lie on the NICs at one moment, in channels. (Ports are full duplex, and senders
/// choose.) A channel away from home counts on its home as well, which it will take again.
struct NicLoad {
  /// A channel that sends nothing at present: it decides only where everything else is equal.
  static constexpr double kIdle = 1.0 / 65536;

  /// Of this process: those that have their home there, and those away from home, also while on their way.
  std::array<double, wire::kMaxNics> own{};
  /// Of the node's other processes, as far as they are seen.
  std::array<double, wire::kMaxNics> others{};
  /// [a][s]: channels of this process that use NIC a and would go to NIC s.
  std::array<std::array<double, wire::kMaxNics>, wire::kMaxNics> behind{};
  /// Channels of this process that are leaving the NIC for a less loaded one.
  std::array<int, wire::kMaxNics> leaving{};

  double on(int nic) const { return own[size_t(nic)] + others[size_t(nic)]; }
  /// Would a channel that moves from `from` to `to` leave the busier of the two with less to carry? `extra`:
  /// what it weighs more there, in channels.
  bool better(int from, int to, double extra = 0) const { return on(from) - on(to) - extra > kLeastGain; }

 private:
  /// Two channels, but for what idle ones make of it: with one fewer nothing is gained.
  static constexpr double kLeastGain = 1.5;
};

/// When a channel that is away from home moves to a less loaded NIC: not before there has been a better one
/// for a while, which differs from channel to channel so that they do not all move at once; and twice as long
/// after each move that was not long ago, so that rails that come and go do not keep it moving.
class SpreadTimer {
 public:
  /// `seed`: another one for each channel of the node.
  SpreadTimer(uint64_t settle_ns, uint64_t ceiling_ns, uint64_t seed)
      : settle_(settle_ns), ceiling_(std::max(ceiling_ns, settle_ns)), wait_(settle_ns), seed_(seed) {}

  /// True: move now. `better`: another NIC would be.
  bool due(bool better, uint64_t now) {
    if (!better) {
      since_ = 0;
      return false;
    }
    if (since_ == 0) {
      if (now - moved_ > kForgetAfter * settle_) wait_ = settle_;
      since_ = now;
      seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
      until_ = now + wait_ + uint64_t(double(wait_) * double(seed_ >> 40) / double(1 << 24));
    }
    return now >= until_;
  }
  /// It has moved, or has tried to.
  void moved(uint64_t now) {
    since_ = 0;
    moved_ = now;
    wait_ = std::min(2 * wait_, ceiling_);
  }
  /// Is there a better one, for which it waits?
  bool waits() const { return since_ != 0; }

 private:
  static constexpr uint64_t kForgetAfter = 50;
  uint64_t settle_, ceiling_, wait_, seed_;
  uint64_t since_ = 0, until_ = 0, moved_ = 0;
};

}  // namespace r2ccl
