// SPDX-License-Identifier: Apache-2.0
// Streams of pieces: against what can be worked out by hand, and the host engine's executor on ports with
// rates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "harness/sim/comparison.h"
#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/host/testing/timed_stream.h"
#include "r2ccl/collective/predictor.h"

namespace r2bench {
namespace {

using namespace r2ccl::collective;  // NOLINT: the builders' names are what is tested
using r2ccl::collective::testing_support::degraded;
using r2ccl::collective::testing_support::Stream;

constexpr uint64_t kBytes = 1 << 20;

/// Nodes of `kBytes` per second: seconds are the formulas' units.
Ports ports_of(std::vector<double> capacities) {
  Job job;
  job.capacities = std::move(capacities);
  job.bytes_per_second = kBytes;
  job.latency_s = 0;
  return r2bench::ports_of(job);
}

double seconds(const Schedule& schedule, const Ports& ports, const PieceStream& stream,
               uint64_t bytes = kBytes) {
  const auto result = simulate(schedule, ports, bytes, stream);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? result.value().seconds : 0;
}

TEST(PieceStream, one_in_flight_runs_after_the_other) {
  const Ports ports = ports_of({1, 0.5, 1, 1});
  for (const Schedule& schedule :
       {ring_allreduce(natural_order(4), 2), four_stage_allreduce({0, 2, 3}, {1}, 4)}) {
    const double one = seconds(schedule, ports, {});
    for (const uint32_t slots : {1u, 3u})
      EXPECT_NEAR(seconds(schedule, ports, {5, slots, 1}) / one, 5, 0.01) << schedule.name << ", " << slots;
  }
}

// A four-stage of one segment: its ports are idle while a piece is reduced or comes back, unless another one
// is there.
TEST(PieceStream, pieces_beside_each_other_use_what_one_leaves_idle) {
  const Ports ports = ports_of({1, 0.5, 1, 1});
  const Schedule schedule = four_stage_allreduce({0, 2, 3}, {1}, 1);
  const double one = seconds(schedule, ports, {}), bound = 16 * allreduce_bound({{1, 0.5, 1, 1}}),
               same_slot = seconds(schedule, ports, {16, 1, 8}),
               beside = seconds(schedule, ports, {16, 4, 8});
  EXPECT_LT(same_slot, 0.9 * 16 * one);
  EXPECT_LE(beside, same_slot * 1.02);
  EXPECT_GE(beside, 0.999 * bound);
  EXPECT_LT(beside, 1.15 * bound);
}

// Fewer pieces than slots: some slots have none.
TEST(PieceStream, more_slots_than_pieces_change_nothing) {
  const Ports ports = ports_of({1, 0.5, 1});
  const Schedule ring = ring_allreduce(natural_order(3), 4);
  EXPECT_DOUBLE_EQ(seconds(ring, ports, {2, 2, 8}), seconds(ring, ports, {2, 4, 8}));
  EXPECT_DOUBLE_EQ(seconds(ring, ports, {}), seconds(ring, ports, {1, 4, 8}));
}

// If later pieces had as much of the ports as the oldest one, chains would wait for each other, and an
// unequal ring among eight nodes would take more than 1.5 times as long as its busiest port.
TEST(PieceStream, the_oldest_piece_goes_first) {
  const Stream stream = degraded(8, 0.25, 4 << 20);
  const Job job =
      job_of(stream.capacities, stream.bytes, 8, {.bytes_per_second = 1.25e9, .rails = stream.rails});
  const Candidate ring = *candidate_of(plan(job).value(), "unequal_ring");
  EXPECT_LT(seconds(build(job, ring), r2bench::ports_of(job), {32, 4, 8}, job.bytes),
            1.1 * 33 * ring.transfer_s);
}

// Data that takes no time: a ring of four waits for six latencies, and pieces wait beside each other.
TEST(PieceStream, slots_and_pieces_in_flight_hide_latencies) {
  Ports ports = ports_of({1, 1, 1, 1});
  ports.latency_s = 1;
  const Schedule ring = ring_allreduce(natural_order(4), 1);
  const auto pieces_in_turn = [&](uint32_t slots, uint32_t in_flight) {
    return seconds(ring, ports, {16, slots, in_flight}, 4) / seconds(ring, ports, {}, 4);
  };
  EXPECT_NEAR(pieces_in_turn(4, 1), 16, 0.01);
  EXPECT_NEAR(pieces_in_turn(4, 2), 8, 0.01);
  EXPECT_NEAR(pieces_in_turn(4, 4), 4, 0.01);
  EXPECT_LT(pieces_in_turn(4, 8), 3.6);
  EXPECT_GT(pieces_in_turn(1, 8), 13);
}

// The tail of R2CCL-AllReduce waits for the last segment of its own piece, not of an earlier one.
TEST(PieceStream, a_wait_for_the_last_segment_is_for_that_of_the_same_piece) {
  Job job;
  job.capacities = {1, 0.5, 1, 1};
  job.bytes = kBytes;
  job.bytes_per_second = kBytes;
  Ports ports = ports_of(job.capacities);
  ports.latency_s = 1;
  const Schedule schedule = build(job, predict(job, Algorithm::kR2cclAllReduce, 2));
  EXPECT_GT(seconds(schedule, ports, {16, 1, 8}) / 16, 6.2) << "5.8, if the first piece ended all waits";
}

TEST(PieceStream, a_deadlock_is_an_error) {
  Schedule stuck = ring_allreduce(natural_order(3), 1);
  stuck.connections[0].credits = 0;
  EXPECT_FALSE(simulate(stuck, ports_of({1, 1, 1}), kBytes, {8, 4, 8}).ok());
}

TEST(PieceStream, one_without_pieces_slots_or_any_in_flight_is_an_error) {
  const Schedule ring = ring_allreduce(natural_order(3), 1);
  for (const PieceStream& stream : {PieceStream{0, 1, 1}, PieceStream{1, 0, 1}, PieceStream{1, 1, 0}})
    EXPECT_FALSE(simulate(ring, ports_of({1, 1, 1}), kBytes, stream).ok());
}

// The executor has messages, a window of what is under way, and ranks that see completions later.
TEST(PieceStream, the_executor_takes_about_as_long) {
  for (const size_t p : {3u, 8u})
    for (const double x : {0.125, 0.25, 0.5}) {
      Stream stream = degraded(p, x, 4 << 20);
      stream.operations = p < 8 ? 32 : 16;
      stream.rate = 300e6;
      stream.latency = 20e-6;
      Job job = job_of(stream.capacities, stream.bytes, uint32_t(stream.open),
                       {.bytes_per_second = 2.5e9 / 8 * stream.rails, .rails = stream.rails});
      Job simulated = job;
      simulated.bytes_per_second = stream.rate;
      simulated.latency_s = stream.latency;
      const Plan planned = plan(job).value();
      for (const Candidate& candidate : planned.candidates) {
        if (candidate.algorithm == Algorithm::kDoubleTree || candidate.algorithm == Algorithm::kDirect)
          continue;  // which no stream takes
        const Schedule schedule = build(job, candidate);
        stream.slots = candidate.beside;
        const double executor = testing_support::run(stream, schedule),
                     here = seconds(schedule, r2bench::ports_of(simulated),
                                    {uint32_t(stream.operations), candidate.beside, uint32_t(stream.open)},
                                    stream.bytes);
        std::printf("%zu nodes, x = %.3f, %-16s simulated %.4f s, executor %.4f s: %.3f\n", p, x,
                    name(candidate.algorithm), here, executor, executor / here);
        EXPECT_NEAR(executor / here, 1, 0.06) << name(candidate.algorithm) << " among " << p << ", x = " << x;
      }
    }
}

}  // namespace
}  // namespace r2bench
