// SPDX-License-Identifier: Apache-2.0
// What each NIC really carries, learnt from completions alone: no probe traffic, no clock read for small
// messages.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace r2ccl::balance {

/// Counts of one NIC, written by whoever posts and polls. Several threads may.
class NicMeter {
 public:
  static constexpr uint32_t kLeastBytes = 16 << 10;  ///< smaller writes say more of latency than of rate

  /// A write of `bytes` goes to the NIC; `now` is read only when nothing else is under way there. Returns how
  /// many writes more count as under way: 0 or 1.
  template <typename Now>
  int posted(uint32_t bytes, Now now) noexcept {
    if (bytes < kLeastBytes) return 0;
    if (open_.fetch_add(1, std::memory_order_relaxed) != 0) return 1;
    const uint64_t since = idle_since_.load(std::memory_order_relaxed), at = now();
    if (since != 0 && at > since) idle_ns_.fetch_add(at - since, std::memory_order_relaxed);
    return 1;
  }
  /// It is done, and was as much work for the NIC as `work` bytes of memory near to it. Returns how many
  /// fewer are under way: 0 or 1.
  template <typename Now>
  int done(uint32_t bytes, uint64_t work, Now now) noexcept {
    if (bytes < kLeastBytes) return 0;
    const uint64_t at = now();
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    work_.fetch_add(work, std::memory_order_relaxed);
    completions_.fetch_add(1, std::memory_order_relaxed);
    depth_.fetch_add(uint64_t(std::max(1, open_.load(std::memory_order_relaxed))), std::memory_order_relaxed);
    idle_until_done_.store(idle_ns_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    last_done_.store(at, std::memory_order_release);
    if (open_.fetch_sub(1, std::memory_order_relaxed) == 1) idle_since_.store(at, std::memory_order_relaxed);
    return 1;
  }
  /// `writes` of them will never be reported.
  void abandoned(int writes, uint64_t now) noexcept {
    if (writes > 0 && open_.fetch_sub(writes, std::memory_order_relaxed) == writes)
      idle_since_.store(now, std::memory_order_relaxed);
  }

  struct Reading {
    uint64_t bytes = 0, work = 0, completions = 0;
    uint64_t idle_ns = 0;    ///< from the first post to the last completion: what follows is the next span's
    uint64_t last_done = 0;  ///< time of the last completion
    uint64_t depth = 0;      ///< sum over completions: writes under way, with the one that completes
    bool open = false;       ///< writes are under way now
  };
  /// All of one moment, unless completions keep coming in between: then nearly so.
  Reading read() const noexcept {
    Reading reading;
    for (int i = 0; i < 4; ++i) {
      reading.last_done = last_done_.load(std::memory_order_acquire);
      reading.bytes = bytes_.load(std::memory_order_relaxed);
      reading.work = work_.load(std::memory_order_relaxed);
      reading.completions = completions_.load(std::memory_order_relaxed);
      reading.depth = depth_.load(std::memory_order_relaxed);
      reading.idle_ns = idle_until_done_.load(std::memory_order_acquire);
      if (last_done_.load(std::memory_order_relaxed) == reading.last_done) break;
    }
    reading.open = open_.load(std::memory_order_relaxed) > 0;
    return reading;
  }

 private:
  std::atomic<uint64_t> bytes_{0}, work_{0}, completions_{0}, depth_{0}, idle_ns_{0}, last_done_{0},
      idle_since_{0};
  std::atomic<uint64_t> idle_until_done_{0};
  std::atomic<int32_t> open_{0};
};

/// What the NICs of a node can carry beside each other, relative to their nominal rates: 1 until shown
/// otherwise. Pure; time is passed in. A NIC is slow ('gray') when, several intervals running, it has work
/// for as long as any other or longer, and carries clearly less meanwhile than its neighbours do; lateness of
/// this process slows all NICs alike and so shows in none. One with fewer writes under way than its
/// neighbours has less to do, whether or not something always is: what is late there may wait for another
/// port; such an interval counts neither way, as an operation may begin or end in it. From then on what it carries is its level, but for a NIC that has less to do than the others: the
/// rate of small pieces says more of latency than of what it could carry, and would sink with its share, so
/// its level rises until it has as much to do; no further than a latency within its writes explains. What is
/// gray is compared with well NICs alone, and not with those that only help it out now and then: two slow
/// ones that go on alone after the others have done would seem well to each other, and the few small pieces
/// of a helper carry less than it could. Where there is nobody to compare it with its level stays.
///
/// Two things are guesses: what crossing sockets costs a NIC, and that NICs shared with other processes serve
/// all alike. Neither may make a NIC look slow: what is usual is taken without them, and each NIC gets the
/// better of the two.
class Capacities {
 public:
  static constexpr size_t kMaxNics = 8;
  static constexpr uint64_t kIntervalNs =
      50'000'000;  ///< for which some NIC has work in an interval, at least
  static constexpr uint64_t kLongestNs =
      1'000'000'000;                      ///< an interval ends then, with those that have anything
  static constexpr uint64_t kWrites = 3;  ///< and least completions, where any are or are to come …
  static constexpr uint64_t kLongWorkNs = 100'000'000;  ///< … or one that so much work ended with
  static constexpr double kGray = 0.85, kVeryGray = 0.6, kWell = 0.93;
  static constexpr int kLow = 3;            ///< intervals without a good one; those below kVeryGray count twice
  static constexpr int kWellIntervals = 2;  ///< running
  static constexpr double kBusiest = 0.9;   ///< part of the most time that any NIC has work
  static constexpr double kBacklog = 0.9;   ///< part of the writes that the others have under way
  /// … where most bytes follow a plan: what is meant for a slow NIC waits there, and nothing goes another
  /// way.
  static constexpr double kPlannedBacklog = 2;
  /// Of a write's time, at most, that is not the NIC's rate: on the way, or until somebody polls.
  static constexpr double kLatencyNs = 1e6;
  static constexpr double kIdle = 0.8;  ///< part of the time that others have work
  /// A gray NIC learns from a well one that has work for this part of its own time, at least.
  static constexpr double kComparable = 0.3;
  static constexpr double kLeastLevel = 0.02;
  static constexpr int kMostPatience = 64, kForgiven = 200;  ///< intervals

