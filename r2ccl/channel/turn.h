// SPDX-License-Identifier: Apache-2.0
// Who may touch a channel's messages and paths: its progress thread or the service thread. What needs the
// turn takes a HasTurn, which only a TurnGuard gives.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace r2ccl {

/// Passes a lock-like turn between a channel's progress thread and the service thread. The progress thread
/// never waits for it: when it does not get it, it does something else. Uncontended, a turn costs one atomic
/// exchange.
class Turn {
 public:
  /// The progress thread: gives way when the service thread is waiting. True: a guard is to adopt it.
  [[nodiscard]] bool try_take() noexcept {
    return !service_waits_.load(std::memory_order_relaxed) && !taken_.exchange(1, std::memory_order_acquire);
  }

 private:
  friend class TurnGuard;
  /// The service thread: a progress thread holds it for one call at most, but may be off the CPU meanwhile.
  void take() noexcept;
  void give() noexcept {
    taken_.store(0, std::memory_order_release);
    if (service_waits_.load(std::memory_order_relaxed)) wake();
  }
  void wake() noexcept;
  std::atomic<uint32_t> taken_{0};
  std::atomic<bool> service_waits_{false};
};

/// Whoever has one runs within the scope of a TurnGuard. Empty: passing it costs nothing. To be passed on,
/// and kept by what does not outlive the guard only.
class HasTurn {
 private:
  friend class TurnGuard;
  HasTurn() = default;
};

static_assert(std::is_empty_v<HasTurn> && !std::is_default_constructible_v<HasTurn>);

/// Scope of a turn.
class TurnGuard {
 public:
  explicit TurnGuard(Turn& turn) : turn_(turn) { turn.take(); }
  /// try_take() has taken it. (To ask the guard whether it has would cost each call five instructions.)
  TurnGuard(Turn& turn, std::adopt_lock_t) : turn_(turn) {}
  ~TurnGuard() { turn_.give(); }
  TurnGuard(const TurnGuard&) = delete;
  TurnGuard& operator=(const TurnGuard&) = delete;
  operator HasTurn() const { return {}; }

 private:
  Turn& turn_;
};

}  // namespace r2ccl
