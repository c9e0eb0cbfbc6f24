// SPDX-License-Identifier: Apache-2.0
// No NIC is asked for more than its share of a schedule's traffic, as far as that can be had; both ends of a
// connection take the same rails.
#include "r2ccl/collective/rails.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "r2ccl/collective/planner.h"

namespace r2ccl::collective {
namespace {

std::vector<Flow> flows_of(const Schedule& schedule) {
  std::vector<Flow> flows;
  for (const Connection& connection : schedule.connections)
    flows.push_back({connection.from, connection.to, connection.weight});
  return flows;
}

/// What the busiest node needs at least, whatever the rails.
double bound_of(const std::vector<Flow>& flows, const std::vector<double>& nics, size_t rails) {
  double longest = 0;
  for (size_t node = 0; node < nics.size() / rails; ++node) {
    double out = 0, in = 0, all = 0;
    for (const Flow& flow : flows) {
      if (flow.from == node) out += flow.amount;
      if (flow.to == node) in += flow.amount;
    }
    for (size_t rail = 0; rail < rails; ++rail) all += nics[node * rails + rail];
    longest = std::max(longest, std::max(out, in) / all);
  }
  return longest;
}

/// The planner's schedule for nodes with these NICs, spread: the busiest NIC over the bound.
double over_bound(size_t nodes, size_t rails, const std::vector<double>& nics) {
  Job job;
  for (size_t node = 0; node < nodes; ++node) {
    double sum = 0;
    for (size_t rail = 0; rail < rails; ++rail) sum += nics[node * rails + rail];
    job.capacities.push_back(sum / double(rails));
  }
  job.bytes = 4 << 20;
  job.bytes_per_second = 1e9;
  job.outstanding = 8;
  job.beside = 4;
  const Schedule schedule = build(job, plan(job).value().choice());
  const auto shares = rail_shares(schedule, nics, rails);
  const auto flows = flows_of(schedule);
  return busiest_nic(flows, shares, nics, rails) / bound_of(flows, nics, rails);
}

TEST(Rails, a_lost_nic_leaves_all_others_with_even_work) {
  for (const size_t nodes : {3, 4, 6, 8, 16})
    for (const size_t lost : {1, 2}) {
      std::vector<double> nics(nodes * 4, 1.0);
      for (size_t i = 0; i < lost; ++i) nics[4 + i] = 0;
      EXPECT_LT(over_bound(nodes, 4, nics), 1.01) << nodes << " nodes, " << lost << " NICs lost";
    }
}

// What taking turns on all rails that both nodes have left would ask for.
TEST(Rails, turns_that_know_no_weights_ask_some_nics_for_more) {
  std::vector<double> nics(16, 1.0);
  nics[4] = 0;
  Job job;
  job.capacities = {1, 0.75, 1, 1};
  job.bytes = 4 << 20;
  job.bytes_per_second = 1e9;
  job.outstanding = 8;
  job.beside = 4;
  const Schedule schedule = build(job, plan(job).value().choice());
  const auto flows = flows_of(schedule);
  std::vector<RailShares> even;
  for (const Flow& flow : flows)
    even.push_back(flow.from == 1 || flow.to == 1 ? RailShares{0, kWhole / 3, kWhole / 3, kWhole / 3}
                                                  : even_shares(4));
  EXPECT_GT(busiest_nic(flows, even, nics, 4), 1.05 * bound_of(flows, nics, 4));
}

TEST(Rails, two_degraded_nodes_and_a_throttle) {
  std::vector<double> nics(16, 1.0);
  nics[4] = 0;
  nics[12] = nics[13] = 0.5;
  EXPECT_LT(over_bound(4, 4, nics), 1.01);
}

TEST(Rails, any_capacities_of_nics_are_met_within_a_few_percent) {
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    const size_t nodes = 3 + random() % 6, rails = 2 + random() % 7;
    std::vector<double> nics(nodes * rails, 1.0);
    for (size_t k = 0; k < 1 + random() % 3; ++k) nics[random() % nics.size()] = 0.25 * (1 + random() % 3);
    EXPECT_LT(over_bound(nodes, rails, nics), 1.08) << nodes << " nodes, " << rails << " rails, case " << i;
  }
}

TEST(Rails, nothing_goes_over_a_nic_that_is_lost) {
  std::vector<double> nics(12, 1.0);
  nics[0] = nics[7] = 0;
  const std::vector<Flow> flows{{0, 1, 1}, {1, 2, 1}, {2, 0, 1}};
  const auto shares = spread_flows(flows, nics, 4);
  EXPECT_EQ(shares[0][0], 0u);
  EXPECT_EQ(shares[0][3], 0u);
  EXPECT_EQ(shares[1][3], 0u);
  EXPECT_EQ(shares[2][0], 0u);
  for (const RailShares& of : shares) EXPECT_EQ(of[0] + of[1] + of[2] + of[3], kWhole);
}

TEST(Rails, two_nodes_without_a_common_rail_get_even_shares) {
  const std::vector<double> nics{0, 1, 1, 0, 1, 1};
  const std::vector<Flow> flows{{0, 1, 1}, {1, 2, 1}};
  const auto shares = spread_flows(flows, nics, 2);
  EXPECT_EQ(shares[0], even_shares(2));
  EXPECT_EQ(shares[1][0], kWhole);
}

TEST(Rails, alike_where_nics_are_alike_or_unknown) {
  Job job;
  job.capacities = {1, 1, 1};
  job.bytes = 1 << 20;
  const Schedule schedule = build(job, plan(job).value().choice());
  EXPECT_TRUE(rail_shares(schedule, std::vector<double>(12, 1.0), 4).empty());
  EXPECT_TRUE(rail_shares(schedule, {}, 4).empty());
  std::vector<double> nics(12, 1.0);
  nics[0] = 0.5;
  EXPECT_EQ(rail_shares(schedule, nics, 4).size(), schedule.connections.size());
  EXPECT_TRUE(rail_shares(schedule, nics, 3).empty());  // of another number of NICs
}

/// Bytes of each rail, of chunks of these sizes.
std::array<double, 4> cut(RailTurns& turns, const std::vector<size_t>& chunks, size_t most,
                          size_t* messages = nullptr) {
  std::array<double, 4> bytes{};
  for (const size_t chunk : chunks) {
    size_t posted = 0;
    while (posted < chunk) {
      const RailTurns::Message message = turns.next(chunk, posted, most);
      EXPECT_EQ(turns.next(chunk, posted, most).rail, message.rail);  // asked again, because it was refused
      EXPECT_GT(message.bytes, 0u);
      EXPECT_LE(message.bytes, most);
      if (posted + message.bytes < chunk) {
        EXPECT_EQ(message.bytes % 1024, 0u);
      }
      turns.took();
      bytes[message.rail] += double(message.bytes);
      posted += message.bytes;
      if (messages) ++*messages;
    }
    EXPECT_EQ(posted, chunk);
  }
  return bytes;
}

TEST(RailTurns, follow_the_shares_whatever_the_sizes) {
  RailTurns turns(4, 2);
  turns.set({kWhole / 2, 0, kWhole / 4, kWhole / 4});
  std::mt19937 random(3);
  std::vector<size_t> chunks(4000);
  for (size_t& chunk : chunks) chunk = 1 + random() % 300000;
  const auto bytes = cut(turns, chunks, 64 << 10);
  const double all = bytes[0] + bytes[1] + bytes[2] + bytes[3];
  EXPECT_NEAR(bytes[0] / all, 0.5, 0.002);
  EXPECT_EQ(bytes[1], 0);
  EXPECT_NEAR(bytes[2] / all, 0.25, 0.002);
  EXPECT_NEAR(bytes[3] / all, 0.25, 0.002);
}

TEST(RailTurns, spread_each_chunk_over_all_rails) {
  RailTurns turns(4, 1);
  for (int i = 0; i < 10; ++i) {
    size_t messages = 0;
    for (const double bytes : cut(turns, {128 << 10}, 64 << 10, &messages)) EXPECT_EQ(bytes, 32 << 10);
    EXPECT_EQ(messages, 4u);
  }
  turns.set({kWhole / 2, kWhole / 4, kWhole / 4, 0});
  const auto bytes = cut(turns, {128 << 10}, 64 << 10);
  EXPECT_EQ(bytes[0], 64 << 10);
  EXPECT_EQ(bytes[1], 32 << 10);
  EXPECT_EQ(bytes[2], 32 << 10);
}

TEST(RailTurns, small_chunks_are_one_message_each_in_turn) {
  RailTurns turns(4, 0);
  size_t messages = 0;
  for (const double bytes : cut(turns, std::vector<size_t>(8, 4096), 64 << 10, &messages))
    EXPECT_EQ(bytes, 8192);
  EXPECT_EQ(messages, 8u);
}

// A part that no rail gets would be missing in each chunk, until no rail were due for more than the least
// message.
TEST(RailTurns, even_shares_are_the_whole_for_any_number_of_rails) {
  for (size_t rails = 1; rails <= kMostNics; ++rails) {
    const RailShares shares = even_shares(rails);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0u), kWhole) << rails;
    EXPECT_LE(shares[0] - shares[rails - 1], 1u) << rails;
  }
}

