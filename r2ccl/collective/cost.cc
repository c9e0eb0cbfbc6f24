// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace r2ccl::collective {
namespace {

double least(std::span<const double> values) { return *std::min_element(values.begin(), values.end()); }
double sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// f falls; the argument in low … high at which it is `value`.
template <typename F>
double solve_falling(F f, double value, double low, double high) {
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) > value ? low : high) = middle;
  }
  return high;
}

}  // namespace

std::vector<double> levelled(std::vector<double> sorted, size_t most) {
  struct Level {
    size_t first;
    double value;
  };
  std::vector<Level> levels;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (levels.empty() || sorted[i] > levels.back().value * (1 + kSameLevel))
      levels.push_back({i, sorted[i]});
  }
  while (levels.size() > most) {
    size_t nearest = 1;
    for (size_t i = 2; i < levels.size(); ++i) {
      const auto cost = [&](size_t at) {
        const size_t end = at + 1 < levels.size() ? levels[at + 1].first : sorted.size();
        return (levels[at].value - levels[at - 1].value) * static_cast<double>(end - levels[at].first);
      };
      if (cost(i) < cost(nearest)) nearest = i;
    }
    levels.erase(levels.begin() + static_cast<long>(nearest));
  }
  for (size_t i = 0, level = 0; i < sorted.size(); ++i) {
    if (level + 1 < levels.size() && levels[level + 1].first == i) ++level;
    sorted[i] = levels[level].value;
  }
  return sorted;
}

double ring_volume(size_t ranks) {
  return ranks < 2 ? 0 : 2.0 * (static_cast<double>(ranks) - 1) / static_cast<double>(ranks);
}

double allreduce_bound(std::span<const double> capacities) {
  if (capacities.size() < 2) return 0;
  return std::max(1 / least(capacities), 2 * (static_cast<double>(capacities.size()) - 1) / sum(capacities));
}

Ranks by_capacity(std::span<const double> capacities) {
  Ranks order = natural_order(static_cast<uint32_t>(capacities.size()));
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return capacities[a] < capacities[b]; });
  return order;
}

// With u = equal/p a node carries 2 − 2u − extra, which is to be at most c·T. The strongest have no extra: u
// = 1 − c_max·T/2. The shares' sum falls with T.
UnequalRingShares unequal_ring(std::span<const double> capacities) {
  const size_t p = capacities.size();
  const double most = *std::max_element(capacities.begin(), capacities.end());
  const auto shares = [&](double time) {
    UnequalRing result;
    const double each = std::max(0.0, 1 - time * most / 2);
    result.equal = each * static_cast<double>(p);
    for (const double capacity : capacities) {
      const double extra = 2 - 2 * each - capacity * time;
      result.extra.push_back(extra > 1e-9 ? extra : 0);
    }
    return result;
  };
  const auto total = [&](double time) {
    const UnequalRing result = shares(time);
    return result.equal + sum(result.extra);
  };
  UnequalRingShares best;
  best.seconds = std::max(solve_falling(total, 1, 0, 2 / least(capacities)), 1 / least(capacities));
  best.shares = shares(best.seconds);
  // What is left where a node's own data is the limit goes around the ring.
  best.shares.equal = std::max(0.0, 1 - sum(best.shares.extra));
  if (best.shares.equal < 1e-9) best.shares.equal = 0;
  double whole = best.shares.equal + sum(best.shares.extra);
  for (double& extra : best.shares.extra) extra /= whole;
  best.shares.equal /= whole;
  for (size_t i = 0; i < p; ++i) {
    const double load = 2 - 2 * best.shares.equal / static_cast<double>(p) - best.shares.extra[i];
    best.seconds = std::max(best.seconds, load / capacities[i]);
  }
  return best;
}

UnequalRing UnequalRingShares::in_order(const Ranks& order) const {
  UnequalRing result = shares;
  for (size_t i = 0; i < order.size(); ++i) result.extra[i] = shares.extra[order[i]];
  return result;
}

