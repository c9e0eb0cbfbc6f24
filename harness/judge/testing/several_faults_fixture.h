// SPDX-License-Identifier: Apache-2.0
// Jobs with several faults at a time, of different kinds.
#pragma once

#include <algorithm>

#include "harness/judge/testing/evaluate_fixture.h"

namespace r2bench {

/// Three nodes in a ring with two NICs each, a stream per NIC into each node.
class SeveralFaults : public EvaluateTest {
 protected:
  SeveralFaults() {
    scenario.fabric.nodes = 3;
    job.labels = {"node0/rank0", "node1/rank0", "node2/rank0"};
    job.record.streams.clear();
    for (uint16_t node = 0; node < 3; ++node)
      for (uint32_t channel = 0; channel < 2; ++channel)
        job.record.streams.push_back({node, channel, node, uint16_t((node + 2) % 3)});
  }
  /// The one fault of the scenario: node2/nic1 loses its link for 100 ms, so many times.
  void repeat_port_down(uint32_t rounds) {
    scenario.faults = {fault("port_down", "node2/nic1")};
    scenario.faults[0].repeat = rounds;
    scenario.faults[0].duration = std::chrono::milliseconds(100);
  }
  /// Every stream at its rate on its own NIC, but those of `moved`, which are on the other.
  void go_on(double from, double until, const std::vector<uint32_t>& moved = {}, double gap = 10) {
    for (double t = from; t < until; t += 10 * gap) operation(t, std::min(t + 10 * gap, until));
    for (uint32_t s = 0; s < 6; ++s) {
      const bool away = std::find(moved.begin(), moved.end(), s) != moved.end();
      deliver(s, from, until, gap, uint16_t(away ? 1 - s % 2 : s % 2));
    }
  }
  void fence(double time, uint16_t node, uint16_t nic, uint16_t peer, const char* by) {
    FenceStart start{at(time), node, nic, std::nullopt, by};
    start.peer_node = peer;
    start.peer_nic = nic;
    job.record.fences.push_back(start);
  }
  void witness(uint32_t id, double ms, faultinject::Effect effect, uint32_t round = 0, uint64_t value = 0) {
    faultinject::Witness w;
    w.fault_id = id;
    w.round = round;
    w.time_ns = at(ms);
    w.effect = effect;
    w.value = value;
    job.witnesses.push_back(w);
  }
};

/// node1/nic0 is lost, and 100 ms later node0/nic0, at the other end of its rail, becomes slow. The streams
/// of node1/nic0 (2 and 4) move; stream 0, which uses node0/nic0 only, stays.
class LostAndSlow : public SeveralFaults {
 protected:
  LostAndSlow() {
    scenario.faults = {fault("blackhole"), fault("throttle", "node0/nic0", kGbit * 4 / 5)};
    go_on(1000, 1300);
    operation(1300, 1560);
    for (uint32_t s : {0, 1, 3, 5}) deliver(s, 1300, 1560, 10, uint16_t(s % 2));
    for (uint32_t s : {2, 4}) {
      deliver(s, 1300, 1350, 10, 0);
      deliver(s, 1480, 1560, 20, 1);
    }
    go_on(1560, 5560, {2, 4}, 20);
    strike(1355, 0);
    strike(1455, 1);
  }
};

}  // namespace r2bench
