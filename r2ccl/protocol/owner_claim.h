// SPDX-License-Identifier: Apache-2.0
// Whose a sender is while it is being set up: nobody holds it yet, somebody asks for it again and again until
// it is ready and then takes it. NCCL may abort a communicator meanwhile and ask no more, silently; after a
// bound the channel gives itself up. Pure.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace r2ccl {

class OwnerClaim {
 public:
  // --- any thread ---
  /// Nobody has it yet. A channel of which this is never said is somebody's from the beginning.
  void wait() { owner_.store(Owner::kAwaited); }
  /// Somebody asks for it. False: it has been given up.
  bool ask() {
    asked_.store(true);
    return owner_.load() != Owner::kGivenUp;
  }
  /// It is somebody's, who closes it. False: it has been given up.
  bool take() {
    Owner awaited = Owner::kAwaited;
    return owner_.compare_exchange_strong(awaited, Owner::kTaken) || awaited == Owner::kTaken;
  }

  // --- the service thread, at each step ---
  /// True once: nobody has asked for it for more than `bound` ns. Between two looks the process may have been
  /// stopped, and asked for nothing: steps are capped.
  bool look(uint64_t now, uint64_t bound) {
    if (owner_.load() != Owner::kAwaited) return false;
    const uint64_t before = std::exchange(looked_, now);
    unasked_for_ += before == 0 ? 0 : std::min(now - before, kLongestStepNs);
    if (asked_.exchange(false)) unasked_for_ = 0;
    Owner awaited = Owner::kAwaited;
    return unasked_for_ > bound && owner_.compare_exchange_strong(awaited, Owner::kGivenUp);
  }

 private:
  enum class Owner : uint8_t { kTaken, kAwaited, kGivenUp };
  static constexpr uint64_t kLongestStepNs = 150'000'000;  // a round that took longer was our own pause

  std::atomic<Owner> owner_{Owner::kTaken};
  std::atomic<bool> asked_{false};
  uint64_t looked_ = 0;  // 0: not yet
  uint64_t unasked_for_ = 0;
};

}  // namespace r2ccl
