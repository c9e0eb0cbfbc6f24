// SPDX-License-Identifier: Apache-2.0
// What the planner takes for which nodes and sizes, and that its closed forms hold.
#include "r2ccl/collective/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "r2ccl/collective/checker.h"
#include "r2ccl/collective/predictor.h"

namespace r2ccl::collective {
namespace {

Job job_of(std::vector<double> capacities, uint64_t bytes) {
  Job job;
  job.capacities = std::move(capacities);
  job.bytes = bytes;
  return job;
}

Algorithm chosen(const Job& job) {
  const Result<Plan> result = plan(job);
  EXPECT_TRUE(result.ok());
  return result.value().choice().algorithm;
}

TEST(Planner, keeps_the_ring_while_all_nodes_are_well) {
  for (const size_t nodes : {2, 4, 16, 64})
    EXPECT_EQ(chosen(job_of(std::vector<double>(nodes, 1), 1 << 30)), Algorithm::kRing) << nodes;
}

TEST(Planner, keeps_small_messages_on_ring_or_tree) {
  for (const uint64_t bytes : {8ull, 1024ull, 65536ull}) {
    std::vector<double> c(16, 1);
    c[3] = 0.5;
    const Algorithm taken = chosen(job_of(c, bytes));
    EXPECT_TRUE(taken == Algorithm::kRing || taken == Algorithm::kDoubleTree) << name(taken);
  }
}

TEST(Planner, takes_the_mix_or_four_stage_where_a_node_is_degraded) {
  for (const double capacity : {0.5, 0.75, 0.875}) {
    std::vector<double> c(16, 1);
    c[3] = capacity;
    Job job = job_of(c, 1 << 30);
    job.direct = false;
    const Algorithm taken = chosen(job);
    EXPECT_TRUE(taken == Algorithm::kMix || taken == Algorithm::kFourStage) << name(taken);
  }
}

/// Sixty-four nodes, of which one is degraded: lanes around a ring would wait for latencies.
Job one_of_many() {
  std::vector<double> c(64, 1);
  c[3] = 0.5;
  return job_of(c, 64 << 20);
}

TEST(Planner, takes_direct_where_lanes_would_wait_for_latencies) {
  const Job job = one_of_many();
  const Plan made = plan(job).value();
  EXPECT_EQ(made.choice().algorithm, Algorithm::kDirect);
  EXPECT_LT(made.choice().seconds, 1.02 * made.bound_s);
  for (const Candidate& other : made.candidates)
    if (other.algorithm != Algorithm::kDirect) {
      EXPECT_GT(other.seconds, 1.05 * made.bound_s) << name(other.algorithm);
    }
}

TEST(Planner, takes_direct_only_where_it_may) {
  const auto eligible = [](const Job& job) {
    const Plan made = plan(job).value();
    const Candidate& last = made.candidates.back();
    EXPECT_TRUE(last.eligible || made.choice().algorithm != Algorithm::kDirect);
    return last.algorithm == Algorithm::kDirect && last.eligible;
  };
  EXPECT_TRUE(eligible(one_of_many()));
  Job job = one_of_many();
  job.direct = false;  // the host engine's
  EXPECT_FALSE(eligible(job));
  job = one_of_many();
  job.outstanding = 2;
  EXPECT_FALSE(eligible(job));
  job = one_of_many();
  job.most_ends = 4 * 63 - 2;  // the degraded node owns nothing
  EXPECT_TRUE(eligible(job));
  job.most_ends -= 1;
  EXPECT_FALSE(eligible(job));
  job = one_of_many();
  job.bytes = 64 * 2 * kLeastDirectChunk;
  EXPECT_TRUE(eligible(job));
  job.bytes -= 1;
  EXPECT_FALSE(eligible(job));
  job = one_of_many();
  job.capacities.assign(64, 1);
  EXPECT_FALSE(eligible(job));
  job = one_of_many();
  job.capacities.resize(kMostDirectNodes + 1, 1);
  EXPECT_FALSE(eligible(job));
}

// A mix is within 1 % of it: it has fewer connections.
TEST(Planner, keeps_the_mix_where_direct_gains_little) {
  Job job = job_of({1, 0.875, 1, 1}, 1 << 30);
  job.latency_s = 0;
  const Plan made = plan(job).value();
  EXPECT_LT(made.candidates.back().seconds, made.candidates[size_t(Algorithm::kMix)].seconds);
  EXPECT_EQ(made.choice().algorithm, Algorithm::kMix);
}

TEST(Planner, two_nodes_have_nothing_better_than_the_ring) {
  EXPECT_EQ(chosen(job_of({1, 0.5}, 1 << 30)), Algorithm::kRing);
}

TEST(Planner, slow_additions_favour_who_adds_less) {
  Job job = job_of({0.5, 1, 1, 1}, 1 << 30);
  const double fast = plan(job).value().choice().seconds;
  job.reduce_bytes_per_second = job.bytes_per_second / 10;
  const Plan slow = plan(job).value();
  EXPECT_GT(slow.choice().seconds, fast * 2);
  EXPECT_GT(slow.choice().reduction_s, slow.choice().transfer_s);
}

TEST(Planner, a_stream_of_operations_fills_the_pipeline_once) {
  Job job = job_of({1, 1, 0.5, 1}, 4 << 20);
  job.bytes_per_second = 1e9;
  const Plan alone = plan(job).value();
  job.outstanding = 8;
  const Plan stream = plan(job).value();
  EXPECT_LT(stream.choice().seconds, alone.choice().seconds);
  // With its fill shared by eight, fewer and larger chunks do.
  EXPECT_LE(stream.choice().segments, alone.choice().segments);
  EXPECT_LT(stream.choice().seconds, stream.bound_s * 1.06);
  for (const Candidate& candidate : stream.candidates)
    EXPECT_NEAR(
        candidate.seconds,
        std::max({candidate.transfer_s, candidate.reduction_s, candidate.steps_s}) + candidate.fill_s / 8,
        1e-12);
  // Those on channels of their own hide it from each other, too.
  job.beside = 4;
  const Plan beside = plan(job).value();
  for (const Candidate& candidate : beside.candidates)
    EXPECT_NEAR(
        candidate.seconds,
        std::max({candidate.transfer_s, candidate.reduction_s, candidate.steps_s}) + candidate.fill_s / 32,
        1e-12);
}

TEST(Planner, knows_how_many_lanes_a_rank_needs) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<double> c(2 + random() % 9);
    for (double& value : c) value = random() % 3 == 0 ? 0.25 * double(1 + random() % 3) : 1;
    Job job = job_of(c, 4 << 20);
    job.most_segments = 2;
    const Plan made = plan(job).value();
    for (const Candidate& candidate : made.candidates) {
      size_t most = 0;
      for (const auto& lanes : build(job, candidate).lanes) most = std::max(most, lanes.size());
      if (candidate.algorithm == Algorithm::kUnequalRing ||
          candidate.algorithm == Algorithm::kR2cclAllReduce) {
        EXPECT_GE(candidate.lanes, most) << name(candidate.algorithm);
        EXPECT_LE(candidate.lanes, 2 * most) << name(candidate.algorithm);
      } else {
        EXPECT_EQ(candidate.lanes, most) << name(candidate.algorithm);
      }
    }
  }
}

