// SPDX-License-Identifier: Apache-2.0
// Plans for nodes that have lost different NICs. Whether they are as fast as predicted is tested with
// simulated ports (host/advise_time_test.cc).
#include "r2ccl/collective/rail_plans.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "r2ccl/collective/checker.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/rail_load.h"
#include "r2ccl/collective/rails.h"

namespace r2ccl::collective {
namespace {

/// A stream of pieces of 4 MiB among nodes that have lost these of their NICs.
Job job_of(const std::vector<std::vector<size_t>>& gone, size_t rails = 4) {
  Job job;
  job.nics.assign(rails * gone.size(), 1.0);
  for (size_t node = 0; node < gone.size(); ++node) {
    job.capacities.push_back(1 - double(gone[node].size()) / double(rails));
    for (const size_t nic : gone[node]) job.nics[rails * node + nic] = 0;
  }
  job.bytes = 4 << 20;
  job.bytes_per_second = 1e9;
  job.latency_s = 20e-6;
  job.outstanding = 8;
  job.beside = 4;
  job.most_segments = 2;
  return job;
}
double need(const Job& job, const Candidate& candidate) {
  return rails_need(build(job, candidate), job.nics, job.nics.size() / job.capacities.size());
}
void expect_same(const Plan& one, const Plan& other) {
  ASSERT_EQ(one.chosen, other.chosen);
  EXPECT_EQ(one.why, other.why);
  for (size_t i = 0; i < one.candidates.size(); ++i) {
    const Candidate &a = one.candidates[i], &b = other.candidates[i];
    EXPECT_EQ(a.seconds, b.seconds);
    EXPECT_EQ(a.segments, b.segments);
    EXPECT_EQ(a.leaves, b.leaves);
    EXPECT_EQ(a.parts, b.parts);
    EXPECT_EQ(a.order, b.order);
  }
}

TEST(RailPlans, stay_as_they_are_where_rails_do_not_matter) {
  for (const auto& gone : std::vector<std::vector<std::vector<size_t>>>{
           {{}, {1}, {}, {}}, {{}, {1}, {}, {1}, {}}, {{0, 1}, {0, 1}, {}, {}}, {{}, {}, {}}}) {
    Job job = job_of(gone);
    EXPECT_TRUE(shapes_by_rails(job).empty());
    Job unknown = job;
    unknown.nics.clear();
    for (const uint32_t outstanding : {1, 8}) {
      job.outstanding = unknown.outstanding = outstanding;
      expect_same(plan(job).value(), plan(unknown).value());
    }
  }
}

TEST(RailPlans, stay_as_they_are_where_no_plan_avoids_nodes_without_a_common_rail) {
  const Job job = job_of({{0, 1}, {2, 3}});
  Job unknown = job;
  unknown.nics.clear();
  expect_same(plan(job).value(), plan(unknown).value());
}

// Nodes 1 and 2 would be neighbours in the ring of a mix.
TEST(RailPlans, put_a_node_with_all_rails_between_two_that_have_lost_different_ones) {
  const Job job = job_of({{}, {0}, {1}, {2}, {}, {}});
  Job unknown = job;
  unknown.nics.clear();
  const Plan made = plan(job).value(), natural = plan(unknown).value();
  EXPECT_EQ(natural.choice().algorithm, Algorithm::kMix);
  EXPECT_GT(need(job, natural.choice()), 1.1);
  EXPECT_LT(need(job, made.choice()), 1.02);
  EXPECT_LT(made.choice().transfer_s, 1.02 * made.bound_s);
}

// A mix by capacities has three of four nodes as leaves, and leaves NICs of the fourth idle.
TEST(RailPlans, take_other_leaves_where_most_nodes_are_degraded) {
  for (const auto& [gone, times] :
       {std::pair{std::vector<std::vector<size_t>>{{}, {0}, {1}, {2}}, 1.02},
        std::pair{std::vector<std::vector<size_t>>{{}, {0, 1}, {1}, {2}}, 1.05},
        std::pair{std::vector<std::vector<size_t>>{{}, {0}, {1}, {2}, {3}, {}}, 1.02}}) {
    const Job job = job_of(gone);
    Job unknown = job;
    unknown.nics.clear();
    const Plan made = plan(job).value(), natural = plan(unknown).value();
    const double before = need(job, natural.choice()) * natural.choice().transfer_s;
    EXPECT_LT(made.choice().transfer_s, times * made.bound_s);
    EXPECT_LT(made.choice().transfer_s, 0.95 * before);
    EXPECT_LT(need(job, made.choice()), made.choice().rails * 1.01);
  }
}

TEST(RailPlans, two_deeply_degraded_nodes_of_three_share_with_a_ring) {
  const Job job = job_of({{}, {0, 1}, {1, 2}});
  const Candidate mix = plan(job).value().candidates[size_t(Algorithm::kMix)];
  ASSERT_EQ(mix.parts.size(), 2u);
  EXPECT_TRUE(mix.parts[0].leaves.empty());
  EXPECT_NEAR(mix.transfer_s * job.bytes_per_second / double(job.bytes), 16.0 / 7, 0.15);
}

// Node 3 has rail 1 in common with node 2 and rails 2 and 3 with node 1; no limit of one node knows of both.
TEST(RailPlans, what_no_limit_knows_counts_when_it_is_chosen) {
  const Job job = job_of({{}, {0, 1}, {2, 3}, {0}});
  const Plan made = plan(job).value();
  EXPECT_LT(need(job, made.choice()), 1.01 * made.choice().rails);
  bool known = true;
  for (const Candidate& shape : shapes_by_rails(job)) {
    if (shape.algorithm != Algorithm::kMix || shape.rails >= RailLimits::kNoCommonRail) continue;
    known = known && need(job, shape) < 1.05 * shape.rails;
    if (made.choice().parts == shape.parts) {
      EXPECT_GT(made.choice().rails, 1.05 * shape.rails);
    }
  }
  EXPECT_FALSE(known) << "a case without this gap shows nothing";
}

TEST(RailPlans, many_nodes_are_planned_for_by_capacities) {
  for (const size_t nodes : {64, 65}) {
    std::vector<std::vector<size_t>> gone(nodes);
    gone[1] = {0}, gone[2] = {1};
    EXPECT_EQ(shapes_by_rails(job_of(gone)).empty(), nodes > 64) << nodes;
  }
}

TEST(RailPlans, nodes_of_one_capacity_may_have_lost_different_nics) {
  const Job job = job_of({{0}, {1}, {2}, {3}});
  ASSERT_FALSE(shapes_by_rails(job).empty());
  const Plan made = plan(job).value();
  EXPECT_GT(made.candidates.size(), size_t(Algorithm::kMix));
  EXPECT_LT(need(job, made.choice()), 1.02 * made.choice().rails);
}

TEST(RailPlans, are_right_schedules_and_the_same_again) {
  std::mt19937 random(23);
  size_t differ = 0;
  for (int round = 0; round < 150; ++round) {
    const size_t p = 3 + random() % 7, rails = random() % 2 == 0 ? 4 : 8;
    std::vector<std::vector<size_t>> gone(p);
    for (size_t i = 0, nodes = 2 + random() % (p - 1); i < nodes; ++i)
      gone[random() % p] = {random() % 4, 4 % rails + random() % (rails == 8 ? 4 : 1)};
    Job job = job_of(gone, rails);
    for (double& nic : job.nics)
      if (random() % 20 == 0) nic *= 0.5;
    for (size_t node = 0; node < p; ++node) {
      job.capacities[node] = 0;
      for (size_t rail = 0; rail < rails; ++rail)
        job.capacities[node] += job.nics[node * rails + rail] / double(rails);
    }
    job.outstanding = random() % 4 == 0 ? 1 : 8;
    const std::vector<Candidate> shapes = shapes_by_rails(job);
    EXPECT_LT(shapes.size(), 40u);
    differ += shapes.empty() ? 0 : 1;
    const Plan made = plan(job).value();
    expect_same(made, plan(job).value());
    for (const Candidate& candidate : made.candidates) {
      EXPECT_TRUE(std::isfinite(candidate.seconds)) << name(candidate.algorithm);
      const Result<void> result = check(build(job, candidate));
      EXPECT_TRUE(result.ok()) << name(candidate.algorithm) << ": " << result.error().message;
      if (candidate.rails == 0) continue;
      Traffic traffic(p);
      traffic.add_schedule(build(job, candidate));
      EXPECT_GE(candidate.rails, RailLimits(job.nics, p).over_ports(traffic) * 0.999)
          << name(candidate.algorithm);
    }
  }
  EXPECT_GT(differ, 100u);
}

TEST(RailPlans, the_reason_says_what_the_busiest_nic_needs) {
  const Job job = job_of({{0}, {1}, {2}, {3}});
  const Plan made = plan(job).value();
  ASSERT_GT(made.candidates[0].rails, 1.01);
  EXPECT_NE(made.why.find("lost different NICs"), std::string::npos) << made.why;
}

}  // namespace
}  // namespace r2ccl::collective
