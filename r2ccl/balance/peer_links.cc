// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/balance/peer_links.h"

#include <algorithm>

namespace r2ccl::balance {

void ToldRate::update(double rate, uint64_t clock) {
  if (!is_slow()) {
    if (rose_ != 0 && clock - rose_ > kForgivenNs) patience_ = kRiseAfterNs, rose_ = 0;
    if (rate >= 1) return;
    told_ = rate;
    guess_failed(clock);
    return;
  }
  Trend trend = Trend::kNone;
  if (rate >= 1 || rate > told_ * (1 + kClearly)) trend = Trend::kHigher;
  if (rate < told_ * (1 - kClearly)) trend = Trend::kLower;
  const bool lasts = trend == trend_;
  trend_ = trend;
  if (trend == Trend::kNone) return;
  if (!lasts) from_ = clock;
  nearest_ = !lasts ? rate : trend == Trend::kHigher ? std::min(nearest_, rate) : std::max(nearest_, rate);
  if (clock - from_ < (trend == Trend::kHigher ? patience_ : kFallAfterNs)) return;
  told_ = nearest_;
  trend_ = Trend::kNone;
  if (trend == Trend::kHigher)
    rose_ = clock;
  else
    guess_failed(clock);
}

// The rate has fallen: what had been told before it was too much.
void ToldRate::guess_failed(uint64_t clock) {
  if (rose_ != 0 && clock - rose_ < kForgivenNs) patience_ = std::min(2 * patience_, kRiseAtMostNs);
  rose_ = 0;
  trend_ = Trend::kNone;
}

void ToldRate::forget(uint64_t clock) {
  told_ = 1;
  rose_ = clock;
  trend_ = Trend::kNone;
}

void PeerLinks::take(std::span<const NicMeter::Reading> readings, uint64_t now, std::span<const double> part,
                     uint64_t planned, bool traffic) {
  const uint64_t passed = traffic && taken_ != 0 ? std::min(now - taken_, Capacities::kLongestNs) : 0;
  taken_ = now;
  clock_ += passed;
  for (size_t link = 0; link < count_; ++link) {
    idle_ns_[link] += passed;
    if (readings[link].bytes != bytes_[link]) idle_ns_[link] = 0;
    bytes_[link] = readings[link].bytes;
  }
  capacities_.take(readings, now, part, planned);
  for (size_t link = 0; link < count_; ++link) {
    if (clock_ < settles_until_[link]) {
      capacities_.forget(link);
      continue;
    }
    const uint64_t shown = capacities_.shown_slow(link);
    const bool proved = !told_[link].is_slow() || shown != shown_slow_[link];
    unproved_ns_[link] = proved ? 0 : unproved_ns_[link] + passed;
    shown_slow_[link] = shown;
    if (unproved_ns_[link] >= kSlowForPatiences * told_[link].patience()) {
      told_[link].forget(clock_);
      forget(link);
      forgotten_until_[link] = clock_ + kSlowForPatiences * told_[link].patience();
    }
    told_[link].update(capacities_.gray(link) ? capacities_.relative(link) : 1, clock_);
  }
}

void PeerLinks::forget(size_t link) {
  capacities_.forget(link);
  shown_slow_[link] = unproved_ns_[link] = 0;
}

void PeerLinks::try_anew(size_t link) {
  if (told_[link].is_slow()) told_[link].forget(clock_);
  forget(link);
  settles_until_[link] = clock_ + kSettlesNs;
  forgotten_until_[link] = 0;
}

double PeerLinks::rate(size_t link) const {
  if (told_[link].is_slow()) return std::min(told_[link].told(), kMostSlow);
  if (clock_ < forgotten_until_[link]) return kUnknown;
  return idle_ns_[link] < kFastForNs && capacities_.last(link) >= Capacities::kWell ? kFast : kUnknown;
}

}  // namespace r2ccl::balance
