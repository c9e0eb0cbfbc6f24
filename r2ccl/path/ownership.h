// SPDX-License-Identifier: Apache-2.0
// Which thread may touch a channel's messages and paths: its progress thread or the service thread. A
// function that needs ownership takes an Owned, which only an OwnershipGuard gives.
//
// An Owned is of one channel. A function of a channel that takes one passes it on to another function of this
// channel in any case, or calls ChannelOwnership::check(), which aborts if it is another channel's. That
// costs nothing in a build without R2CCL_CHECK_OWNERSHIP (the CMake option of that name; the presets asan,
// tsan, debug and fuzz have it).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <type_traits>

namespace r2ccl {

class Owned;

/// Ownership of a channel, which its progress thread and the service thread pass to each other. The progress
/// thread goes on without it (only ProgressThread::write_acks may give way). Uncontended: one atomic exchange.
class ChannelOwnership {
 public:
  /// The progress thread: gives way when the service thread is waiting. True: a guard adopts it.
  [[nodiscard]] bool try_acquire() noexcept {
    return !service_waits_.load(std::memory_order_relaxed) && !owned_.exchange(1, std::memory_order_acquire);
  }
  /// Aborts unless `owned` is of this channel, and its guard is still there.
  void check([[maybe_unused]] Owned owned) const noexcept;

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
  friend class ChannelOwnership;
#ifdef R2CCL_CHECK_OWNERSHIP
  explicit Owned(const ChannelOwnership& channel) : channel_(&channel) {}
  const ChannelOwnership* channel_;
#else
  explicit Owned(const ChannelOwnership&) {}
#endif
};

#ifdef R2CCL_CHECK_OWNERSHIP
[[noreturn]] void not_owned(const char* why) noexcept;

inline void ChannelOwnership::check(Owned owned) const noexcept {
  if (owned.channel_ != this) not_owned("it owns another channel");
  if (owned_.load(std::memory_order_relaxed) == 0) not_owned("it owned the channel before");
}
#else
static_assert(std::is_empty_v<Owned>);
inline void ChannelOwnership::check(Owned) const noexcept {}
#endif
static_assert(!std::is_default_constructible_v<Owned>);

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
  operator Owned() const { return Owned(ownership_); }

 private:
  ChannelOwnership& ownership_;
};

}  // namespace r2ccl