TEST(RailTurns, messages_stay_as_large_however_much_has_been_sent) {
  constexpr size_t kChunk = 192 << 10;
  for (const size_t rails : {3, 5, 6, 7}) {
    RailTurns turns(rails, 0);
    const auto messages = [&](size_t chunks) {
      size_t count = 0;
      for (size_t i = 0; i < chunks; ++i)
        for (size_t posted = 0; posted < kChunk; ++count) {
          posted += turns.next(kChunk, posted, 64 << 10).bytes;
          turns.took();
        }
      return double(count) / double(chunks);
    };
    const double first = messages(100);
    messages(200'000);  // 37 GiB
    EXPECT_NEAR(messages(100), first, 0.1) << rails;
  }
}

TEST(RailTurns, both_ends_agree_when_shares_change) {
  RailTurns one(3, 1), other(3, 1);
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const RailShares uneven{0, kWhole / 3, kWhole - kWhole / 3};
    if (i % 100 == 0) {
      one.set(i % 200 == 0 ? even_shares(3) : uneven);
      other.set(i % 200 == 0 ? even_shares(3) : uneven);
    }
    other.set(i % 200 < 100 ? even_shares(3) : uneven);  // said again
    const size_t chunk = 1 + random() % 100000;
    for (size_t posted = 0; posted < chunk;) {
      const RailTurns::Message message = one.next(chunk, posted, 32 << 10);
      const RailTurns::Message at_other = other.next(chunk, posted, 32 << 10);
      ASSERT_EQ(message.rail, at_other.rail);
      ASSERT_EQ(message.bytes, at_other.bytes);
      one.took();
      other.took();
      posted += message.bytes;
    }
  }
}

