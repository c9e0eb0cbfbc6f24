// SPDX-License-Identifier: Apache-2.0
// Measures what each NIC carries, from completions alone: there is no probe traffic, and no clock is read for
// small messages.
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
  /// That write is complete. `work`: the bytes of near memory that would have cost the NIC as much. Returns
  /// how many writes fewer count as under way: 0 or 1.
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
  /// So many writes will never be reported as complete.
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
  /// Its values belong to one moment; to nearly one if completions keep arriving meanwhile.
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

/// How much each NIC of a node can carry, relative to its nominal rate: 1 until measured otherwise. Pure;
/// time is passed in.
///
/// A NIC becomes degraded ('gray') if, in several intervals, it carries clearly less than its neighbours
/// while it is at least as busy: it has work for as long, and as many writes under way. If it has fewer under
/// way, the interval counts neither way: an operation may have begun or ended in it, or what is late may wait
/// for another port. Delays of this process slow all NICs alike, so no NIC looks slow because of them.
///
/// The level of a gray NIC is what it carries. Exception: if it has work for less time than the others, its
/// rate reflects latency and would fall with its share. Its level then rises until the NIC is as busy as they
/// are, but not by more than a latency in each write explains. A gray NIC is compared only with healthy NICs
/// that have work for a comparable time: two slow NICs that continue alone would look healthy to each other,
/// and a NIC that only helps out carries less than it could. Without such a NIC the level stays.
///
/// Two inputs are guesses: the cost of crossing sockets, and that a NIC serves equally all processes that
/// share it. Neither may make a NIC look slow. So the usual rate is taken without that cost, and a NIC counts
/// by the better of its two ratios, with sharing and without.
class Capacities {
 public:
  static constexpr size_t kMaxNics = 8;
  /// An interval lasts until some NIC has had work for this long …
  static constexpr uint64_t kIntervalNs = 50'000'000;
  static constexpr uint64_t kWrites = 3;  ///< … and each NIC with work has so many completions …
  static constexpr uint64_t kLongWorkNs = 100'000'000;   ///< … or one completion after this much work,
  static constexpr uint64_t kLongestNs = 1'000'000'000;  ///< … but no longer than this.
  /// Relative to the others: below kGray an interval is slow, above kWell it is good.
  static constexpr double kGray = 0.85, kVeryGray = 0.6, kWell = 0.93;
  /// Slow intervals, without a good one, that make a NIC gray; one below kVeryGray counts twice.
  static constexpr int kLow = 3;
  /// … where all plan by it: a plan that is wrong costs more than one that comes a little later. A rank that lacks a core
  /// finds a few slow intervals in a row now and then, each time of another NIC, but without a queue. So one below
  /// kVeryGray counts three times there, and only if so many times as many writes are under way as on the others.
  static constexpr int kLowForPlans = 6;
  static constexpr double kClearQueue = 1.5;
  /// After more intervals in a row that tell nothing, what was slow before them counts no more: else one interval a
  /// minute in which this process lacks a core makes a NIC slow that has little to do.
  static constexpr int kMostUnclear = 6;
  /// Completions that are noticed late count in the interval in which they are noticed: only many intervals
  /// together say what was carried.
  static constexpr int kSteadyIntervals = 32;
  static constexpr int kWellIntervals = 2;  ///< good intervals in a row that make it healthy again
  static constexpr double kBusiest = 0.9;   ///< part of the longest time for which any NIC has work
  static constexpr double kBacklog = 0.9;   ///< part of the writes that the others have under way
  /// … if most bytes follow a plan: a slow NIC's share then waits in its queue, and cannot go elsewhere.
  static constexpr double kPlannedBacklog = 2;
  /// … and one that all others wait for: it has so many writes under way, they and their bytes wait so many times as long
  /// there as on the others, and it carries so much of what they could at most.
  static constexpr double kQueue = 3, kLongWaits = 3, kBottleneck = 0.8;
  /// At most this much of a write's time is not due to the NIC's rate: latency, or waiting for a poll.
  static constexpr double kLatencyNs = 1e6;
  static constexpr double kIdle = 0.8;  ///< a gray NIC with work for less of the others' time has too little
  /// A gray NIC is compared with a healthy one that has work for at least this part of its own time.
  static constexpr double kComparable = 0.3;
  static constexpr double kLeastLevel = 0.02;
  static constexpr int kMostPatience = 64;  ///< intervals: longest wait before a gray NIC is tried again
  static constexpr int kForgiven = 200;  ///< intervals: after so many, having been gray before is forgotten

