// SPDX-License-Identifier: Apache-2.0
// The clock of the timeline: it runs only while an operation is open, so that verification and the pauses
// between operations cost no throughput. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace r2bench {

struct Interval {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;  ///< exclusive
};

/// In order, without empty ones; those that overlap or touch have become one.
std::vector<Interval> merged(std::vector<Interval> intervals);

/// When each rank began and ended each of its iterations; index = iteration. 0 = not (yet).
struct RankIterations {
  std::vector<uint64_t> begin_ns;
  std::vector<uint64_t> end_ns;
};

/// One operation: from the moment its last rank has begun it to the moment its last rank has ended it.
/// Before that moment somebody is still busy with other things (verifying), and nobody can be served.
struct OperationSpan {
  uint64_t iteration = 0;
  Interval span;
  bool complete = false;  ///< every rank ended it; else span.end_ns is `now_ns`
};
/// In order of iteration. Iterations that a rank never began are left out. `now_ns` closes the incomplete.
std::vector<OperationSpan> operation_spans(const std::vector<RankIterations>& ranks, uint64_t now_ns);

/// Maps between time and open time.
class OpenTime {
 public:
  OpenTime() = default;
  /// Any order, overlaps are merged, empty ones dropped.
  explicit OpenTime(std::vector<Interval> intervals);

  /// Nanoseconds of open time before `time_ns`.
  uint64_t elapsed(uint64_t time_ns) const;
  /// The earliest time with elapsed(time) == open_ns; beyond the end: the end of the last interval.
  uint64_t time_at(uint64_t open_ns) const;
  bool is_open(uint64_t time_ns) const;
  uint64_t total() const { return before_.empty() ? 0 : before_.back() + length(intervals_.back()); }
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  static uint64_t length(const Interval& i) { return i.end_ns - i.begin_ns; }
  std::vector<Interval> intervals_;
  std::vector<uint64_t> before_;  ///< open time before each interval
};

}  // namespace r2bench
