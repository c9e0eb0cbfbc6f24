// SPDX-License-Identifier: Apache-2.0
// What the links to one peer carry, one over each NIC of this node, relative to each other: measured as NICs are
// (meter.h), but by what goes to this peer, and by their queues where a plan has all of them keep one pace. Says
// nothing of a link that was not busy enough to tell. Which end of a slow link is slow cannot be told here
// (collective/attribution.h). Pure; time is passed in.
//
// All ranks plan by these rates, so they must not swing. That a link is slow is told at once: Capacities has been
// sure of it before. Another rate of a slow link is told when it has lasted. A higher one must last longer: a link
// with little to carry shows latency rather than its rate, and how much more it could carry is then a guess
// (Capacities). A guess that was wrong, so that the rate falls again, doubles that time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "r2ccl/balance/meter.h"

namespace r2ccl::balance {

/// What is told of one link's rate.
class ToldRate {
 public:
  /// In time during which this process sent something.
  static constexpr uint64_t kRiseAfterNs = 1'000'000'000, kRiseAtMostNs = 64'000'000'000;
  static constexpr uint64_t kFallAfterNs = 500'000'000;
  static constexpr uint64_t kForgivenNs = 60'000'000'000;  ///< fast for so long: wrong guesses are forgotten
  static constexpr double kClearly = 0.08;                 ///< a difference from the rate that is told

  /// `rate`: measured now, 1: as fast as the others. `clock` grows.
  void update(double rate, uint64_t clock);
  /// Nothing is known of it any more: it is tried. If it is slow again soon, the next trial comes later.
  void forget(uint64_t clock);
  double told() const { return told_; }
  bool is_slow() const { return told_ < 1; }
  uint64_t patience() const { return patience_; }

 private:
  void guess_failed(uint64_t clock);

  double told_ = 1;
  enum class Trend : uint8_t { kNone, kHigher, kLower };
  Trend trend_ = Trend::kNone;
  uint64_t from_ = 0;                  // the rate has been clearly higher, or lower, since
  double nearest_ = 1;                 // the rate since then that differs least from what is told
  uint64_t rose_ = 0;                  // when a higher rate was told; 0: not since the last fall
  uint64_t patience_ = kRiseAfterNs;   // before the next one
};

class PeerLinks {
 public:
  static constexpr double kUnknown = 0, kFast = 1;
  static constexpr double kMostSlow = 0.92;  ///< what a slow link carries at most
  /// A link that was fast is not known to be so any more when it has carried nothing for so long …
  static constexpr uint64_t kFastForNs = 2'000'000'000;
  /// … a slow one when nothing has shown for so many times its patience that it is slow for another reason than that
  /// it has little to carry. Then it is tried again: a plan that knows of it gives it little. Until try_anew(), or for
  /// as long again, it is not known to be fast.
  static constexpr uint64_t kSlowForPatiences = 4;
  static constexpr uint64_t kSettlesNs = 1'000'000'000;

  /// `nominal[i]`: rate of NIC i in any unit, > 0.
  explicit PeerLinks(std::span<const double> nominal) : count_(nominal.size()), capacities_(nominal) {
    capacities_.find_for_plans();
  }

  /// Takes readings of the links' meters; `part` and `planned` as of Capacities::take(). `traffic`: this process
  /// sends, to whomever: time in which it does not counts for nothing.
  void take(std::span<const NicMeter::Reading> readings, uint64_t now, std::span<const double> part, uint64_t planned,
            bool traffic);
  /// The plan has given its full share again to a NIC of that link, which it knew to be slow: what was measured before
  /// counts no more, and nothing for kSettlesNs, in which traffic by the old plan ends.
  void try_anew(size_t link);
  /// kUnknown, kFast, or what it carries relative to the others, up to kMostSlow.
  double rate(size_t link) const;

 private:
  void forget(size_t link);

  size_t count_;
  Capacities capacities_;
  uint64_t taken_ = 0;  // when
  uint64_t clock_ = 0;  // runs while there is traffic
  std::array<uint64_t, Capacities::kMaxNics> bytes_{}, idle_ns_{};         // of the clock, since it carried something
  std::array<uint64_t, Capacities::kMaxNics> shown_slow_{}, unproved_ns_{};  // … since it has shown that it is slow
  std::array<uint64_t, Capacities::kMaxNics> settles_until_{};  // of the clock
  // It was slow and is forgotten: it may look fast under the plan that gives it little, and tells nothing by that.
  std::array<uint64_t, Capacities::kMaxNics> forgotten_until_{};
  std::array<ToldRate, Capacities::kMaxNics> told_{};
};

}  // namespace r2ccl::balance