double mix_time(std::span<const double> capacities, std::span<const MixPart> parts) {
  std::vector<double> load(capacities.size(), 0);
  for (const MixPart& part : parts) {
    const auto owners = static_cast<double>(part.owners.size()),
               leaves = static_cast<double>(part.leaves.size());
    for (const uint32_t rank : part.leaves) load[rank] += part.fraction;
    for (const uint32_t rank : part.owners) {
      load[rank] +=
          part.fraction * (part.leaves.empty() ? ring_volume(part.owners.size()) : 2 + (leaves - 2) / owners);
    }
  }
  double time = 0;
  for (size_t i = 0; i < load.size(); ++i) time = std::max(time, load[i] / capacities[i]);
  return time;
}

// Four-stage with the s weakest as leaves puts 1 on a leaf and h(s) = 2 + (s−2)/(p−s) on an owner, 2(p−1) in
// all, as a ring (s = 0) does. Fractions z(s) of the data give neighbours i, i + 1 in the order of capacity
// loads that differ by z(i)·(h(i) − 1), so z(i) = T(c(i+1) − c(i))(p−i)/(p−2) gives every node the load T·c.
// With T = 2(p−1)/Σc they leave 1 − Σz ≥ 0 to the ring exactly if T·c(1) ≥ 1; else a node's own data is the
// limit, T = 1/c(1), and the strongest are used only as far as that needs.
MixFractions mix_fractions(std::span<const double> capacities) {
  const size_t p = capacities.size();
  const Ranks order = by_capacity(capacities);
  MixFractions result;
  const auto ring = [&](double fraction) {
    result.parts.push_back({fraction, natural_order(static_cast<uint32_t>(p)), {}});
  };
  std::vector<double> c(p);
  for (size_t i = 0; i < p; ++i) c[i] = capacities[order[i]];
  c = levelled(std::move(c), kMostLevels);
  if (p < 3) {
    ring(1);
    result.seconds = mix_time(capacities, result.parts);
    return result;
  }
  const double n = static_cast<double>(p), time = allreduce_bound(c);
  if (const double enough = 2 * (n - 1) / time; sum(c) > enough * (1 + 1e-12)) {
    const double cap = solve_falling(
        [&](double limit) {
          double used = 0;
          for (const double capacity : c) used += std::min(capacity, -limit);
          return used;
        },
        enough, -c.back(), -c.front());
    for (double& capacity : c) capacity = std::min(capacity, -cap);
  }
  double left = 1;
  std::vector<MixPart> leafy;
  for (size_t s = 1; s < p; ++s) {
    const double fraction = std::min(left, time * (c[s] - c[s - 1]) * (n - static_cast<double>(s)) / (n - 2));
    if (fraction < 1e-6) continue;
    left -= fraction;
    leafy.push_back({fraction, Ranks(order.begin() + static_cast<long>(s), order.end()),
                     Ranks(order.begin(), order.begin() + static_cast<long>(s))});
  }
  if (left > 1e-6 || leafy.empty()) {
    ring(left);
  } else {
    leafy.back().fraction += left;
  }
  for (MixPart& part : leafy) {
    std::sort(part.owners.begin(), part.owners.end());
    result.parts.push_back(std::move(part));
  }
  result.seconds = mix_time(capacities, result.parts);
  return result;
}

double four_stage_time(std::span<const double> capacities, size_t leaves) {
  const Ranks order = by_capacity(capacities);
  const MixPart only{1, Ranks(order.begin() + static_cast<long>(leaves), order.end()),
                     Ranks(order.begin(), order.begin() + static_cast<long>(leaves))};
  return mix_time(capacities, {&only, 1});
}

// With T = 2(p−1)/Σc the shares' sum is 1. If a node's own data is the limit, T = 1/c(1), it is more, and all
// are less loaded.
DirectShares direct_shares(std::span<const double> capacities) {
  constexpr double kLeast = 1e-3;  // of a node's part if all were alike: less is not worth its connections
  const auto p = static_cast<double>(capacities.size());
  const double time = allreduce_bound(capacities);
  DirectShares result;
  for (const double capacity : capacities) {
    const double share = p > 2 ? (capacity * time - 1) / (p - 2) : 1;
    result.shares.push_back(share * p > kLeast ? share : 0);
  }
  const double all = sum(result.shares);
  for (size_t i = 0; i < capacities.size(); ++i) {
    result.shares[i] /= all;
    result.seconds = std::max(result.seconds, (1 + (p - 2) * result.shares[i]) / capacities[i]);
  }
  return result;
}

