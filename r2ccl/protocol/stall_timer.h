// SPDX-License-Identifier: Apache-2.0
// How long an end has stalled while something is open, and what is due then. A stall leads to a probe, and
// only a probe that fails, or a queue pair that makes no progress while probes are answered, to a migration.
// A stopped or slow peer answers probes: its NIC needs no CPU for that. Pure: `alive` is the service thread's
// clock, which does not count the thread's own pauses; all times are in nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "r2ccl/health/adaptive_bound.h"

namespace r2ccl {

/// What a work request of `bytes` may take over a NIC that carries `mbps` (> 0), in ns. It may get an eighth
/// of that: other channels share the NIC, and it may be slower than is known.
constexpr uint64_t longest_work_ns(uint64_t bytes, double mbps) {
  return uint64_t(double(bytes) * 8 * 8 * 1000 / mbps);
}

class StallTimer {
 public:
  static constexpr uint64_t kFirstProbePauseNs = 8'000'000;
  static constexpr uint64_t kLongestProbePauseNs = 100'000'000;
  static constexpr uint64_t kSlowPeerNs = 1'000'000'000;  ///< silence after which the log says so, once

  StallTimer(uint64_t suspect_after, uint64_t stuck_after)
      : suspect_after_(suspect_after),
        patient_after_(stuck_after / 4),
        suspicious_(5, suspect_after, 2 * suspect_after),
        stuck_(80, stuck_after, 4 * stuck_after) {}

  // --- what happens
  /// To be called in each turn. The time before the first call does not count.
  void tick(uint64_t alive) {
    if (alive_ == 0) alive_ = began_at_ = alive;
    step_ = alive - alive_;
    alive_ = alive;
  }
  /// The progress thread has polled without success for as long as `suspect_after`.
  void polled_in_vain(uint64_t progress) {
    if (moved(progress)) {
      silence_ = 0;
      began_at_ = alive_;
    }
    seen_ = progress;
    silence_ = std::max(silence_, suspect_after_);
  }
  /// Has there been progress since the last call?
  bool moved(uint64_t progress) const { return progress != seen_; }
  /// There was progress, or nothing is open: the stall is over.
  void restart(uint64_t progress) {
    if (moved(progress)) {
      stuck_.moved();
      if (silence_ > 0) suspicious_.ended_after(silence_), stuck_.ended_after(silence_);
    }
    carries_on(progress);
    next_probe_ = 0;
    probe_pause_ = kFirstProbePauseNs;
    slow_peer_told_ = false;
    nothing_open_at_ = alive_;
  }
  /// Another path is in use from now on.
  void carries_on(uint64_t progress) {
    seen_ = progress;
    silence_ = 0;
    began_at_ = alive_;
    requested_ = false;
  }
  /// No work request is posted that a working NIC would complete.
  void nothing_open() { nothing_open_at_ = alive_; }
  /// A path is left because its probe failed.
  void left(uint64_t progress) {
    leaves_ = progress == left_at_ ? leaves_ + 1 : 1;
    left_at_ = progress;
  }
  /// A path is left because its queue pair made no progress. If it was merely slow, its messages start again
  /// on another path. So each such migration doubles the time until the next one, and in the end the timer
  /// waits long enough for a slow rail.
  void left_standing_still() { stuck_.acted_on(); }

  // --- what is due, while the stall lasts
  /// Adds the time since the last tick(). True: the stall is long enough to probe.
  bool suspicious() {
    silence_ += step_;
    return silence_ >= suspicious_.ns();
  }
  /// A probe is answered. The next one is due after a pause, which doubles each time.
  void answered() {
    if (next_probe_ == 0) next_probe_ = alive_ + probe_pause_;
  }
  bool request_retransmit_due() {
    if (requested_ && alive_ < next_probe_) return false;
    return requested_ = true;
  }
  /// True: the receiver also repeats its CTS entries and its ACK.
  bool patient() const { return silence_ > patient_after_; }
  bool probe_due() {
    if (alive_ < next_probe_) return false;
    probe_pause_ = std::min(2 * probe_pause_, kLongestProbePauseNs);
    next_probe_ = 0;
    return true;
  }
  /// True once per stall: the log is to say that the peer is slow.
  bool slow_peer() {
    if (silence_ <= kSlowPeerNs || slow_peer_told_) return false;
    return slow_peer_told_ = true;
  }
  /// A queue pair with posted work has made no progress for too long. `work_ns`: what its work may take.
  bool stuck(uint64_t work_ns = 0) const {
    return silence_ > stuck_.ns() + work_ns && alive_ - nothing_open_at_ > stuck_.ns() / 2 + work_ns;
  }

  uint64_t silence() const { return silence_; }
  /// How long ago the stall began, by the clock of tick() alone. silence() may be longer: polled_in_vain()
  /// raises it, and while all is well tick() is called rarely.
  uint64_t looked_for() const { return alive_ - began_at_; }
  /// How many paths were left because their probes failed, since the last progress.
  unsigned leaves(uint64_t progress) const { return progress == left_at_ ? leaves_ : 0; }

 private:
  const uint64_t suspect_after_, patient_after_;
  AdaptiveBound suspicious_, stuck_;
  uint64_t alive_ = 0, step_ = 0;
  uint64_t seen_ = 0;  // count of progress
  uint64_t silence_ = 0;
  uint64_t began_at_ = 0;
  uint64_t nothing_open_at_ = 0;
  uint64_t next_probe_ = 0, probe_pause_ = kFirstProbePauseNs;
  bool requested_ = false;
  bool slow_peer_told_ = false;
  unsigned leaves_ = 0;
  uint64_t left_at_ = ~uint64_t{0};  // count of progress
};

}  // namespace r2ccl
