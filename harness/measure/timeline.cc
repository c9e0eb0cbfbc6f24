// SPDX-License-Identifier: Apache-2.0
#include "harness/measure/timeline.h"

#include <algorithm>
#include <cmath>

namespace r2bench {
namespace {

using Iterator = std::vector<Delivery>::const_iterator;

/// First delivery later than time_ns.
Iterator after(const std::vector<Delivery>& deliveries, uint64_t time_ns) {
  return std::upper_bound(deliveries.begin(), deliveries.end(), time_ns,
                          [](uint64_t t, const Delivery& d) { return t < d.time_ns; });
}

double gbps(uint64_t bytes, uint64_t open_ns) { return open_ns ? 8.0 * double(bytes) / double(open_ns) : 0; }

/// From the begin of the first operation that lies in the window as a whole to the end of the last, if there
/// are two. Operations may overlap (ranks of a SendRecv drift). The part of an operation that is cut off at
/// an edge is left out only while it is no longer than operations usually take: else the operation stalled
/// there.
Interval rated_part(const Record& record, Interval window) {
  std::vector<uint64_t> lengths;
  std::vector<Interval> cut;
  Interval rated{UINT64_MAX, 0};
  const auto include = [&rated](Interval part) {
    rated.begin_ns = std::min(rated.begin_ns, part.begin_ns);
    rated.end_ns = std::max(rated.end_ns, part.end_ns);
  };
  for (const OperationSpan& operation : record.operations) {
    const Interval part{std::max(operation.span.begin_ns, window.begin_ns),
                        std::min(operation.span.end_ns, window.end_ns)};
    if (part.begin_ns >= part.end_ns) continue;
    const bool whole = part.begin_ns == operation.span.begin_ns && part.end_ns == operation.span.end_ns;
    if (!operation.complete || !whole) {
      cut.push_back(part);
      continue;
    }
    lengths.push_back(part.end_ns - part.begin_ns);
    include(part);
  }
  if (lengths.size() < 2) return window;
  const auto middle = lengths.begin() + std::ptrdiff_t(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  for (const Interval& part : cut)
    if (part.end_ns - part.begin_ns > *middle) include(part);
  return rated;
}

}  // namespace

uint64_t bytes_between(const std::vector<Delivery>& deliveries, uint64_t begin_ns, uint64_t end_ns) {
  uint64_t sum = 0;
  for (auto d = after(deliveries, begin_ns); d != deliveries.end() && d->time_ns <= end_ns; ++d)
    sum += d->bytes;
  return sum;
}

double rate_gbps(const Record& record, Interval window) {
  if (window.end_ns <= window.begin_ns) return 0;
  window = rated_part(record, window);
  const uint64_t open_ns = record.open.elapsed(window.end_ns) - record.open.elapsed(window.begin_ns);
  return gbps(bytes_between(record.deliveries, window.begin_ns, window.end_ns), open_ns);
}

Timeline make_timeline(const Record& record, uint64_t start_ns, double bin_ms,
                       const std::vector<uint64_t>& marks_ns, uint64_t raw_around_ns, size_t max_raw) {
  Timeline timeline;
  timeline.start_ns = start_ns;
  timeline.end_ns = record.end_ns;
  timeline.bin_ms = bin_ms;
  const uint64_t bin_ns = std::max<uint64_t>(1, uint64_t(std::llround(bin_ms * 1e6)));
  auto next = after(record.deliveries, start_ns);
  for (uint64_t begin = start_ns; begin < record.end_ns; begin += bin_ns) {
    uint64_t bytes = 0;
    for (; next != record.deliveries.end() && next->time_ns <= begin + bin_ns; ++next) bytes += next->bytes;
    const uint64_t open_ns = record.open.elapsed(begin + bin_ns) - record.open.elapsed(begin);
    timeline.total.push_back({begin, gbps(bytes, open_ns), open_ns > 0, double(open_ns) / double(bin_ns)});
  }
  for (const Delivery& d : record.deliveries) {
    if (timeline.raw.size() >= max_raw) break;
    const bool near = std::any_of(marks_ns.begin(), marks_ns.end(), [&](uint64_t mark) {
      return d.time_ns + raw_around_ns >= mark && d.time_ns <= mark + raw_around_ns;
    });
    if (!near) continue;
    const Stream& stream = record.streams[d.stream];
    timeline.raw.push_back(
        {d.time_ns, d.bytes, stream.rx_node, d.rx_nic, stream.rank << 16 | stream.channel});
  }
  return timeline;
}

}  // namespace r2bench
