// SPDX-License-Identifier: Apache-2.0
// The recovery metrics of one fault. Rates and gaps are taken on the open-time clock, detection on the wall
// clock: a plugin must notice a dead NIC whether or not an operation is open.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "harness/measure/affected.h"
#include "harness/measure/timeline.h"

namespace r2bench {
namespace {

constexpr double kGoodShare = 0.9;  // of the limit
// W = max(10 ms, 4 segment times, one operation): an operation need not load its NICs evenly (under live
// migration it ends with the NIC that carries two channels), so that only a whole one has the mode's rate. As
// long as they take afterwards, and at most as long as at the limit: a W of one operation and a part would
// tell again in which part of an operation it began.
constexpr double kLeastWindowMs = 10;
constexpr double kWindowSegments = 4;
constexpr double kLeastLimit = 0.1;

double ms(uint64_t from_ns, uint64_t to_ns) { return (double(to_ns) - double(from_ns)) / 1e6; }

/// Median of the complete operations that lie wholly within; 0 when there are fewer than two.
double median_operation_ms(const Record& record, uint64_t from_ns, uint64_t until_ns) {
  std::vector<double> times;
  for (const OperationSpan& operation : record.operations)
    if (operation.complete && operation.span.begin_ns >= from_ns && operation.span.end_ns <= until_ns)
      times.push_back(ms(operation.span.begin_ns, operation.span.end_ns));
  if (times.size() < 2) return 0;
  const auto middle = times.begin() + std::ptrdiff_t(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double limit_at_t0(const FaultWindow& window) {
  return window.limits.empty() ? 1 : window.limits.front().limit;
}

void set_floor(const Record& record, const FaultWindow& window, const std::map<uint32_t, Affected>& streams,
               uint64_t moved_ns, FaultSample& sample) {
  uint32_t segment = 0;  // the largest that an affected stream carries
  double own_rate = 0;   // bits/s of the fastest affected stream before the fault
  const uint64_t open_before = record.open.elapsed(window.before_until_ns) -
                               record.open.elapsed(std::min(window.before_from_ns, window.before_until_ns));
  std::map<uint32_t, uint64_t> bytes;
  for (const Delivery& d : record.deliveries) {
    if (d.time_ns <= window.before_from_ns) continue;
    if (d.time_ns > window.before_until_ns) break;
    if (!streams.count(d.stream)) continue;
    segment = std::max(segment, d.bytes);
    bytes[d.stream] += d.bytes;
  }
  for (const auto& [stream, sum] : bytes)
    if (open_before) own_rate = std::max(own_rate, 8e9 * double(sum) / double(open_before));
  if (segment == 0)  // none of them had delivered anything
    for (const auto& [id, stream] : streams)
      for (const Delivery* d : stream.after) segment = std::max(segment, d->bytes);
  const double rate = window.path_rate_bits_per_s ? double(window.path_rate_bits_per_s) : own_rate;
  // The path that takes over has its own traffic beside: a segment gets the limit's part of its rate.
  const double stated = limit_at_t0(window);
  const double limit = stated > 0 ? std::clamp(stated, kLeastLimit, 1.0) : 1;
  sample.floor_ms = rate > 0 ? 8e3 * segment / (rate * limit) : 0;
  double operation_ms = window.operation_ms / limit;
  if (const double after =
          median_operation_ms(record, moved_ns, moved_ns < window.until_ns ? window.until_ns : window.end_ns);
      after > 0)
    operation_ms = std::min(operation_ms, after);
  sample.window_ms = std::max({kLeastWindowMs, kWindowSegments * sample.floor_ms * limit, operation_ms});
}

/// What has to arrive in an interval of open time, as the limit changes within it.
class Needed {
 public:
  Needed(const Record& record, const FaultWindow& window, double before_gbps)
      : bytes_per_ns_(kGoodShare * before_gbps / 8) {
    for (const LimitStep& step : window.limits)
      steps_.push_back({record.open.elapsed(std::max(step.from_ns, window.t0_ns)), step.limit});
  }

  /// Infinite when nothing can be carried in some of it: then nothing shows.
  double bytes(uint64_t open_from, uint64_t open_until) const {
    double sum = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const uint64_t from = std::max(open_from, i == 0 ? 0 : steps_[i].first);
      const uint64_t until = i + 1 < steps_.size() ? std::min(open_until, steps_[i + 1].first) : open_until;
      if (until <= from) continue;
      const double needed = bytes_per_ns_ * steps_[i].second * double(until - from);
      if (needed <= 0) return std::numeric_limits<double>::infinity();
      sum += needed;
    }
    return sum > 0 ? sum : std::numeric_limits<double>::infinity();
  }

 private:
  double bytes_per_ns_;
  std::vector<std::pair<uint64_t, double>> steps_;  // open time
};

/// Start of the first interval of W open time, at or after `from_ns`, that carries enough and in which no
/// affected stream is silent; it may start at from_ns or at any delivery, and must end by `until_ns`.
std::optional<uint64_t> first_good_interval(const Record& record, uint64_t from_ns, uint64_t until_ns,
                                            double window_ms, const Needed& needed,
                                            const std::vector<Interval>& silent) {
  const uint64_t width = uint64_t(std::llround(window_ms * 1e6));
  const uint64_t open_end = record.open.elapsed(until_ns);
  const auto& all = record.deliveries;
  size_t first = size_t(std::upper_bound(all.begin(), all.end(), from_ns,
                                         [](uint64_t t, const Delivery& d) { return t < d.time_ns; }) -
                        all.begin());
  size_t end = first;  // deliveries [first, end) lie in (start, start + W]
  size_t next = 0;     // the first silence that has not ended at the start
  uint64_t bytes = 0;
  uint64_t start_ns = from_ns;
  while (true) {
    const uint64_t open_start = record.open.elapsed(start_ns);
    if (open_start + width > open_end) return std::nullopt;
    while (end < all.size() && record.open.elapsed(all[end].time_ns) <= open_start + width)
      bytes += all[end++].bytes;
    while (next < silent.size() && silent[next].end_ns <= open_start) ++next;
    const bool heard = next == silent.size() || silent[next].begin_ns >= open_start + width;
    if (heard && double(bytes) >= needed.bytes(open_start, open_start + width)) return start_ns;
    if (first >= all.size() || all[first].time_ns > until_ns) return std::nullopt;
    start_ns = all[first].time_ns;
    bytes -= all[first].bytes;
    ++first;
    if (end < first) end = first;
  }
}

double longest_gap_ms(const Record& record, const Affected& stream, uint64_t until_ns) {
  uint64_t previous = stream.last_before->time_ns;
  double longest = 0;
  const auto gap = [&](uint64_t from, uint64_t to) {
    longest = std::max(longest, ms(record.open.elapsed(from), record.open.elapsed(to)));
  };
  for (const Delivery* d : stream.after) {
    gap(previous, used_until_ns(record, previous, d->time_ns));
    previous = d->time_ns;
    if (previous >= until_ns) return longest;
  }
  gap(previous, used_until_ns(record, previous, std::max(previous, until_ns)));
  return longest;
}

/// Empty when the strike is a sample, else why not. A segment was in flight when the stream went on to
/// receive in the very operation that was open at t0, or when that operation never ended; and whatever was in
/// flight, a stream that falls silent right behind t0 has met the fault.
std::string why_not_in_flight(const Record& record, const FaultWindow& window,
                              const std::map<uint32_t, Affected>& streams,
                              const std::vector<Interval>& silent, double window_ms) {
  if (streams.empty())
    return record.open.is_open(window.t0_ns) ? "no channel used the target" : "no operation was open";
  const uint64_t open_t0 = record.open.elapsed(window.t0_ns);
  for (const Interval& silence : silent)
    if (double(silence.begin_ns) <= double(open_t0) + window_ms * 1e6 &&
        double(silence.end_ns) > double(open_t0) + window_ms * 1e6)
      return "";
  if (!record.open.is_open(window.t0_ns)) return "no operation was open";
  const uint64_t operation_end = open_operation_end(record, window.t0_ns);
  if (operation_end == UINT64_MAX) return "";
  for (const auto& [id, stream] : streams)
    if (!stream.after.empty() && stream.after.front()->time_ns <= operation_end) return "";
  return "no segment was in flight on the target";
}

}  // namespace

void analyse_fault(const Record& record, const FaultWindow& window, FaultSample& sample) {
  sample.t0_ns = window.t0_ns;
  sample.limit = limit_at_t0(window);
  sample.before_gbps = rate_gbps(record, {window.before_from_ns, window.before_until_ns});
  const auto streams = affected_streams(record, window);
  const FenceStart* fence = answering_fence(record, window);
  uint64_t moved_ns = window.t0_ns;  // when the last of the affected streams had delivered on its new path
  bool all_moved = true;
  for (const auto& [id, stream] : streams) {
    if (stream.first_moved) moved_ns = std::max(moved_ns, stream.first_moved->time_ns);
    // What is not used any more is not to move.
    const uint64_t last_ns = stream.after.empty() ? stream.last_before->time_ns : stream.after.back()->time_ns;
    all_moved = all_moved && (stream.first_moved || used_until_ns(record, last_ns, window.end_ns) < window.end_ns);
  }
  set_floor(record, window, streams, moved_ns, sample);
  const std::vector<Interval> silent = silences(record, window, streams, sample.window_ms);
  const bool streams_known = !may_affect_others(record, window);
  sample.why_not_sampled = streams_known ? why_not_in_flight(record, window, streams, silent, sample.window_ms)
                                         : "the sender's NIC of a channel is not known";
  sample.sampled = sample.why_not_sampled.empty();
  if (fence) {
    sample.detected_ns = fence->time_ns;
    sample.detect_ms = ms(window.t0_ns, fence->time_ns);
    sample.detected_by = fence->detected_by;
    if (all_moved && !streams.empty() && streams_known) {
      sample.migrated_ns = moved_ns;
      sample.migrate_ms = std::max(0.0, ms(fence->time_ns, moved_ns));
    }
  }
  // A stream that is to move has not recovered before it has moved; where nothing was fenced nobody is to.
  if (!fence || all_moved)
    sample.recovered_ns =
        first_good_interval(record, fence ? moved_ns : window.t0_ns, window.end_ns, sample.window_ms,
                            Needed(record, window, sample.before_gbps), silent);
  if (sample.recovered_ns) {
    sample.recover_ms = ms(record.open.elapsed(window.t0_ns), record.open.elapsed(*sample.recovered_ns));
    sample.recovered_after_heal = window.heal_ns != 0 && *sample.recovered_ns >= window.heal_ns;
    if (*sample.recovered_ns < window.until_ns)
      sample.after_gbps = rate_gbps(record, {*sample.recovered_ns, window.until_ns});
  }
  if (!streams_known) return;
  for (const auto& [id, stream] : streams) {
    const double gap = longest_gap_ms(record, stream, sample.recovered_ns.value_or(window.end_ns));
    sample.blackout_ms = std::max(sample.blackout_ms.value_or(0), gap);
  }
}

}  // namespace r2bench