R2cclRings r2ccl_rings(std::span<const double> capacities, uint32_t pieces) {
  const size_t p = capacities.size();
  const Ranks order = by_capacity(capacities);
  std::vector<double> c(p);
  for (size_t i = 0; i < p; ++i) c[i] = capacities[order[i]];
  c = levelled(std::move(c), kMostLevels);
  R2cclRings result;
  double rate = 0, below = 0;
  for (size_t i = 0; i < p; ++i) {
    if (c[i] <= below || p - i < 2) continue;
    PartialRing ring;
    ring.fraction = (c[i] - below) / ring_volume(p - i);
    rate += ring.fraction;
    below = c[i];
    ring.order.assign(order.begin() + static_cast<long>(i), order.end());
    // The strongest are the bridges: they have the tails' sends and receives of all ranks outside.
    std::reverse(ring.order.begin(), ring.order.end());
    if (ring.order.size() > 2) std::rotate(ring.order.begin() + 1, ring.order.begin() + 2, ring.order.end());
    result.rings.push_back(std::move(ring));
  }
  for (PartialRing& ring : result.rings) ring.fraction /= rate;
  result.stage1 = 1 / rate;
  std::vector<double> in(p, 0), out(p, 0);
  for (size_t k = 1; k < result.rings.size(); ++k) {
    const PartialRing& ring = result.rings[k];
    const size_t outside = p - ring.order.size();
    const double share = ring.fraction;
    for (size_t i = 0; i < outside; ++i) in[order[i]] += share, out[order[i]] += share;
    for (size_t i = 0; i < ring.order.size(); ++i) {
      in[ring.order[i]] += i == 0 ? share * static_cast<double>(outside) : share;
      out[ring.order[i]] += i + 1 == ring.order.size() ? share * static_cast<double>(outside) : share;
    }
    const double piece = share / tail_pieces(static_cast<uint32_t>(ring.order.size()), pieces);
    double hops = 1 / capacities[order[0]];
    for (size_t i = 0; i + 1 < ring.order.size(); ++i) {
      hops += 1 / std::min(capacities[ring.order[i]], capacities[ring.order[i + 1]]);
    }
    result.fill = std::max(result.fill, piece * hops);
  }
  for (size_t i = 0; i < p; ++i) result.tail = std::max(result.tail, std::max(in[i], out[i]) / capacities[i]);
  return result;
}

double upstream_time(uint32_t nodes, uint32_t per_node, double lost, uint32_t pieces) {
  const uint32_t ranks = nodes * per_node;
  return std::max(ring_volume(ranks), ring_volume(ranks - per_node)) + (1 + 1.0 / pieces) * lost / (1 - lost);
}

double busiest_port(const Schedule& schedule, std::span<const double> capacities) {
  std::vector<double> in(schedule.ranks, 0), out(schedule.ranks, 0);
  for (const Connection& connection : schedule.connections) {
    out[connection.from] += connection.weight;
    in[connection.to] += connection.weight;
  }
  double most = 0;
  for (uint32_t rank = 0; rank < schedule.ranks; ++rank)
    most = std::max(most, std::max(in[rank], out[rank]) / capacities[rank]);
  return most;
}

double other_bound(Collective collective, std::span<const double> capacities) {
  const auto p = static_cast<double>(capacities.size());
  switch (collective) {
    case Collective::kAllReduce:
      return allreduce_bound(capacities);
    case Collective::kBroadcast:
      return 1 / least(capacities);
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      return (p - 1) / p / least(capacities);
    case Collective::kAllToAll:
      return (p - 1) / p / p / least(capacities);
  }
  return 0;
}

}  // namespace r2ccl::collective
