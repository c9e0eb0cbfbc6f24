// SPDX-License-Identifier: Apache-2.0
// What the progress thread does with a channel, and the service thread goes by: open requests, what has come,
// what it cannot do. Counters of one writer each; nobody waits for anybody. Pure.
#pragma once

#include <atomic>
#include <cstdint>

#include "r2ccl/protocol/idle_time.h"

namespace r2ccl {

class Activity {
 public:
  /// A channel counts as traffic for so long after anything has moved.
  static constexpr uint64_t kDemandNs = 1'000'000'000;

  // --- the progress thread, owning the channel ---
  void opened_request() {
    if (!busy()) idle_time_.begin();
    requests_.store(requests() + 1, std::memory_order_relaxed);
  }
  void finished_request() { requests_.store(requests() - 1, std::memory_order_relaxed); }
  /// Something has come, or the NIC has reported something.
  void moved() { progress_.store(progress() + 1, std::memory_order_relaxed); }
  /// It wants to post, and no path carries: time without one counts.
  void wants_a_path() { wanted_.store(true, std::memory_order_relaxed); }
  /// A post has found no room in the queue of its path: the watchdog watches as over an open request. With
  /// nothing open nobody tests, so that whoever posts looks for what has completed. True: look now.
  bool found_no_room() {
    crowded_.store(true, std::memory_order_relaxed);
    return !busy() || ++refused_posts_ % kRefusedPostsPerLook == 0;
  }
  /// A test that found nothing new. True: it is time for silent_for().
  bool empty_test() { return idle_time_.empty_test(); }
  /// True: nothing has moved for `bound` ns of polling, and the service thread is asked to look, once.
  bool silent_for(uint64_t bound, uint64_t now) { return idle_time_.look(now, progress(), bound); }

  // --- any thread ---
  uint32_t requests() const { return requests_.load(std::memory_order_relaxed); }
  bool busy() const { return requests() > 0; }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

  // --- the service thread ---
  /// The progress thread asks it to look, and nothing has moved since.
  bool asks_now() const { return idle_time_.asks_at(progress()); }
  bool asks() const { return idle_time_.asks(); }
  void helped() { idle_time_.helped(); }
  /// Somebody waits for something that moves.
  bool waits() const { return busy() || crowded_.load(std::memory_order_relaxed); }
  void has_room() { crowded_.store(false, std::memory_order_relaxed); }
  /// Somebody waits for a path.
  bool misses_a_path() const { return busy() || wanted_.load(std::memory_order_relaxed); }
  void has_a_path() { wanted_.store(false, std::memory_order_relaxed); }
  /// Looks whether anything has moved since it last did.
  void look(uint64_t now) {
    if (progress() == seen_) return;
    seen_ = progress();
    moved_at_ = now;
  }
  /// By look(), something has moved within `span`.
  bool moved_within(uint64_t span, uint64_t now) const { return moved_at_ != 0 && now - moved_at_ < span; }

 private:
  static constexpr uint32_t kRefusedPostsPerLook = 8;
  std::atomic<uint32_t> requests_{0};
  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> wanted_{false};
  std::atomic<bool> crowded_{false};  // no room was found since progress() changed
  uint32_t refused_posts_ = 0;
  IdleTime idle_time_;
  // the service thread's
  uint64_t seen_ = 0;
  uint64_t moved_at_ = 0;  // 0: never
};

}  // namespace r2ccl