/// Of the plan for three nodes, with the NICs that they have lost of four.
double need(const std::vector<std::vector<size_t>>& gone) {
  Job job{.capacities = {}, .bytes = 1 << 20};
  std::vector<double> nics(4 * gone.size(), 1.0);
  for (size_t node = 0; node < gone.size(); ++node) {
    job.capacities.push_back(1 - double(gone[node].size()) / 4);
    for (const size_t nic : gone[node]) nics[4 * node + nic] = 0;
  }
  return rails_need(build(job, {.algorithm = Algorithm::kFourStage, .leaves = 2}), nics, 4);
}

TEST(RailsNeed, an_owners_nics_are_idle_on_rails_that_no_leaf_has) {
  EXPECT_NEAR(need({{}, {0, 1}, {2, 3}}), 1, 0.01);
  EXPECT_NEAR(need({{}, {0, 1}, {2}}), 1, 0.01);
  EXPECT_NEAR(need({{}, {0, 1}, {1, 2}}), 4.0 / 3, 0.2);
  EXPECT_NEAR(need({{}, {0, 1}, {0, 1}}), 2, 0.01);
}

TEST(RailsNeed, is_one_where_nothing_is_known_and_infinite_without_a_common_rail) {
  Job job{.capacities = {1, 0.5, 0.5}, .bytes = 1 << 20};
  const Schedule schedule = build(job, {.algorithm = Algorithm::kRing});
  EXPECT_EQ(rails_need(schedule, {}, 4), 1);
  EXPECT_EQ(rails_need(schedule, std::vector<double>(12, 1.0), 4), 1);
  EXPECT_EQ(rails_need(schedule, std::vector<double>{1, 1, 1}, 1), 1);
  EXPECT_EQ(rails_need(schedule, std::vector<double>{1, 1, 1, 0, 0, 1}, 2), INFINITY);
}

}  // namespace
}  // namespace r2ccl::collective