  Capacities() = default;
  /// `nominal[i]`: rate of NIC i in any unit, > 0.
  explicit Capacities(std::span<const double> nominal);
  /// All ranks plan by what this finds. From now on a NIC that all others wait for under a plan is slow, too, and it
  /// takes kLowForPlans to call a NIC slow.
  void find_for_plans() { for_plans_ = true; }

  /// Takes readings of all NICs' meters at time `now`; may be called at any time. `part[i]`: the part of NIC
  /// i's work that is this process's, as far as is known; empty: all of it. `planned`: how many of all bytes
  /// so far were sent by a plan for all NICs. Returns whether an interval has ended.
  bool take(std::span<const NicMeter::Reading> readings, uint64_t now, std::span<const double> part = {},
            uint64_t planned = 0);
  /// Relative to its nominal rate, 0 … 1.
  double relative(size_t nic) const {
    return std::min(nics_[nic].gray ? nics_[nic].level : 1.0, nics_[nic].most);
  }
  /// The same by the port's rate alone, without what was measured.
  double by_port(size_t nic) const { return nics_[nic].most; }
  /// What it carried, relative to the others, in the last interval that said something; 0: none has, or it is gray.
  double last(size_t nic) const { return nics_[nic].well_for > 0 ? nics_[nic].level : 0; }
  /// How often a gray NIC has shown it anew: in kLow intervals close to each other it was slow while it had as much to
  /// do as the others, so that no lack of work explains it.
  uint64_t shown_slow(size_t nic) const { return nics_[nic].shown_slow; }
  bool gray(size_t nic) const { return nics_[nic].gray || nics_[nic].most < kGray; }
  /// … and more so than those know who spread the traffic: they expected `known` of it, relative to nominal.
  bool gray_beyond(size_t nic, double known) const {
    return gray(nic) && (known >= 1 || relative(nic) < kGray * known);
  }
  /// The most that it has carried while it had work, in kSteadyIntervals intervals one after the other: bytes
  /// per ns, over the number that is its nominal rate. 0: not known yet.
  double most_carried(size_t nic) const { return nics_[nic].most_carried; }
  /// In the unit of `nominal`.
  double capacity(size_t nic) const { return nics_[nic].nominal * relative(nic); }
  double nominal(size_t nic) const { return nics_[nic].nominal; }
  /// The port now reports this rate, in the unit of `nominal` and > 0. The nominal rate, by which traffic was
  /// spread, does not change. Returns whether the limit has changed.
  bool at_most(size_t nic, double rate);
  /// Forgets what was measured on a NIC that was away.
  void forget(size_t nic);

 private:
  struct Nic {
    double nominal = 1;
    double most = 1;           // of that, by the rate that its port reports
    double most_carried = 0;
    uint64_t steady_bytes = 0, steady_busy = 0;  // of so many intervals
    int steady = 0;
    NicMeter::Reading from{};  // at the interval's beginning
    bool known = false;
    int low = 0, well = 0;  // intervals running
    int unclear = 0;        // … that told nothing
    double level = 1;       // smoothed
    double idle = 1;        // smoothed: the time for which it has work, relative to the others'
    bool gray = false;
    int shown = 0;  // intervals since shown_slow
    uint64_t shown_slow = 0;
    // A NIC that is slow again each time it is tried is tried less and less often.
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
  static void note_carried(Nic& nic, const Span& span);
  void judge_all(const Interval& interval, bool planned);
  double bottleneck(const Interval& interval, size_t nic) const;
  /// `nic` is gray.
  double relative_to_well(const Interval& interval, size_t nic) const;
  static double usual(std::span<const double> samples);
  static void count_unclear(Nic& nic, double relative, bool kept_busy);
  /// What a slow interval counts. `queue`: writes under way, relative to the others.
  int weight(double relative, double queue) const;
  void judge(Nic& nic, double relative, double most, int weight, double busy, double others_busy) const;
  size_t count_ = 0;
  bool for_plans_ = false;
  uint64_t began_ = 0;
  uint64_t planned_ = 0;  // bytes, when it began
  std::array<Nic, kMaxNics> nics_{};
};

}  // namespace r2ccl::balance
