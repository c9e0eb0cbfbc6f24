// SPDX-License-Identifier: Apache-2.0
// What a member of the agreement reports of its node, and when. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/attribution.h"

namespace r2ccl::collective {

/// Is the difference worth a report? A link that is slow now, or no longer, or by 8 % more or less. Not one
/// that was only found to be fast: where nothing is slow nobody reports.
bool links_differ(std::span<const CapacityCode> one, std::span<const CapacityCode> other);

/// The links of `rank` (indices in its LinkCodes) to and from NICs that were slow by their links in `before`
/// and are not in `now`: those NICs get their full share again, and what was measured before says nothing of
/// them.
std::vector<size_t> links_tried(const View& before, const View& now, size_t rank);

/// What a rank has found of its links, and what it has told rank 0 of them.
class OwnLinks {
 public:
  friend struct AgreementInspector;

  explicit OwnLinks(size_t links) : now_(links, kLinkUnknown), told_(now_) {}

  /// As of now. `links`: as many as there were.
  void set(const LinkCodes& links) { now_ = links; }
  /// Is there anything to report?
  bool changed() const { return links_differ(now_, told_); }
  /// For a report, which tells of all of them.
  const LinkCodes& tell() { return told_ = now_; }
  /// For a report of something else.
  const LinkCodes& told() const { return told_; }
  /// What was measured of `links` counts no more, here and at rank 0 (links_tried).
  void forget(std::span<const size_t> links);

 private:
  LinkCodes now_, told_;
};

/// When a rank reports a change of its capacity: after a settling time, so that a burst is one report, and
/// small changes ever more rarely while they go on. Times in ns.
class ReportPacer {
 public:
  explicit ReportPacer(uint64_t settle) : settle_(settle), pause_(least()) {}

  /// When the difference between `now_is` and `reported` is to be reported, if it still stands then; kNever:
  /// there is none that is worth it. `links`: those differ, which counts as a small change: a rate that was
  /// measured may be another one soon.
  uint64_t due(const NodeCodes& now_is, const NodeCodes& reported, uint64_t now, bool links = false);
  /// It was reported.
  void done(uint64_t now);

 private:
  static constexpr uint64_t kMostPause = 2'000'000'000, kQuiet = 10'000'000'000;
  uint64_t least() const { return 5 * settle_; }

  const uint64_t settle_;
  uint64_t pause_;              // after a report, before one of a small change
  uint64_t since_ = kNever;     // there has been a difference
  uint64_t reported_ = kNever;  // the last report
};

}  // namespace r2ccl::collective