TEST(Planner, fewer_operations_beside_each_other_leave_more_nics_idle) {
  Job job = job_of({1, 1, 1, 1, 0.875, 1, 1, 1}, 1 << 20);
  job.bytes_per_second = 1e9;
  job.outstanding = 8;
  job.beside = 4;
  job.most_segments = 1;
  job.least_chunk_bytes = 118 << 10;  // eight NICs
  const auto mix = [&] { return plan(job).value().candidates[size_t(Algorithm::kMix)]; };
  const double all = mix().seconds;
  job.most_ends = 2 * mix().lanes;  // twice as many are enough for all four
  EXPECT_DOUBLE_EQ(mix().seconds, all);
  job.most_ends -= 1;
  EXPECT_GT(mix().seconds, 1.2 * all);
  job.most_ends = mix().lanes;
  EXPECT_GT(mix().seconds, 1.5 * all);
}

/// Pieces of 4 MiB over eight slow NICs of each node, with K = 1.
Job stream_over_eight_nics(const std::vector<double>& capacities) {
  Job job = job_of(capacities, 4 << 20);
  job.bytes_per_second = 6e8;
  job.latency_s = job.back_s = 80e-6;
  job.outstanding = 8;
  job.beside = 4;
  job.direct = false;
  job.most_segments = 1;
  job.least_chunk_bytes = 118 << 10;
  return job;
}

