// The recovery metrics of one fault. Rates and gaps are taken on the open-time clock, detection on the wall
// clock: a plugin must notice a dead NIC whether or not an operation is open.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

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

bool hits(const FaultWindow& window, const Stream& stream, const Delivery& d) {
  return std::any_of(window.targets.begin(), window.targets.end(), [&](const NicId& target) {
    return (target.node == stream.rx_node && target.nic == d.rx_nic) ||
           (target.node == stream.tx_node && target.nic == (d.tx_nic == kNoNic ? d.rx_nic : d.tx_nic));
  });
}

/// What one affected stream did around the fault.
struct Affected {
  const Delivery* last_before = nullptr;
  uint32_t left_path = 0;  ///< that was fenced; 0 when it is not known: then the one of last_before
  std::vector<const Delivery*> after;  ///< in (t0, until]
  const Delivery* first_moved = nullptr;
};

std::map<uint32_t, Affected> affected_streams(const Record& record, const FaultWindow& window) {
  std::map<uint32_t, Affected> streams;
  std::vector<const Delivery*> last(record.streams.size(), nullptr);
  for (const Delivery& d : record.deliveries) {
    if (d.time_ns > window.t0_ns) break;
    last[d.stream] = &d;
  }
  for (uint32_t s = 0; s < last.size(); ++s)
    if (last[s] && hits(window, record.streams[s], *last[s])) streams[s].last_before = last[s];
  if (window.single_qp) {
    // Of all streams on the NIC only some use the QP that was hit: those that were fenced on it, when any
    // was. One that has come back to the NIC just before t0 may have delivered nothing over it yet.
    std::map<uint32_t, Affected> fenced;
    for (const FenceStart& fence : record.fences) {
      if (!fence.stream || fence.time_ns < window.t0_ns || fence.time_ns > window.until_ns) continue;
      const uint32_t s = *fence.stream;
      const bool here = std::any_of(window.targets.begin(), window.targets.end(),
                                    [&](const NicId& target) { return target.nic == fence.nic; });
      if ((here || streams.count(s)) && last[s] && !fenced.count(s))
        fenced[s] = {last[s], fence.path, {}, nullptr};
    }
    if (!fenced.empty()) streams = std::move(fenced);
  }
  for (const Delivery& d : record.deliveries) {
    if (d.time_ns <= window.t0_ns) continue;
    if (d.time_ns > window.until_ns) break;
    const auto found = streams.find(d.stream);
    if (found == streams.end()) continue;
    Affected& stream = found->second;
    stream.after.push_back(&d);
    const bool moved = stream.left_path != 0
                           ? d.path != stream.left_path
                           : d.path != stream.last_before->path || d.rx_nic != stream.last_before->rx_nic ||
                                 d.tx_nic != stream.last_before->tx_nic;
    if (moved && !stream.first_moved) stream.first_moved = &d;
  }
  return streams;
}

/// The fence that answers this fault: of a target's NIC (either end of the rail has the same index) when
/// there is one, else the first.
const FenceStart* answering_fence(const Record& record, const FaultWindow& window) {
  const FenceStart* first = nullptr;
  for (const FenceStart& fence : record.fences) {
    if (fence.time_ns < window.t0_ns || fence.time_ns > window.until_ns) continue;
    if (!first) first = &fence;
    for (const NicId& target : window.targets)
      if (target.nic == fence.nic) return &fence;
  }
  return first;
}

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
  const double rate = window.path_rate_bits_per_s ? double(window.path_rate_bits_per_s) : own_rate;
  // The path that takes over has its own traffic beside: a segment gets the limit's part of its rate.
  const double limit = window.limit > 0 ? std::clamp(window.limit, kLeastLimit, 1.0) : 1;
  sample.floor_ms = rate > 0 ? 8e3 * segment / (rate * limit) : 0;
  double operation_ms = window.operation_ms / limit;
  if (const double after = median_operation_ms(record, moved_ns, window.until_ns); after > 0)
    operation_ms = std::min(operation_ms, after);
  sample.window_ms = std::max({kLeastWindowMs, kWindowSegments * sample.floor_ms * limit, operation_ms});
}

