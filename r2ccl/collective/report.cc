// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/report.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace r2ccl::collective {

bool links_differ(std::span<const CapacityCode> one, std::span<const CapacityCode> other) {
  for (size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    const CapacityCode a = i < one.size() ? one[i] : kLinkUnknown;
    const CapacityCode b = i < other.size() ? other[i] : kLinkUnknown;
    if (is_slow(a) != is_slow(b) || (is_slow(a) && nics_differ(a, b))) return true;
  }
  return false;
}

std::vector<size_t> links_tried(const View& before, const View& now, size_t rank) {
  std::vector<size_t> tried;
  const size_t ranks = before.capacities.size(), nics = before.measured.size() / std::max<size_t>(1, ranks);
  const auto slow = [nics](const View& view, size_t node, size_t nic) {
    const size_t i = node * nics + nic;
    return i < view.measured.size() && view.measured[i] != 0;
  };
  const auto freed = [&](size_t node, size_t nic) {
    return slow(before, node, nic) && !slow(now, node, nic);
  };
  for (size_t to = 0; to < ranks; ++to)
    for (size_t nic = 0; nic < nics; ++nic)
      if (to != rank && (freed(rank, nic) || freed(to, nic))) tried.push_back(to * nics + nic);
  return tried;
}

void OwnLinks::forget(std::span<const size_t> links) {
  for (const size_t link : links) now_[link] = told_[link] = kLinkUnknown;
}

uint64_t ReportPacer::due(const NodeCodes& now_is, const NodeCodes& reported, uint64_t now, bool links) {
  if (!links && !differ(now_is, reported)) {
    since_ = kNever;
    return kNever;
  }
  if (since_ == kNever) since_ = now;
  if (reported_ == kNever) return since_ + settle_;
  bool small = true;
  for (size_t i = 0; i < now_is.size(); ++i)
    small = small && std::abs(int(now_is[i]) - int(reported[i])) * 10 < kNominal;
  return std::max(since_ + settle_, reported_ + (small ? pause_ : least()));
}

void ReportPacer::done(uint64_t now) {
  const bool quiet = reported_ == kNever || now - reported_ > kQuiet;
  pause_ = quiet ? least() : std::min(2 * pause_, std::max(kMostPause, least()));
  reported_ = now;
  since_ = kNever;
}

}  // namespace r2ccl::collective
