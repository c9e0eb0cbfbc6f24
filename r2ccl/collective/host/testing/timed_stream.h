// SPDX-License-Identifier: Apache-2.0
// Test support: a stream of operations, run by the executor of each rank on ports with rates, in the fabric's
// own time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/host/advise.h"
#include "r2ccl/collective/host/executor.h"
#include "r2ccl/collective/host/reduce.h"
#include "r2ccl/collective/host/testing/timed_fabric.h"
#include "r2ccl/collective/planner.h"

namespace r2ccl::collective::testing_support {

struct Stream {
  std::vector<double> capacities;  // by rank
  uint64_t bytes = 4 << 20;        // of an operation
  size_t operations = 16, open = 8;
  double rate = 1e9, latency = 20e-6;
  size_t message_bytes = 128 << 10;
  uint32_t slots = kMostSlots, rails = 1;
  std::vector<double> nics{};  // of each rank, 1 of a whole NIC; empty: each as its rank
};

/// Seconds of the stream; its results are compared.
inline double run(const Stream& stream, const Schedule& schedule) {
  const auto p = uint32_t(stream.capacities.size());
  std::vector<double> rates;
  for (size_t port = 0; port < p * stream.rails; ++port) {
    const double part = stream.nics.empty() ? stream.capacities[port / stream.rails] : stream.nics[port];
    rates.push_back(std::max(part, 1e-6) * stream.rate / stream.rails);
  }
  TimedFabric fabric(rates, stream.latency, stream.rails);
  std::vector<std::unique_ptr<TimedTransport>> transports;
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<std::shared_ptr<Program>> programs;
  const size_t count = stream.bytes / 4;
  std::vector<std::vector<int32_t>> sent(p), received(p);
  for (uint32_t rank = 0; rank < p; ++rank) {
    transports.push_back(std::make_unique<TimedTransport>(fabric, rank));
    executors.push_back(std::make_unique<Executor>(*transports.back(),
                                                   ExecutorLimits{.message_bytes = stream.message_bytes}));
    executors.back()->set_window(window_for({stream.rate, 0}, stream.rails));
    programs.push_back(std::make_shared<Program>(
        schedule, rank,
        [&](uint32_t peer, bool sends, uint32_t ordinal) {
          return transports[rank]->end(peer, sends, ordinal);
        },
        rail_shares(schedule, stream.nics, stream.rails), stream.slots));
    sent[rank].resize(count);
    for (size_t i = 0; i < count; ++i) sent[rank][i] = int32_t(i * (rank + 1) % 1000);
    received[rank].resize(count * stream.open);
  }
  constexpr size_t kCompared = 61;  // every so many elements
  std::vector<int32_t> sums;
  for (size_t i = 0; i < count; i += kCompared) {
    sums.push_back(0);
    for (uint32_t rank = 0; rank < p; ++rank) sums.back() += sent[rank][i];
  }
  std::vector<std::vector<Executor::Run*>> runs(p, std::vector<Executor::Run*>(stream.operations, nullptr));
  std::vector<size_t> begun(p, 0), ended(p, 0);
  const auto turn = [&](uint32_t rank) {
    bool moved = false;
    while (begun[rank] < stream.operations && begun[rank] - ended[rank] < stream.open) {
      Work work;
      work.program = programs[rank];
      work.ranges = programs[rank]->ranges(count);
      work.element_bytes = 4;
      work.reduce = reduction_of(DataType::kInt32, Reduction::kSum);
      work.own.base = reinterpret_cast<uintptr_t>(sent[rank].data());
      work.result.base = reinterpret_cast<uintptr_t>(&received[rank][begun[rank] % stream.open * count]);
      work.others = work.result;
      runs[rank][begun[rank]++] = executors[rank]->begin(std::move(work));
      moved = true;
    }
    auto polled = executors[rank]->poll();
    EXPECT_TRUE(polled.ok());
    moved |= polled.ok() && *polled;
    while (ended[rank] < begun[rank] && executors[rank]->finished(runs[rank][ended[rank]])) {
      const int32_t* const got = &received[rank][ended[rank] % stream.open * count];
      size_t wrong = 0;
      for (size_t i = 0; i < sums.size(); ++i) wrong += got[i * kCompared] != sums[i];
      EXPECT_EQ(wrong, 0u);
      executors[rank]->release(runs[rank][ended[rank]++]);
      moved = true;
    }
    return moved;
  };
  for (uint32_t rank = 0; rank < p; ++rank)
    while (turn(rank)) {
    }
  while (std::accumulate(ended.begin(), ended.end(), size_t{0}) < p * stream.operations) {
    const std::optional<uint32_t> rank = fabric.step();
    if (!rank) {
      ADD_FAILURE() << "standstill";
      return 1e9;
    }
    while (turn(*rank)) {
    }
  }
  return fabric.now();
}

inline double bound_of(const Stream& stream) {
  return allreduce_bound(stream.capacities) * double(stream.bytes) * double(stream.operations) / stream.rate;
}

inline std::vector<double> one_degraded(size_t p, double x) {
  std::vector<double> capacities(p, 1.0);
  capacities[p / 2] = 1 - x;
  return capacities;
}

/// A stream of pieces of AllReduce of which node p/2 has lost one NIC of `rails`, or two of four.
inline Stream degraded(size_t p, double x, uint64_t bytes) {
  const uint32_t rails = x < 0.2 ? 8 : 4;
  Stream stream{.capacities = one_degraded(p, x),
                .bytes = bytes,
                .operations = 48,
                .latency = 80e-6,
                .message_bytes = 64 << 10,
                .rails = rails};
  stream.nics.assign(p * rails, 1.0);
  for (uint32_t lost = 0; lost < std::lround(x * rails); ++lost) stream.nics[p / 2 * rails + lost] = 0;
  return stream;
}

/// The same with several degraded nodes of four NICs each, of which they have lost so many; the nodes are
/// spread over the ring, and their lost NICs over the rails.
inline Stream several_degraded(size_t p, const std::vector<uint32_t>& lost, uint64_t bytes) {
  Stream stream = degraded(p, 0.25, bytes);
  std::fill(stream.capacities.begin(), stream.capacities.end(), 1.0);
  std::fill(stream.nics.begin(), stream.nics.end(), 1.0);
  const bool alike = lost == std::vector<uint32_t>{1, 1};
  for (size_t i = 0; i < lost.size(); ++i) {
    size_t node = (1 + i * std::max<size_t>(2, p / lost.size())) % p;
    while (stream.capacities[node] < 1) node = (node + 1) % p;
    stream.capacities[node] = 1 - double(lost[i]) / stream.rails;
    for (size_t nic = 0; nic < lost[i]; ++nic)
      stream.nics[node * stream.rails + ((alike ? 2 : 1) * i + nic) % stream.rails] = 0;
  }
  return stream;
}

/// Seconds of the stream by what the planner chooses for its operations.
inline double seconds_of_choice(const Stream& stream) {
  const Speeds speeds{.bytes_per_second = stream.rate, .rails = stream.rails};
  const Job job = job_of(stream.capacities, stream.bytes, outstanding_for(stream.bytes), speeds, stream.nics);
  const Schedule schedule = build(job, plan(job).value().choice());
  size_t lanes = 0;
  for (const auto& of_rank : schedule.lanes) lanes = std::max(lanes, of_rank.size());
  Stream planned_for = stream;
  planned_for.slots = std::min(stream.slots, slots_for(lanes, stream.rails));
  return run(planned_for, schedule);
}
inline double chosen_over_bound(const Stream& stream) { return seconds_of_choice(stream) / bound_of(stream); }

}  // namespace r2ccl::collective::testing_support