/// Start of the first interval of W open time, at or after `from_ns`, that carries enough; it may start at
/// from_ns or at any delivery, and must end by `until_ns`.
std::optional<uint64_t> first_good_interval(const Record& record, uint64_t from_ns, uint64_t until_ns,
                                            double window_ms, double need_bytes) {
  const uint64_t width = uint64_t(std::llround(window_ms * 1e6));
  const uint64_t open_end = record.open.elapsed(until_ns);
  const auto& all = record.deliveries;
  size_t first = size_t(std::upper_bound(all.begin(), all.end(), from_ns,
                                         [](uint64_t t, const Delivery& d) { return t < d.time_ns; }) -
                        all.begin());
  size_t end = first;  // deliveries [first, end) lie in (start, start + W]
  uint64_t bytes = 0;
  uint64_t start_ns = from_ns;
  while (true) {
    const uint64_t open_start = record.open.elapsed(start_ns);
    if (open_start + width > open_end) return std::nullopt;
    while (end < all.size() && record.open.elapsed(all[end].time_ns) <= open_start + width)
      bytes += all[end++].bytes;
    if (double(bytes) >= need_bytes) return start_ns;
    if (first >= all.size() || all[first].time_ns > until_ns) return std::nullopt;
    start_ns = all[first].time_ns;
    bytes -= all[first].bytes;
    ++first;
    if (end < first) end = first;
  }
}

double longest_gap_ms(const Record& record, const FaultWindow& window, const Affected& stream,
                      uint64_t until_ns) {
  uint64_t previous = stream.last_before->time_ns;
  double longest = 0;
  const auto gap = [&](uint64_t from, uint64_t to) {
    longest = std::max(longest, ms(record.open.elapsed(from), record.open.elapsed(to)));
  };
  for (const Delivery* d : stream.after) {
    gap(previous, d->time_ns);
    previous = d->time_ns;
    if (previous >= until_ns) return longest;
  }
  gap(previous, std::min(until_ns, window.until_ns));
  return longest;
}

/// Empty when the fault is a sample, else why not. A segment was in flight when the stream went on to receive
/// in the very operation that was open at t0, or when that operation never ended.
std::string why_not_in_flight(const Record& record, const FaultWindow& window,
                              const std::map<uint32_t, Affected>& streams) {
  if (!record.open.is_open(window.t0_ns)) return "no operation was open";
  if (streams.empty()) return "no channel used the target";
  uint64_t operation_end = 0;
  for (const OperationSpan& operation : record.operations) {
    if (operation.span.begin_ns > window.t0_ns || operation.span.end_ns <= window.t0_ns) continue;
    if (!operation.complete) return "";
    operation_end = std::max(operation_end, operation.span.end_ns);
  }
  for (const auto& [id, stream] : streams)
    if (!stream.after.empty() && stream.after.front()->time_ns <= operation_end) return "";
  return "no segment was in flight on the target";
}

}  // namespace

void analyse_fault(const Record& record, const FaultWindow& window, FaultSample& sample) {
  sample.t0_ns = window.t0_ns;
  sample.limit = window.limit;
  const auto streams = affected_streams(record, window);
  sample.why_not_sampled = why_not_in_flight(record, window, streams);
  sample.sampled = sample.why_not_sampled.empty();
  sample.before_gbps = rate_gbps(record, {window.before_from_ns, window.before_until_ns});

  const FenceStart* fence = answering_fence(record, window);
  uint64_t moved_ns = window.t0_ns;  // when the last of the affected streams had delivered on its new path
  bool all_moved = true;
  for (const auto& [id, stream] : streams) {
    if (stream.first_moved) moved_ns = std::max(moved_ns, stream.first_moved->time_ns);
    all_moved = all_moved && stream.first_moved;
  }
  set_floor(record, window, streams, moved_ns, sample);
  if (fence) {
    sample.detected_ns = fence->time_ns;
    sample.detect_ms = ms(window.t0_ns, fence->time_ns);
    sample.detected_by = fence->detected_by;
    if (all_moved && !streams.empty()) {
      sample.migrated_ns = moved_ns;
      sample.migrate_ms = std::max(0.0, ms(fence->time_ns, moved_ns));
    }
  }
  // A stream that is to move has not recovered before it has moved; where nothing was fenced nobody is to.
  if (!fence || all_moved) {
    const double bytes_per_ms = sample.before_gbps * 1e6 / 8;
    const double need = kGoodShare * window.limit * bytes_per_ms * sample.window_ms;
    if (need > 0)
      sample.recovered_ns = first_good_interval(record, fence ? moved_ns : window.t0_ns, window.until_ns,
                                                sample.window_ms, need);
  }
  if (sample.recovered_ns) {
    sample.recover_ms = ms(record.open.elapsed(window.t0_ns), record.open.elapsed(*sample.recovered_ns));
    sample.after_gbps = rate_gbps(record, {*sample.recovered_ns, window.until_ns});
  }
  for (const auto& [id, stream] : streams) {
    const double gap = longest_gap_ms(record, window, stream, sample.recovered_ns.value_or(window.until_ns));
    sample.blackout_ms = std::max(sample.blackout_ms.value_or(0), gap);
  }
}

}  // namespace r2bench
