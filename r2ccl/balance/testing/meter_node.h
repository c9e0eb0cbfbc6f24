// SPDX-License-Identifier: Apache-2.0
// A node whose NICs carry what a test says, for tests of what Capacities finds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "r2ccl/balance/meter.h"

namespace r2ccl::balance {

/// NICs with rates in bytes per ns, looked at every 10 ms. Of each interval a NIC has work for the part
/// `busy`; or, with balance(), what work there is goes to the NICs in proportion to the capacities that have
/// been found.
struct Node {
  explicit Node(size_t nics)
      : capacities(std::vector<double>(nics, 1)),
        rate(nics, 1),
        busy(nics, 1),
        depth(nics, 4),
        idle_ns(nics, 0),
        meters(nics) {}
  void run(uint64_t ms, double jitter = 0) {
    for (uint64_t step = 0; step < ms / 10; ++step) {
      for (size_t nic = 0; nic < rate.size(); ++nic) {
        const double late = 1 + jitter * (double(random() % 1000) / 1000 - 0.5);
        const auto work = uint64_t(10e6 * busy[nic]);
        NicMeter::Reading& it = meters[nic];
        if (work == 0) {
          idle_ns[nic] += 10'000'000;  // told with its next completion
          continue;
        }
        it.bytes += uint64_t(double(work) * rate[nic] * late);
        it.work = it.bytes;
        it.completions += writes;
        it.depth += uint64_t(double(writes) * depth[nic]);
        it.idle_ns += std::exchange(idle_ns[nic], 0) + 10'000'000 - work;
        it.last_done = now + 10'000'000;
      }
      now += 10'000'000;
      capacities.take(meters, now, {}, uint64_t(planned * double(sum())));
    }
  }
  uint64_t sum() const {
    uint64_t bytes = 0;
    for (const NicMeter::Reading& it : meters) bytes += it.bytes;
    return bytes;
  }
  /// An operation is over when its slowest NIC is.
  void balance(uint64_t ms, double jitter) {
    for (uint64_t step = 0; step < ms / 10; ++step) {
      std::vector<double> time(rate.size());
      for (size_t nic = 0; nic < rate.size(); ++nic) time[nic] = capacities.capacity(nic) / rate[nic];
      const double longest = *std::max_element(time.begin(), time.end());
      for (size_t nic = 0; nic < rate.size(); ++nic) busy[nic] = time[nic] / longest;
      run(10, jitter);
    }
  }
  Capacities capacities;
  std::vector<double> rate, busy;
  std::vector<double> depth;  // writes under way
  std::vector<uint64_t> idle_ns;
  double planned = 0;         // part of the bytes
  uint64_t writes = 8;        // in 10 ms
  std::vector<NicMeter::Reading> meters;
  uint64_t now = 1;
  std::mt19937 random{17};
};

}  // namespace r2ccl::balance