// Of each NIC 16 · 4 ends, where 32 are usual: the mix is predicted to be 3 % faster than the unequal ring.
TEST(Planner, many_ends_must_gain_more) {
  Job job = stream_over_eight_nics({0.875, 1, 1, 1, 1, 1, 1, 1});
  const auto seconds = [&](Algorithm of) { return plan(job).value().candidates[size_t(of)].seconds; };
  job.most_ends = 32;
  EXPECT_EQ(chosen(job), Algorithm::kUnequalRing);
  EXPECT_LT(seconds(Algorithm::kMix), 0.98 * seconds(Algorithm::kUnequalRing));
  job.most_ends = 43;  // 64 are no longer many
  EXPECT_EQ(chosen(job), Algorithm::kMix);
  job.most_ends = 32;
  job.capacities[0] = 0.5;  // and here they gain enough
  EXPECT_LT(seconds(Algorithm::kFourStage), 0.96 * seconds(Algorithm::kUnequalRing));
  EXPECT_EQ(chosen(job), Algorithm::kFourStage);
}

// Two shapes of four-stage take the same time, by one leaf or by two. With one, a rank needs 14 · 4 ends.
TEST(Planner, of_shapes_that_are_as_fast_it_takes_one_without_many_ends) {
  Job job = stream_over_eight_nics({0.125, 0.375, 1, 1, 1, 1, 1, 1});
  const Plan without_limit = plan(job).value();
  EXPECT_EQ(without_limit.choice().algorithm, Algorithm::kFourStage);
  EXPECT_EQ(without_limit.choice().leaves, 1u);
  job.most_ends = 32;
  const Plan limited = plan(job).value();
  EXPECT_EQ(limited.choice().algorithm, Algorithm::kFourStage);
  EXPECT_EQ(limited.choice().leaves, 2u);
  EXPECT_NEAR(limited.choice().seconds, without_limit.choice().seconds,
              1e-9 * without_limit.choice().seconds);
}

TEST(Planner, ends_of_an_operation_that_is_alone_cost_nothing) {
  std::mt19937 random(3);
  size_t many = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<double> capacities(4 + random() % 5, 1);
    capacities[0] = 0.125 * double(1 + random() % 7);
    Job job = job_of(capacities, 16 << 20);
    job.bytes_per_second = 6e8;
    job.latency_s = job.back_s = 80e-6;
    job.direct = false;
    const Candidate without_limit = plan(job).value().choice();
    job.most_ends = 1 + without_limit.lanes / 2;
    many += 2 * without_limit.lanes > 3 * job.most_ends ? 1 : 0;
    const Candidate limited = plan(job).value().choice();
    EXPECT_EQ(limited.algorithm, without_limit.algorithm) << round;
    EXPECT_EQ(limited.leaves, without_limit.leaves) << round;
    EXPECT_DOUBLE_EQ(limited.seconds, without_limit.seconds) << round;
  }
  EXPECT_GT(many, 40u);
}

