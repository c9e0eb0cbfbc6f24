// SPDX-License-Identifier: Apache-2.0
// The parts that predictions are made of. Whether they come true is tested with simulated ports
// (host/advise_time_test.cc).
#include "r2ccl/collective/predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "r2ccl/collective/alone.h"
#include "r2ccl/collective/cost.h"

namespace r2ccl::collective {
namespace {

constexpr double kLatency = 1e-5, kRate = 1e9;

Job job_of(std::vector<double> capacities, uint64_t bytes, uint32_t outstanding = 1) {
  Job job;
  job.capacities = std::move(capacities);
  job.bytes = bytes;
  job.bytes_per_second = kRate;
  job.latency_s = kLatency;
  job.reduce_bytes_per_second = 0;
  job.outstanding = outstanding;
  return job;
}

Candidate station(double busy, double in_turn, double latencies) {
  Candidate candidate;
  candidate.transfer_s = busy;
  candidate.in_turn = in_turn;
  candidate.latencies_s = latencies;
  return candidate;
}

TEST(Predict, a_ring_of_one_rank_ends) {
  EXPECT_GE(predict(job_of({1}, 1 << 20), Algorithm::kRing, 4).seconds, 0);
}

TEST(QueuedSeconds, one_operation_takes_the_port_and_all_latencies) {
  EXPECT_DOUBLE_EQ(queued_seconds(station(2, 1, 5), 1, 1).operations, 7);
  EXPECT_DOUBLE_EQ(queued_seconds(station(2, 3, 5), 1, 1).operations, 11);
}

TEST(QueuedSeconds, many_operations_take_what_the_port_needs) {
  for (const double in_turn : {1.0, 3.0}) {
    double before = INFINITY;
    for (const uint32_t in_flight : {1, 2, 4, 8, 64, 1024}) {
      const double each = queued_seconds(station(2, in_turn, 5), in_flight, 1).operations;
      EXPECT_LE(each, before) << in_flight;
      EXPECT_GE(each, 2);
      before = each;
    }
    EXPECT_NEAR(before, 2, 0.02) << "other operations use what one leaves idle";
  }
}

TEST(QueuedSeconds, additions_and_operations_beside_each_other_count) {
  Candidate candidate = station(2, 1, 0);
  candidate.reduction_s = 3;
  candidate.waits_s = 4;
  const Queued queued = queued_seconds(candidate, 8, 1);
  EXPECT_DOUBLE_EQ(queued.slots, 7);
  EXPECT_DOUBLE_EQ(queued.operations, 3);
  EXPECT_DOUBLE_EQ(queued.most(), 7);
  EXPECT_LT(queued_seconds(candidate, 8, 2).slots, 7);
}

TEST(QueuedSeconds, nothing_takes_no_time) { EXPECT_EQ(queued_seconds(station(0, 1, 0), 8, 2).most(), 0); }

TEST(Predict, a_double_tree_waits_for_its_depth_up_and_down) {
  const struct {
    size_t nodes;
    double depth;
  } trees[] = {{2, 1}, {3, 1}, {4, 2}, {7, 2}, {8, 3}, {16, 4}};
  for (const auto& [nodes, depth] : trees) {
    const std::vector<double> c(nodes, 1);
    EXPECT_NEAR(predict(job_of(c, 1), Algorithm::kDoubleTree, 1).latencies_s, 2 * depth * kLatency, 1e-7)
        << nodes;
    EXPECT_NEAR(predict(job_of(c, 1, 8), Algorithm::kDoubleTree, 1).latencies_s, (2 * depth + 4) * kLatency,
                1e-7)
        << nodes << ": channels add four";
  }
}

TEST(Predict, more_segments_mean_more_latencies_in_the_rings_of_four_stage_and_mix) {
  const std::vector<double> c{0.75, 1, 1, 1, 1, 1};
  for (const Algorithm algorithm : {Algorithm::kFourStage, Algorithm::kMix}) {
    double before = 0;
    for (const uint32_t k : {1, 2, 4, 8}) {
      const Candidate is = predict(job_of(c, 1, 8), algorithm, k, 1);
      EXPECT_GT(is.latencies_s, before) << name(algorithm) << " " << k;
      before = is.latencies_s;
    }
    EXPECT_GE(predict(job_of(c, 1, 8), algorithm, 1, 1).latencies_s, 9 * kLatency) << name(algorithm);
  }
  EXPECT_NEAR(predict(job_of(c, 1, 8), Algorithm::kFourStage, 4, 1).latencies_s, (10 + 3 * 4) * kLatency,
              1e-9)
      << "twice around five owners, and once more for each further segment";
}

TEST(Predict, small_chunks_leave_nics_idle) {
  for (const Algorithm algorithm : {Algorithm::kFourStage, Algorithm::kMix}) {
    Job job = job_of({0.75, 1, 1, 1}, 4 << 20, 8);
    EXPECT_EQ(predict(job, algorithm, 4, 1).in_turn, 1) << "one NIC";
    job.least_chunk_bytes = 64 << 10;
    EXPECT_EQ(predict(job, algorithm, 1, 1).in_turn, 1) << name(algorithm);
    EXPECT_GT(predict(job, algorithm, 64, 1).in_turn, 2) << name(algorithm);
  }
}

TEST(Predict, the_smallest_chunk_of_direct_is_that_of_the_node_that_owns_least) {
  const Job job = job_of({0.25, 0.8, 1, 1}, 1 << 20);  // node 0 owns nothing
  const Candidate direct = predict(job, Algorithm::kDirect, 4);
  const Schedule built = build(job, direct);
  const Part& part = built.parts[0];
  double least = 1;
  for (uint32_t i = 0; i < part.chunks_per_segment(); ++i) least = std::min(least, chunk_fraction(part, i));
  EXPECT_NEAR(direct.least_chunk, least, 1e-12);
}

// How long chunks of few messages take is in what its lanes wait for.
TEST(Predict, small_chunks_count_once_in_an_operation_that_is_alone) {
  Job job = job_of({0.75, 1, 1, 1}, 1 << 20);
  job.least_chunk_bytes = 64 << 10;
  const Ranks owners{1, 2, 3}, leaves{0};
  const MixPart part{1, owners, leaves};
  for (const uint32_t k : {4, 16}) {
    const Candidate four_stage = predict(job, Algorithm::kFourStage, k, 1);
    ASSERT_GT(four_stage.in_turn, 1) << k;
    EXPECT_NEAR(four_stage.seconds, alone_seconds(job, {&part, 1}, k), 1e-12) << k;
    const Candidate mix = predict(job, Algorithm::kMix, k);
    ASSERT_GT(mix.in_turn, 1) << k;
    EXPECT_NEAR(mix.seconds, alone_seconds(job, mix_fractions(job.capacities).parts, k), 1e-12) << k;
  }
}

// More segments help as much as without NICs.
TEST(Predict, the_busiest_nic_slows_down_all_lanes_of_an_operation_that_is_alone) {
  const Job job = job_of({0.75, 0.75, 1, 1}, 16 << 20);
  Job slower = job;
  slower.bytes_per_second /= 1.25;
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kDoubleTree, Algorithm::kFourStage, Algorithm::kMix}) {
    for (const uint32_t k : {4, 32}) {
      const Candidate shape{.algorithm = algorithm, .leaves = 2, .rails = 1.25};
      const Candidate is = predict(job, shape, k);
      EXPECT_NEAR(is.seconds, predict(slower, algorithm, k, 2).seconds, 1e-12) << name(algorithm) << k;
      EXPECT_EQ(is.rails, 1.25);
    }
  }
}

