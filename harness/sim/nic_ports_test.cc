// SPDX-License-Identifier: Apache-2.0
// NICs as ports: against cases that can be worked out by hand, the limits that the planner counts by, and the
// host engine's executor on ports with rates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/sim/comparison.h"
#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/host/testing/timed_stream.h"
#include "r2ccl/collective/rail_load.h"

namespace r2bench {
namespace {

using namespace r2ccl::collective;  // NOLINT: the builders' names are what is tested
using r2ccl::collective::testing_support::Stream;

using Gone = std::vector<std::vector<size_t>>;  // NICs that each node has lost

/// 1 byte of data and nodes of 1 byte/s: seconds are the formulas' units.
Job job_of(const Gone& gone, size_t rails = 4) {
  Job job;
  job.nics.assign(rails * gone.size(), 1.0);
  for (size_t node = 0; node < gone.size(); ++node) {
    job.capacities.push_back(1 - double(gone[node].size()) / double(rails));
    for (const size_t nic : gone[node]) job.nics[rails * node + nic] = 0;
  }
  job.bytes = 1 << 30;
  job.bytes_per_second = double(job.bytes);
  job.latency_s = 0;
  return job;
}

Ports node_ports_of(Job job) {
  job.nics.clear();
  return ports_of(job);
}

std::vector<Candidate> candidates_of(const Job& job) { return plan(job).value().candidates; }

double seconds(const Job& job, const Schedule& schedule, const Ports& ports) {
  const auto result = simulate(schedule, ports, job.bytes);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? result.value().seconds : 0;
}

// Nodes 1 and 2 have two of four rails in common: half a node's capacity.
TEST(NicPorts, a_hop_carries_what_the_common_rails_do) {
  const Job job = job_of({{}, {0}, {1}, {}});
  const Schedule natural = ring_allreduce({0, 1, 2, 3}, 4), apart = ring_allreduce({0, 1, 3, 2}, 4);
  EXPECT_NEAR(seconds(job, natural, node_ports_of(job)), 1.5 / 0.75, 0.01);
  EXPECT_NEAR(seconds(job, natural, ports_of(job)), 1.5 / 0.5, 0.01);
  EXPECT_NEAR(seconds(job, apart, ports_of(job)), 1.5 / 0.75, 0.01);
}

TEST(NicPorts, a_slow_nic_carries_its_part) {
  Job job = job_of({{}, {}, {}}, 2);
  job.nics[2] = 0.5;  // node 1
  EXPECT_NEAR(seconds(job, ring_allreduce(natural_order(3), 8), ports_of(job)), 4.0 / 3 / 0.75, 0.02);
}

// Node 3 has lost NIC 1. It sends a quarter of the data to node 1, then the same to node 0, which then sends
// the other three quarters to node 1, and this sends them on to node 2. Over each NIC of node 1 comes half of
// the data, so of node 0's three quarters one goes over NIC 0, and two over NIC 1. A NIC carries half of the
// data a second: the two quarters take one each, and node 0's parts one and two, all of 1/2 s. Node 1 waits
// for both, and its parts are alike.
TEST(NicPorts, an_operation_has_completed_when_all_its_parts_have) {
  const Job job = job_of({{}, {}, {}, {1}}, 2);
  ScheduleBuilder builder("chain", Collective::kBroadcast, 4);
  const uint16_t quarter = builder.add_part(0.25, 1, 1), rest = builder.add_part(0.75, 1, 1),
                 group = builder.add_group("all");
  const uint32_t first = builder.connect(3, 1, quarter, group),
                 second = builder.connect(3, 0, quarter, group), third = builder.connect(0, 1, rest, group),
                 fourth = builder.connect(1, 2, rest, group);
  builder.recv(first, OpKind::kRecv, 0);
  builder.send(second, 0, builder.send(first, 0).same());
  builder.send(third, 0, builder.recv(second, OpKind::kRecv, 0).same());
  builder.send(fourth, 0, builder.recv(third, OpKind::kRecv, 0).same());
  builder.recv(fourth, OpKind::kRecv, 0);
  EXPECT_NEAR(seconds(job, builder.finish(), ports_of(job)), 0.5 + 0.5 + 1 + 0.75, 0.01);
}

TEST(NicPorts, where_all_nics_of_a_rail_are_alike_they_are_as_fast_as_one_port) {
  for (const Gone& gone : std::vector<Gone>{{{}, {}, {}, {}, {}}, {{1}, {1}, {1}, {1}, {1}}})
    for (const double latency : {0.0, 1e-3}) {
      Job job = job_of(gone);
      job.latency_s = latency;
      job.reduce_bytes_per_second = 0;
      for (const Candidate& candidate : candidates_of(job)) {
        const Schedule schedule = build(job, candidate);
        EXPECT_NEAR(seconds(job, schedule, ports_of(job)) / seconds(job, schedule, node_ports_of(job)), 1,
                    1e-3)
            << name(candidate.algorithm);
      }
    }
}

TEST(NicPorts, additions_are_those_of_whole_chunks) {
  const Job job = job_of({{}, {}, {}, {}});
  const Schedule ring = ring_allreduce(natural_order(4), 16);
  Ports nics = ports_of(job), nodes = node_ports_of(job);
  nics.reduce_bytes_per_second = nodes.reduce_bytes_per_second = job.bytes_per_second / 4;
  const double whole = seconds(job, ring, nodes);
  EXPECT_GT(whole, 3);
  EXPECT_NEAR(seconds(job, ring, nics) / whole, 1, 0.02);
}

TEST(NicPorts, what_cannot_be_simulated_is_an_error) {
  const auto error_of = [](const Job& job, const Ports& ports) {
    const auto result =
        simulate(ring_allreduce(natural_order(uint32_t(job.capacities.size())), 1), ports, 1 << 20);
    return result.ok() ? "" : result.error().message;
  };
  const auto says = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  const Job apart = job_of({{0, 1}, {2, 3}, {}});
  EXPECT_TRUE(says(error_of(apart, ports_of(apart)), "no common rail")) << error_of(apart, ports_of(apart));
  EXPECT_FALSE(have_common_rails(ring_allreduce(natural_order(3), 1), apart.nics));
  EXPECT_TRUE(have_common_rails(four_stage_allreduce({2}, {0, 1}, 1), apart.nics));
  const Job job = job_of({{}, {0}, {}});
  Ports ports = ports_of(job);
  ports.nics.pop_back();
  EXPECT_TRUE(says(error_of(job, ports), "the same number of NICs"));
  ports = ports_of(job);
  ports.sharing = Sharing::kExclusive;
  EXPECT_TRUE(says(error_of(job, ports), "shared by max-min"));
  ports = ports_of(job);
  ports.node_of_rank = {0, 0, 1};
  EXPECT_TRUE(says(error_of(job, ports), "each rank is a node"));
}

const std::vector<Gone> kDifferent = {{{}, {0}, {1}, {}, {}},      {{}, {0}, {1}, {2}},
                                      {{}, {0}, {1}, {2}, {}, {}}, {{}, {0, 1}, {1, 2}},
                                      {{0}, {}, {1, 2}, {}, {3}},  {{}, {0}, {}, {}, {1}, {}, {}, {}}};

// rail_load.h: no schedule is faster than its limits, however its traffic is divided.
TEST(NicPorts, no_schedule_is_faster_than_its_busiest_nic) {
  size_t compared = 0;
  for (const Gone& gone : kDifferent) {
    const Job job = job_of(gone);
    const RailLimits limits(job.nics, gone.size());
    for (const Candidate& candidate : candidates_of(job)) {
      if (!candidate.has_common_rails()) continue;
      const Schedule schedule = build(job, candidate);
      Traffic traffic(gone.size());
      traffic.add_schedule(schedule);
      ++compared;
      EXPECT_GE(seconds(job, schedule, ports_of(job)), limits.busiest(traffic) * 0.995)
          << name(candidate.algorithm) << " among " << gone.size();
    }
  }
  EXPECT_GT(compared, 35u);
}

// What the planner counts is what the chosen plan takes.
TEST(NicPorts, the_choice_takes_what_is_predicted) {
  for (const Gone& gone : kDifferent) {
    const Job job = job_of(gone);
    const auto compared = compare_allreduce(job).value();
    EXPECT_TRUE(compared.nics_counted);
    EXPECT_NEAR(compared.choice().simulated_s / compared.choice().formula_s, 1, 0.03)
        << compared.chosen << " among " << gone.size();
  }
}

/// By algorithm: the longest that an operation takes, over its prediction.
std::map<std::string, double> over_predictions(const std::vector<std::pair<Gone, size_t>>& cases,
                                               const std::vector<uint64_t>& mibs) {
  std::map<std::string, double> most;
  for (const auto& [gone, rails] : cases)
    for (const uint64_t mib : mibs) {
      Job job = job_of(gone, rails);
      job.bytes = mib << 20;
      job.bytes_per_second = 50e9;
      job.latency_s = 5e-6;
      const auto compared = compare_allreduce(job).value();
      double best = INFINITY;
      for (const ComparedAlgorithm& algorithm : compared.algorithms) {
        if (!std::isfinite(algorithm.simulated_s)) continue;
        if (algorithm.eligible) best = std::min(best, algorithm.simulated_s);
        double& of = most[algorithm.name];
        of = std::max(of, algorithm.simulated_s / algorithm.formula_s);
      }
      EXPECT_LT(compared.choice().simulated_s, 1.02 * best)
          << compared.chosen << " among " << gone.size() << ", " << mib << " MiB";
      EXPECT_LT(compared.choice().simulated_s, 1.02 * compared.choice().formula_s)
          << compared.chosen << " among " << gone.size() << ", " << mib << " MiB";
    }
  return most;
}

Gone lost(size_t nodes, const std::map<size_t, std::vector<size_t>>& of) {
  Gone gone(nodes);
  for (const auto& [node, nics] : of) gone[node] = nics;
  return gone;
}

// What the pages say of predictions that count NICs.
TEST(NicPorts, single_operations_take_about_what_is_predicted) {
  const std::vector<std::pair<Gone, size_t>> cases = {
      {lost(4, {{1, {0}}, {2, {1}}}), 4},           {lost(4, {{1, {0}}, {2, {1}}, {3, {2}}}), 4},
      {lost(5, {{1, {0}}, {2, {1}}}), 4},           {lost(6, {{1, {0}}, {2, {1}}, {3, {2}}}), 4},
      {lost(3, {{1, {0, 1}}, {2, {1, 2}}}), 4},     {lost(5, {{0, {0}}, {2, {1, 2}}, {4, {3}}}), 4},
      {lost(8, {{1, {0}}, {4, {1}}}), 4},           {lost(8, {{1, {0}}, {2, {1}}}), 4},
      {lost(8, {{1, {0}}, {2, {1}}}), 8},           {lost(16, {{1, {0}}, {2, {1}}}), 4},
      {lost(16, {{1, {0}}, {5, {1}}, {9, {2}}}), 8}};
  const auto most = over_predictions(cases, {4, 64, 1024});
  for (const auto& [name, times] : most)
    std::printf("%-16s takes up to %.3f × its prediction\n", name.c_str(), times);
  for (const auto& [name, times] : std::map<std::string, double>{{"ring", 1.01},
                                                                 {"unequal_ring", 1.02},
                                                                 {"double_tree", 1.11},
                                                                 {"r2ccl_allreduce", 1.87},
                                                                 {"four_stage", 1.07},
                                                                 {"mix", 1.55},
                                                                 {"direct", 1.01}})
    EXPECT_NEAR(most.at(name), times, 0.01) << name;
}

// A mix by capacities has all three degraded nodes as leaves, and leaves NICs of node 0 idle.
TEST(NicPorts, a_choice_that_counts_nics_is_faster_than_one_by_capacities) {
  Job job = job_of({{}, {0}, {1}, {2}});
  job.direct = false;  // as in jobs
  job.outstanding = 8;
  job.beside = 4;
  const auto compared = compare_allreduce(job).value();
  ASSERT_TRUE(compared.by_capacities);
  EXPECT_LT(compared.choice().simulated_s, 0.95 * compared.by_capacities->simulated_s);
  const auto same = compare_allreduce(job_of({{}, {0}, {0}, {}})).value();
  EXPECT_FALSE(same.by_capacities);
  EXPECT_FALSE(same.nics_counted);
}

TEST(NicPorts, plans_without_a_common_rail_have_no_time) {
  const auto compared = compare_allreduce(job_of({{}, {0, 1}, {2, 3}, {}})).value();
  EXPECT_TRUE(std::isfinite(compared.choice().simulated_s));
  const auto of = [&](Algorithm algorithm) { return compared.algorithms[size_t(algorithm)]; };
  EXPECT_TRUE(std::isinf(of(Algorithm::kDoubleTree).simulated_s));
  EXPECT_TRUE(std::isinf(of(Algorithm::kDoubleTree).formula_s));
  EXPECT_TRUE(std::isfinite(of(Algorithm::kRing).simulated_s));  // another order
  const auto none = compare_allreduce(job_of({{0, 1}, {2, 3}})).value();
  EXPECT_FALSE(none.nics_counted);
  EXPECT_TRUE(std::isinf(none.choice().simulated_s));
}

// The executor sends messages, whose number is small for a small chunk, and knows what has arrived a latency
// later: it takes longer, where nodes send to each other there and back.
TEST(NicPorts, the_executor_takes_about_as_long) {
  for (const Gone& gone : {kDifferent[0], kDifferent[1]}) {
    Job job = job_of(gone);
    job.bytes = 32 << 20;
    job.bytes_per_second = 1e9;
    job.latency_s = 1e-6;
    job.most_segments = 4;
    for (const Candidate& candidate : candidates_of(job)) {
      const Schedule schedule = build(job, candidate);
      const Stream stream{.capacities = job.capacities,
                          .bytes = job.bytes,
                          .operations = 1,
                          .open = 1,
                          .rate = job.bytes_per_second,
                          .latency = job.latency_s,
                          .message_bytes = 64 << 10,
                          .slots = 1,
                          .rails = 4,
                          .nics = job.nics};
      const double executor = testing_support::run(stream, schedule),
                   here = seconds(job, schedule, ports_of(job));
      const bool rings =
          candidate.algorithm == Algorithm::kRing || candidate.algorithm == Algorithm::kR2cclAllReduce;
      std::printf("%-16s among %zu: simulated %.4f s, executor %.4f s\n", name(candidate.algorithm),
                  gone.size(), here, executor);
      EXPECT_GT(executor, 0.99 * here) << name(candidate.algorithm) << " among " << gone.size();
      EXPECT_LT(executor, (rings ? 1.03 : 1.4) * here)
          << name(candidate.algorithm) << " among " << gone.size();
    }
  }
}

}  // namespace
}  // namespace r2bench