// On virtual NICs a mix of half as many segments is as fast or faster, though 0.8 % more is predicted of it.
TEST(Planner, a_mix_in_a_stream_has_no_more_segments_than_gain_something) {
  Job job = job_of({0.75, 1, 1, 1, 1, 1}, 4 << 20);
  job.bytes_per_second = 6e8;
  job.latency_s = job.back_s = 80e-6;
  job.beside = 4;
  job.direct = false;
  job.most_segments = 4;
  const auto mix = [&] { return plan(job).value().candidates[size_t(Algorithm::kMix)]; };
  job.outstanding = 8;
  const Candidate taken = mix();
  EXPECT_EQ(taken.segments, 2u);
  const double gained = 1 - predict(job, taken, 4).seconds / taken.seconds;
  EXPECT_GT(gained, 0.005);
  EXPECT_LT(gained, 0.012);
  // Two leaves, or one operation alone: as many as are predicted to be faster.
  job.capacities = {0.75, 0.75, 1, 1, 1, 1};
  EXPECT_EQ(mix().segments, 4u);
  job.capacities = {0.75, 1, 1, 1, 1, 1};
  job.outstanding = job.beside = 1;
  EXPECT_EQ(mix().segments, 4u);
}

TEST(Planner, operations_beside_each_other_are_all_or_what_half_as_many_ends_permit) {
  EXPECT_EQ(beside_within(4, 16, 0), 4u);   // no limit
  EXPECT_EQ(beside_within(4, 16, 32), 4u);  // 64 ends
  EXPECT_EQ(beside_within(4, 17, 32), 1u);
  EXPECT_EQ(beside_within(4, 10, 20), 4u);
  EXPECT_EQ(beside_within(4, 10, 19), 1u);
  EXPECT_EQ(beside_within(8, 10, 32), 3u);
  EXPECT_EQ(beside_within(4, 99, 32), 1u);
  EXPECT_EQ(beside_within(2, 16, 31), 2u);
}

TEST(Planner, latency_counts_once_for_operations_beside_each_other) {
  Job job = job_of({1, 1, 0.5, 1}, 1 << 20);
  job.latency_s = 200e-6;
  job.outstanding = 8;
  const Plan behind = plan(job).value();
  job.beside = 4;
  const Plan beside = plan(job).value();
  for (size_t i = 0; i < behind.candidates.size(); ++i)
    if (behind.candidates[i].segments == beside.candidates[i].segments) {
      EXPECT_NEAR(beside.candidates[i].steps_s * 4, behind.candidates[i].steps_s, 1e-12);
    }
  EXPECT_LT(beside.candidates[0].seconds, behind.candidates[0].seconds);
}

TEST(Planner, says_why) {
  const Plan result = plan(job_of({1, 1, 0.5, 1}, 1 << 30)).value();
  EXPECT_NE(result.why.find("node 2 at 50 %"), std::string::npos) << result.why;
  EXPECT_NE(result.why.find("less time than the ring"), std::string::npos) << result.why;
  EXPECT_NE(result.why.find("lower bound"), std::string::npos) << result.why;
}

// Direct is faster than the ring among healthy nodes, and may not be taken.
TEST(Planner, says_of_a_ring_only_what_the_predictions_say) {
  const char* says[] = {"no other schedule that may be taken is faster", "what is faster gains too little"};
  int said[2] = {};
  for (const double capacity : {1.0, 0.995, 0.98}) {
    for (const uint64_t bytes : {uint64_t{4} << 10, uint64_t{1} << 20, uint64_t{1} << 30}) {
      const Plan made = plan(job_of({1, 1, capacity, 1}, bytes)).value();
      if (made.choice().algorithm != Algorithm::kRing) continue;
      bool faster = false;
      for (const Candidate& other : made.candidates)
        faster = faster || (other.eligible && other.seconds < made.choice().seconds * (1 - 1e-9));
      EXPECT_NE(made.why.find(says[faster]), std::string::npos) << capacity << " " << made.why;
      ++said[faster];
    }
  }
  EXPECT_GT(said[0], 0);
  EXPECT_GT(said[1], 0);
}