TEST(Predict, leaves_of_a_mix_make_only_the_operations_of_a_stream_wait) {
  const std::vector<double> c{0.75, 0.75, 0.75, 1, 1, 1};
  EXPECT_EQ(predict(job_of(c, 64 << 20, 1), Algorithm::kMix, 8).in_turn, 1);
  EXPECT_GT(predict(job_of(c, 64 << 20, 8), Algorithm::kMix, 8).in_turn, 1.1);
}

TEST(Predict, times_are_finite_without_data_and_without_latency) {
  for (const uint32_t outstanding : {1, 8}) {
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kUnequalRing, Algorithm::kDoubleTree,
                                      Algorithm::kR2cclAllReduce, Algorithm::kFourStage, Algorithm::kMix}) {
      for (const uint64_t bytes : {0, 1, 1 << 20}) {
        Job job = job_of({0.5, 1, 1, 1}, bytes, outstanding);
        for (const uint64_t least : {0, 64 << 10}) {
          job.least_chunk_bytes = least;
          for (const double latency : {0.0, kLatency}) {
            job.latency_s = latency;
            const Candidate is = predict(job, algorithm, 4, 1);
            EXPECT_TRUE(std::isfinite(is.seconds) && is.seconds >= 0) << name(algorithm) << " " << bytes;
            EXPECT_TRUE(std::isfinite(is.queued_s) && std::isfinite(is.in_turn)) << name(algorithm);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace r2ccl::collective
