// SPDX-License-Identifier: Apache-2.0
// Which thread may touch a channel's messages and paths: its progress thread or the service thread. A
// function that needs ownership takes an Owned, which only an OwnershipGuard gives.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace r2ccl {

/// Ownership of a channel, which its progress thread and the service thread pass to each other. The progress
/// thread never waits for it: without it, it does something else. Uncontended, it costs one atomic exchange.
class ChannelOwnership {
 public:
  /// The progress thread: gives way when the service thread is waiting. True: a guard adopts it.
  [[nodiscard]] bool try_acquire() noexcept {
    return !service_waits_.load(std::memory_order_relaxed) && !owned_.exchange(1, std::memory_order_acquire);
  }

 private:
  friend class OwnershipGuard;
  /// The service thread: a progress thread holds it for one call at most, but may be off the CPU meanwhile.
  void acquire() noexcept;
  void release() noexcept {
    owned_.store(0, std::memory_order_release);
    if (service_waits_.load(std::memory_order_relaxed)) wake();
  }
  void wake() noexcept;
  std::atomic<uint32_t> owned_{0};
  std::atomic<bool> service_waits_{false};
};

/// Whoever has one runs within the scope of an OwnershipGuard. Empty: passing it costs nothing. To be passed
/// on, and kept by what does not outlive the guard only.
class Owned {
 private:
  friend class OwnershipGuard;
  Owned() = default;
};

static_assert(std::is_empty_v<Owned> && !std::is_default_constructible_v<Owned>);

/// The scope in which a thread owns a channel.
class OwnershipGuard {
 public:
  explicit OwnershipGuard(ChannelOwnership& ownership) : ownership_(ownership) { ownership.acquire(); }
  /// try_acquire() has acquired it. (A guard that knew whether it owns would cost each call five
  /// instructions.)
  OwnershipGuard(ChannelOwnership& ownership, std::adopt_lock_t) : ownership_(ownership) {}
  ~OwnershipGuard() { ownership_.release(); }
  OwnershipGuard(const OwnershipGuard&) = delete;
  OwnershipGuard& operator=(const OwnershipGuard&) = delete;
  operator Owned() const { return {}; }

 private:
  ChannelOwnership& ownership_;
};

}  // namespace r2ccl
