// SPDX-License-Identifier: Apache-2.0
// Whether a rail may carry traffic, and when a failed one is tried again. Pure: time is passed in, nothing is
// probed here. A rail returns after it has worked for a settling time. One that flaps waits twice as long
// each time, up to a ceiling, and is never given up.
#pragma once

#include <cstdint>

namespace r2ccl::health {

enum class RailState : uint8_t {
  kUp,         ///< carries traffic
  kDown,       ///< failed; waiting for the next try
  kTrying,     ///< a new path is being opened over it
  kProbation,  ///< the path works; it must go on working for the settling time
};

struct RailPolicy {
  uint64_t settle_ns;
  uint64_t first_wait_ns;
  uint64_t ceiling_ns;
};

class RailHealth {
 public:
  explicit RailHealth(RailPolicy policy) : policy_(policy), wait_ns_(policy.first_wait_ns) {}

  RailState state() const { return state_; }
  /// The wait before the next try, as it stands.
  uint64_t wait_ns() const { return wait_ns_; }

  /// It failed while in use. A rail that had been up only briefly is flapping: its wait doubles.
  void failed(uint64_t now);
  /// Its port is said to be active again: try at once, unless it has been flapping.
  void hint_active(uint64_t now);
  /// True when a new path should be opened over it now.
  bool should_try(uint64_t now) const { return state_ == RailState::kDown && now >= next_try_; }
  /// It will within so long (ns).
  bool should_try_soon(uint64_t now, uint64_t ns) const { return should_try(now + ns); }
  void trying() { state_ = RailState::kTrying; }
  /// The try failed, or probation was broken.
  void try_failed(uint64_t now);
  void try_succeeded(uint64_t now);
  /// True when probation is over: traffic may return.
  bool settled(uint64_t now) const {
    return state_ == RailState::kProbation && now - since_ >= policy_.settle_ns;
  }
  /// Traffic is back on it.
  void restored(uint64_t now);

 private:
  void wait_longer();

  RailPolicy policy_;
  RailState state_ = RailState::kUp;
  uint64_t wait_ns_;
  uint64_t next_try_ = 0;
  uint64_t since_ = 0;
  bool was_restored_ = false;
};

}  // namespace r2ccl::health
