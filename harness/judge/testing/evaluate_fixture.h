// SPDX-License-Identifier: Apache-2.0
// For the tests of evaluate(): jobs made by hand, so that every expected number can be worked out by hand.
//
// Two nodes with two NICs of 1 Gbit/s, two streams from node0 to node1, one per NIC, in segments of 10 ms.
// Healthy: a segment per stream every 10 ms, operations of 100 ms, 2 Gbit/s. One NIC less: 20 ms, 200 ms,
// 1 Gbit/s. So floor = 20 ms (a segment at half the port's rate), W = an operation = 200 ms.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "harness/judge/evaluate.h"

namespace r2bench {

inline constexpr uint32_t kSegment = 1'250'000;
inline constexpr uint64_t kGbit = 1'000'000'000;

inline uint64_t at(double ms) { return uint64_t(ms * 1e6); }

inline faultinject::FaultSpec fault(const char* kind, const char* target = "node1/nic0", uint64_t rate = 0) {
  faultinject::FaultSpec spec(faultinject::fault_kind(kind));
  spec.name = "the fault";
  spec.target = faultinject::parse_target(target);
  spec.rate_bits_per_s = rate;
  return spec;
}

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() {
    scenario.fabric.nics_per_node = 2;
    scenario.fabric.nic_rate_bits_per_s = kGbit;
    scenario.faults = {fault("port_down")};
    mode = {ModeKind::kMigrate, "migrate", {}};
    job.mode = &mode;
    job.labels = {"node0/rank0", "node1/rank0"};
    job.record.streams = {{1, 0, 1, 0}, {1, 1, 1, 0}};
  }

  void operation(double from, double until, bool complete = true) {
    job.record.operations.push_back({job.record.operations.size(), {at(from), at(until)}, complete});
  }
  /// Segments of a stream at from + gap, from + 2 gap … until.
  void deliver(uint32_t stream, double from, double until, double gap, uint16_t nic) {
    for (double t = from + gap; t <= until; t += gap)
      job.record.deliveries.push_back({at(t), kSegment, stream, nic, nic, uint32_t(10 * stream + nic)});
  }
  void run(double from, double until, double length, double gap, uint16_t nic_of_stream0 = 0) {
    for (double t = from; t < until; t += length) operation(t, t + length);
    deliver(0, from, until, gap, nic_of_stream0);
    deliver(1, from, until, gap, 1);
  }
  /// The operation that begins at `begin` loses node1/nic0 55 ms later: a fence 5 ms after that, and after
  /// another 30 ms the first segment on NIC 1. From then on everything goes at `gap_after`.
  void lose_nic0(double begin, double until, double gap_before = 10, double gap_after = 20) {
    operation(begin, begin + 200);
    deliver(0, begin, begin + 50, gap_before, 0);
    deliver(1, begin, begin + 50, gap_before, 1);
    deliver(1, begin + 60 - gap_after, begin + 200, gap_after, 1);
    deliver(0, begin + 90 - gap_after, begin + 200, gap_after, 1);
    job.record.fences.push_back({at(begin + 60), 1, 0, 0u, "completion"});
    run(begin + 200, until, 10 * gap_after, gap_after, 1);
  }
  /// The same, but nothing moves: stream 1 goes on at half the rate, stream 0 waits for ever.
  void never_recover(double begin, double until) {
    operation(begin, until, false);
    deliver(0, begin, begin + 50, 10, 0);
    deliver(1, begin, begin + 50, 10, 1);
    deliver(1, begin + 40, until, 20, 1);
  }
  Firing& strike(double t0, size_t index = 0, size_t repetition = 0) {
    Firing firing;
    firing.fault = index;
    firing.repetition = repetition;
    firing.triggered_ns = firing.t0_ns = at(t0);
    if (index < scenario.faults.size()) firing.nics = nics_of(scenario.faults[index].target, scenario.fabric);
    job.firings.push_back(firing);
    return job.firings.back();
  }
  ModeResult result() {
    auto& record = job.record;
    std::stable_sort(record.deliveries.begin(), record.deliveries.end(),
                     [](const Delivery& a, const Delivery& b) { return a.time_ns < b.time_ns; });
    std::vector<Interval> open;
    for (const OperationSpan& o : record.operations) {
      open.push_back(o.span);
      record.end_ns = std::max(record.end_ns, o.span.end_ns);
    }
    record.open = OpenTime(open);
    return evaluate(scenario, job);
  }

  Scenario scenario;
  Mode mode;
  JobRecord job;
};

}  // namespace r2bench
