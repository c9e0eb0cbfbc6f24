// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "r2ccl/collective/alone.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/lockstep.h"
#include "r2ccl/collective/predictor.h"

namespace r2ccl::collective {
namespace {

constexpr size_t kMostDirectLevels = 4;  // 2 · 4² connections: Lockstep::kMostFlows

/// Nodes of one capacity; the strongest first, as the owners add.
struct Level {
  double capacity = 0, share = 0, nodes = 0;
  uint16_t out = 0, in = 0;  // ports
};

std::vector<Level> levels_of(std::span<const double> sorted, std::span<const double> shares) {
  std::vector<Level> levels;
  for (size_t i = sorted.size(); i-- > 0;) {
    if (levels.empty() || levels.back().capacity != sorted[i]) levels.push_back({sorted[i], shares[i]});
    ++levels.back().nodes;
  }
  return levels;
}

}  // namespace

// The two chunks that a node owns in each segment go one after the other, as two segments would.
double alone_direct_seconds(const Job& job, uint32_t k) {
  const uint32_t segments = k * kBuilderDepth;
  const auto bytes = static_cast<double>(job.bytes);
  const double unit = bytes / job.bytes_per_second;
  std::vector<double> sorted = job.capacities;
  std::sort(sorted.begin(), sorted.end());
  sorted = levelled(std::move(sorted), kMostDirectLevels);
  const DirectShares shares = direct_shares(sorted);
  std::vector<Level> levels = levels_of(sorted, shares.shares);
  Lockstep lockstep(job.latency_s, job.back_s);
  for (Level& level : levels) {
    level.out = lockstep.add_port(level.capacity);
    level.in = lockstep.add_port(level.capacity);
  }
  for (size_t to = 0; to < levels.size(); ++to) {
    const Level& owner = levels[to];
    if (owner.share <= 0) continue;
    const double chunk = owner.share / segments;
    const auto others = [&](const Level& level) { return level.nodes - (&level == &owner ? 1 : 0); };
    const auto owners_of = [&](const Level& level) { return owner.nodes - (&level == &owner ? 1 : 0); };
    const auto start = [&](uint16_t from, double from_each, uint16_t into, double into_each) {
      Lockstep::Flow flow;
      flow.ports = {{from, from_each}, {into, into_each}};
      flow.weight = owner.share;
      flow.chunk = unit * chunk;
      flow.segments = segments;
      flow.credits = kDirectCredits;
      if (const double turns = messages_in_turn(job, chunk); turns > 1) flow.most = 1 / turns;
      return flow;
    };
    Lockstep::After complete;
    std::vector<uint16_t> raw;
    for (const Level& level : levels) {
      if (others(level) <= 0) continue;
      Lockstep::Flow flow = start(level.out, owners_of(level), owner.in, others(level));
      flow.added = 1;
      if (job.reduce_bytes_per_second > 0)
        flow.addition = others(level) * chunk * bytes / job.reduce_bytes_per_second;
      flow.adder = static_cast<uint16_t>(to);
      flow.receive_after[0] = complete;
      raw.push_back(lockstep.add_flow(flow));
      complete = {Lockstep::receive_lane(raw.back()), 0, 1, 0};
    }
    size_t next = 0;
    for (const Level& level : levels) {
      if (others(level) <= 0) continue;
      Lockstep::Flow flow = start(owner.out, others(level), level.in, owners_of(level));
      flow.send_after[0] = complete;
      flow.receive_after[0] = {Lockstep::send_lane(raw[next++]), 0, 1, 0};
      lockstep.add_flow(flow);
    }
  }
  return lockstep.run() + unit * (direct_shares(job.capacities).seconds - shares.seconds);
}

}  // namespace r2ccl::collective
