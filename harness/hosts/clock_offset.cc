// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts/clock_offset.h"

#include <algorithm>
#include <iterator>

namespace r2bench {
namespace {

/// How far two clocks may have run apart in the time that one of them shows: p / (1 - p) of it, because the
/// one that shows it may be the slower one.
uint64_t drift_ns(uint64_t lasted_ns) {
  return lasted_ns * ClockOffset::kMostDriftPpm / (1'000'000 - ClockOffset::kMostDriftPpm);
}

uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

}  // namespace

uint64_t ClockOffset::Answer::bound_ns(uint64_t event_ns) const {
  return half_ns + drift_ns(distance(event_ns, at_ns) + half_ns);
}

uint64_t ClockOffset::bound_ns(uint64_t now_ns) const {
  return known() ? answers_.back().bound_ns(now_ns) + beyond_ns_ : 0;
}

void ClockOffset::add(const ClockSample& sample) {
  // The question arrived after it was sent, and the answer left before it arrived: one end each of the
  // interval in which the offset lies.
  const int64_t most = int64_t(sample.received_ns) - int64_t(sample.sent_ns);
  const int64_t least = int64_t(sample.answered_ns) - int64_t(sample.returned_ns);
  if (most < least) return;  // not from one question and its answer
  const uint64_t half_ns =
      uint64_t(most - least + 1) / 2 + (sample.returned_ns - sample.sent_ns) * kMostDriftPpm / 1'000'000;
  const int64_t offset_ns = least + (most - least) / 2;
  if (known()) {
    const uint64_t before_ns = answers_.back().bound_ns(sample.returned_ns);
    const int64_t change_ns = offset_ns - answers_.back().offset_ns;
    const uint64_t apart_ns = uint64_t(change_ns < 0 ? -change_ns : change_ns);
    if (apart_ns > half_ns + before_ns)
      beyond_ns_ += apart_ns;
    else if (half_ns > before_ns)
      return;
  }
  answers_.push_back({sample.returned_ns, offset_ns, half_ns});
}

ClockOffset::RunnerTime ClockOffset::convert(uint64_t host_ns) const {
  if (host_ns == 0) return {};
  if (!known()) return {host_ns, 0};
  const auto seen_by = [&](const Answer& answer) {
    const uint64_t time_ns = host_ns - uint64_t(answer.offset_ns);
    return RunnerTime{time_ns, answer.bound_ns(time_ns) + beyond_ns_};
  };
  RunnerTime best = seen_by(answers_.back());
  if (best.time_ns + kRecentNs > answers_.back().at_ns) return best;
  // The answers next to the time, until none further away can have a smaller bound.
  const auto next = std::lower_bound(answers_.begin(), answers_.end(), best.time_ns,
                                     [](const Answer& answer, uint64_t ns) { return answer.at_ns < ns; });
  const auto take = [&](const Answer& answer) {
    const RunnerTime seen = seen_by(answer);
    if (seen.bound_ns < best.bound_ns) best = seen;
    return drift_ns(distance(answer.at_ns, seen.time_ns)) + beyond_ns_ <= best.bound_ns;
  };
  for (auto answer = next; answer != answers_.end() && take(*answer); ++answer) {
  }
  for (auto answer = next; answer != answers_.begin() && take(*std::prev(answer)); --answer) {
  }
  return best;
}

}  // namespace r2bench