  Capacities() = default;
  /// `nominal[i]`: rate of NIC i in any unit, > 0.
  explicit Capacities(std::span<const double> nominal);

  /// Takes readings of all NICs' meters at time `now`, any time and often. `part[i]`: of the work that NIC i
  /// has, how much is this process's, as far as is known; empty: all. `planned`: of all bytes so far, those
  /// that were sent after a plan for all NICs. Returns whether an interval has ended.
  bool take(std::span<const NicMeter::Reading> readings, uint64_t now, std::span<const double> part = {},
            uint64_t planned = 0);
  /// Relative to its nominal rate, 0 … 1.
  double relative(size_t nic) const {
    return std::min(nics_[nic].gray ? nics_[nic].level : 1.0, nics_[nic].most);
  }
  /// … by what its port says alone, without what was measured.
  double by_port(size_t nic) const { return nics_[nic].most; }
  bool gray(size_t nic) const { return nics_[nic].gray || nics_[nic].most < kGray; }
  /// In the unit of `nominal`.
  double capacity(size_t nic) const { return nics_[nic].nominal * relative(nic); }
  double nominal(size_t nic) const { return nics_[nic].nominal; }
  /// Its port says that it now carries `rate`, in the unit of `nominal` and > 0: known without measuring. The
  /// nominal rate stays what traffic was spread by. Returns whether that is news.
  bool at_most(size_t nic, double rate);
  /// Forgets what was measured on it: it was away.
  void forget(size_t nic);

 private:
  struct Nic {
    double nominal = 1;
    double most = 1;           // of that, by what its port says
    NicMeter::Reading from{};  // at the interval's beginning
    bool known = false;
    int low = 0, well = 0;  // intervals running
    double level = 1;       // smoothed
    double idle = 1;        // smoothed: the time it has work, as a part of the others'
    bool gray = false;
    // One that turns out slow again each time it is tried is tried ever less often.
    int well_for = 0;  // intervals since it was last gray
    bool before = false;
    int patience = 1, waited = 0;  // intervals
  };
  struct Span {
    uint64_t bytes = 0, work = 0, writes = 0, busy = 0, depth = 0;
  };
  struct Interval;
  static Span since(const Nic& nic, const NicMeter::Reading& reading);
  /// Is the interval over? A NIC that is read for the first time begins with this reading.
  bool is_over(std::span<const NicMeter::Reading> readings, uint64_t now);
  /// Ends the interval; the next one begins with these readings.
  Interval close(std::span<const NicMeter::Reading> readings, uint64_t now, std::span<const double> part);
  void judge_all(const Interval& interval, double backlog);
  /// `nic` is gray.
  double relative_to_well(const Interval& interval, size_t nic) const;
  static double usual(std::span<const double> samples);
  static void judge(Nic& nic, double relative, double most, bool kept_busy, double busy, double others_busy);
  size_t count_ = 0;
  uint64_t began_ = 0;
  uint64_t planned_ = 0;  // bytes, when it began
  std::array<Nic, kMaxNics> nics_{};
};

}  // namespace r2ccl::balance