TEST(Planner, has_no_direct_among_too_many_nodes) {
  Job job = job_of(std::vector<double>(kMostDirectNodes, 1), 1 << 20);
  EXPECT_NE(candidate_of(plan(job).value(), "direct"), nullptr);
  job.capacities.push_back(1);
  EXPECT_EQ(candidate_of(plan(job).value(), "direct"), nullptr);
  EXPECT_NE(candidate_of(plan(job).value(), "mix"), nullptr);
}

TEST(Planner, says_what_limits_the_choice) {
  const auto limit = [](const Job& job) {
    const std::string why = plan(job).value().why, by = "It is limited by ";
    const size_t from = why.find(by) + by.size();
    return why.substr(from, why.find(", and takes") - from);
  };
  EXPECT_EQ(limit(job_of({1, 1, 0.5, 1}, 1 << 30)), "the busiest port");
  Job added = job_of({1, 1, 0.5, 1}, 1 << 30);
  added.reduce_bytes_per_second = added.bytes_per_second / 10;
  EXPECT_EQ(limit(added), "the additions");
  EXPECT_EQ(limit(job_of({1, 1, 0.5, 1}, 4096)), "latency");
  // A stream of pieces among sixteen nodes at a high rate: latency, whatever channels there are.
  std::vector<double> many(16, 1);
  many[3] = 0.5;
  Job stream = job_of(many, 4 << 20);
  stream.latency_s = 80e-6;
  stream.most_segments = 1;
  stream.outstanding = 8;
  stream.beside = 8;
  stream.bytes_per_second = 200e9;
  EXPECT_EQ(limit(stream), "latency");
  // At a lower rate it is one operation beside no other one, …
  stream.bytes_per_second = 3e9;
  EXPECT_EQ(limit(stream), "the busiest port");
  stream.most_ends = 32;
  EXPECT_EQ(limit(stream), "operations that wait for each other's channels");
  // … or chunks are too small for its NICs.
  stream.most_ends = 0;
  stream.bytes_per_second = 1e9;
  stream.least_chunk_bytes = 500 << 10;
  EXPECT_EQ(plan(stream).value().choice().algorithm, Algorithm::kFourStage);
  EXPECT_EQ(limit(stream), "chunks that have no message for every NIC");
}

TEST(Planner, refuses_what_it_cannot_plan) {
  EXPECT_FALSE(plan(job_of({1}, 1)).ok());
  EXPECT_FALSE(plan(job_of({1, 0, 1}, 1)).ok());
  EXPECT_FALSE(plan(job_of({1, -1, 1}, 1)).ok());
}

TEST(Planner, every_candidate_is_a_right_schedule) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> capacity(0.05, 1);
  for (int round = 0; round < 40; ++round) {
    std::vector<double> c(2 + random() % 9);
    for (double& value : c) value = random() % 2 == 0 ? 1 : capacity(random);
    Job job = job_of(c, 1 << 20);
    job.most_segments = 2;
    const Plan made = plan(job).value();
    for (const Candidate& candidate : made.candidates) {
      const Result<void> result = check(build(job, candidate));
      EXPECT_TRUE(result.ok()) << name(candidate.algorithm) << ": " << result.error().message;
    }
  }
}

TEST(Mix, attains_the_bound_for_any_capacities_of_few_values) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> capacity(0.02, 1);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> values(1 + random() % kMostLevels);
    for (double& value : values) value = capacity(random);
    std::vector<double> c(3 + random() % 40);
    for (double& value : c) value = values[random() % values.size()];
    const double bound = allreduce_bound(c), time = mix_fractions(c).seconds;
    // Values that differ by less than a percent count as one.
    EXPECT_LE(time, bound * 1.011);
    EXPECT_GE(time, bound * (1 - 1e-9));
  }
}

