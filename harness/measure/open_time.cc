// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/open_time.h"

#include <algorithm>
#include <utility>

namespace r2bench {

std::vector<OperationSpan> operation_spans(const std::vector<RankIterations>& ranks, uint64_t now_ns) {
  std::vector<OperationSpan> spans;
  if (ranks.empty()) return spans;
  size_t iterations = ranks[0].begin_ns.size();
  for (const auto& rank : ranks) iterations = std::min(iterations, rank.begin_ns.size());
  for (size_t i = 0; i < iterations; ++i) {
    OperationSpan operation{i, {0, 0}, true};
    bool begun = true;
    for (const auto& rank : ranks) {
      begun = begun && rank.begin_ns[i] != 0;
      operation.span.begin_ns = std::max(operation.span.begin_ns, rank.begin_ns[i]);
      const uint64_t end = i < rank.end_ns.size() ? rank.end_ns[i] : 0;
      operation.complete = operation.complete && end != 0;
      operation.span.end_ns = std::max(operation.span.end_ns, end);
    }
    if (!begun) continue;
    if (!operation.complete) operation.span.end_ns = std::max(now_ns, operation.span.begin_ns);
    spans.push_back(operation);
  }
  return spans;
}

std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end_ns <= i.begin_ns; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Interval> apart;
  for (const Interval& interval : intervals) {
    if (!apart.empty() && interval.begin_ns <= apart.back().end_ns)
      apart.back().end_ns = std::max(apart.back().end_ns, interval.end_ns);
    else
      apart.push_back(interval);
  }
  return apart;
}

OpenTime::OpenTime(std::vector<Interval> intervals) : intervals_(merged(std::move(intervals))) {
  uint64_t sum = 0;
  for (const Interval& interval : intervals_) {
    before_.push_back(sum);
    sum += length(interval);
  }
}

uint64_t OpenTime::elapsed(uint64_t time_ns) const {
  // The first interval that begins after time_ns; the one before it may contain it.
  const auto after = std::upper_bound(intervals_.begin(), intervals_.end(), time_ns,
                                      [](uint64_t t, const Interval& i) { return t < i.begin_ns; });
  if (after == intervals_.begin()) return 0;
  const size_t k = size_t(after - intervals_.begin()) - 1;
  return before_[k] + std::min(time_ns, intervals_[k].end_ns) - intervals_[k].begin_ns;
}

uint64_t OpenTime::time_at(uint64_t open_ns) const {
  if (intervals_.empty()) return 0;
  // The last interval with before <= open_ns, but an open time on a boundary belongs to the earlier end.
  size_t k = size_t(std::lower_bound(before_.begin(), before_.end(), open_ns) - before_.begin());
  if (k > 0) --k;
  return std::min(intervals_[k].begin_ns + (open_ns - before_[k]), intervals_[k].end_ns);
}

bool OpenTime::is_open(uint64_t time_ns) const {
  const auto after = std::upper_bound(intervals_.begin(), intervals_.end(), time_ns,
                                      [](uint64_t t, const Interval& i) { return t < i.begin_ns; });
  return after != intervals_.begin() && time_ns < (after - 1)->end_ns;
}

}  // namespace r2bench
