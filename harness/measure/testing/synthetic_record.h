// SPDX-License-Identifier: Apache-2.0
// Synthetic jobs with exact numbers: two NICs, two streams, one segment of 1 MB per 10 ms on each.
#pragma once

#include <utility>
#include <vector>

#include "harness/measure/affected.h"
#include "harness/measure/timeline.h"

namespace r2bench {

inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint32_t kSegment = 1'000'000;  // bytes; 0.8 Gbit/s at one per 10 ms

/// Node 0 sends to node 1: stream k lives on NIC k. An operation is open all the time unless told otherwise.
struct Synthetic {
  Record record;
  Synthetic() {
    record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
    record.end_ns = 2000 * kMs;
    open({{0, 2000 * kMs}});
  }
  void open(std::vector<Interval> spans) {
    record.operations.clear();
    for (size_t i = 0; i < spans.size(); ++i) record.operations.push_back({i, spans[i], true});
    record.open = OpenTime(std::move(spans));
  }
  void deliver(uint64_t time_ms, uint32_t stream, uint16_t nic, uint32_t path) {
    record.deliveries.push_back({time_ms * kMs, kSegment, stream, nic, nic, path});
  }
  /// Both streams on their own NICs at 10, 20 … until and including `until_ms`.
  void steady(uint64_t from_ms, uint64_t until_ms) {
    for (uint64_t t = from_ms; t <= until_ms; t += 10) {
      deliver(t, 0, 0, 1);
      deliver(t, 1, 1, 2);
    }
  }
  /// The stream uses that path from then on: it has migrated, or its channel came up (path 0).
  void use(uint64_t time_ms, uint32_t stream, uint16_t nic, uint32_t path) {
    record.path_uses.push_back({time_ms * kMs, 0, stream, nic, nic, path});
  }
  void fence(uint64_t time_ms, uint16_t nic, const char* by) {
    record.fences.push_back({time_ms * kMs, 1, nic, std::nullopt, by});
  }
};

inline FaultWindow nic0_down(uint64_t t0_ms) {
  FaultWindow window;
  window.t0_ns = window.before_until_ns = t0_ms * kMs;
  window.until_ns = window.end_ns = 2000 * kMs;
  window.targets = {{1, 0}};
  window.limits = {{t0_ms * kMs, 0.5}};
  window.path_rate_bits_per_s = 800'000'000;
  return window;
}

}  // namespace r2bench