// Among many nodes of many capacities the candidate with the least time by its ports is not the fastest.
TEST(Planner, predicts_each_candidate_of_one_operation_that_may_be_the_fastest) {
  std::mt19937 random(3);
  std::vector<double> c(128);
  for (double& value : c) value = 0.8 + 0.2 * double(random() % 1000) / 1000;
  Job job = job_of(c, 16 << 20);
  job.bytes_per_second = 5e9;
  job.latency_s = job.back_s = 80e-6;
  double best = INFINITY;
  for (uint32_t k = 1; k <= 4; k *= 2)
    for (uint32_t leaves = 1; leaves < c.size(); ++leaves)
      best = std::min(best, predict(job, Algorithm::kFourStage, k, leaves).seconds);
  EXPECT_LT(plan(job).value().candidates[size_t(Algorithm::kFourStage)].seconds, 1.002 * best);
}

// Leaves of a mix make the operations of a stream wait for each other. One that is alone waits for none.
TEST(Planner, takes_the_mix_for_one_operation_and_several_degraded_nodes) {
  for (const size_t degraded : {2, 3, 4}) {
    std::vector<double> c(2 * degraded, 1);
    std::fill_n(c.begin(), degraded, 0.75);
    Job job = job_of(c, 1 << 30);
    job.least_chunk_bytes = 64 << 10;
    job.direct = false;
    EXPECT_EQ(chosen(job), Algorithm::kMix) << degraded;
    EXPECT_LT(plan(job).value().candidates[plan(job).value().chosen].seconds,
              1.05 * allreduce_bound(c) * double(job.bytes) / job.bytes_per_second);
  }
}

TEST(Direct, attains_the_bound_for_any_capacities) {
  std::mt19937 random(9);
  std::uniform_real_distribution<double> capacity(0.02, 1);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> c(2 + random() % 40);
    for (double& value : c) value = capacity(random);
    const DirectShares direct = direct_shares(c);
    const double bound = allreduce_bound(c);
    EXPECT_LE(direct.seconds, bound * 1.001);
    EXPECT_GE(direct.seconds, bound * (1 - 1e-9));
    EXPECT_NEAR(std::accumulate(direct.shares.begin(), direct.shares.end(), 0.0), 1, 1e-9);
    EXPECT_NEAR(busiest_port(direct_allreduce(direct.shares, 1), c), direct.seconds, 1e-9);
  }
}

TEST(Mix, has_the_fractions_of_one_degraded_node_in_closed_form) {
  for (const double p : {3.0, 4.0, 8.0, 64.0}) {
    for (const double x : {0.125, 0.25, 0.5}) {
      std::vector<double> c(static_cast<size_t>(p), 1);
      c[0] = 1 - x;
      const double a = 2 * (p - 1) / p, bound = allreduce_bound(c),
                   z = std::max(0.0, ((1 - x) * bound - 1) / (a - 1));
      const MixFractions mix = mix_fractions(c);
      const double ring = mix.parts[0].leaves.empty() ? mix.parts[0].fraction : 0;
      EXPECT_NEAR(ring, z, 1e-5) << p << " " << x;
      EXPECT_NEAR(mix.seconds, bound, 1e-5 * bound) << p << " " << x;
    }
  }
}

TEST(Mix, of_many_different_capacities_is_faster_than_the_ring) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> capacity(0.5, 1);
  std::vector<double> c(64);
  for (double& value : c) value = capacity(random);
  const MixFractions mix = mix_fractions(c);
  EXPECT_LE(mix.parts.size(), kMostLevels);
  EXPECT_LT(mix.seconds, ring_volume(64) / *std::min_element(c.begin(), c.end()) * 0.75);
}

TEST(FourStage, has_the_closed_form_for_several_leaves) {
  for (const size_t p : {4, 8, 16}) {
    for (size_t s = 1; s <= p / 2; ++s) {
      std::vector<double> c(p, 1);
      for (size_t i = 0; i < s; ++i) c[i] = 0.5;
      const double form = std::max(2.0, 2 + (static_cast<double>(s) - 2) / static_cast<double>(p - s));
      EXPECT_NEAR(four_stage_time(c, s), form, 1e-9);
    }
  }
}

}  // namespace
}  // namespace r2ccl::collective
