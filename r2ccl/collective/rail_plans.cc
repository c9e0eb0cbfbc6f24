// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/rail_plans.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/rail_load.h"

namespace r2ccl::collective {
namespace {

/// Leaves that are tried: all sets of so many degraded nodes; of more nodes only some.
constexpr size_t kMostDegraded = 4;
/// Mixes of two parts that are predicted, and by how much their busiest NIC may exceed the least.
constexpr size_t kMostPairs = 6;
constexpr double kNearLeast = 1.03;
/// From so many nodes on one slow hop holds up a tree as if all were: chunks of more operations wait behind
/// it.
constexpr size_t kDeepTree = 16;
/// Candidate::allowance of what is not the natural plan.
constexpr double kAllowance = 1.03;

class Shapes {
 public:
  explicit Shapes(const Job& job)
      : job_(job),
        c_(job.capacities),
        p_(c_.size()),
        limits_(job.nics, p_),
        natural_(natural_order(static_cast<uint32_t>(p_))),
        bridged_(bridged(natural_)) {}

  std::vector<Candidate> all() {
    rings();
    Candidate tree;
    tree.algorithm = Algorithm::kDoubleTree;
    const Schedule trees = double_tree_allreduce(static_cast<uint32_t>(p_), 1);
    tree.rails = over_ports([&](Traffic& traffic) { traffic.add_schedule(trees); });
    const double hops = 2 * std::floor(std::log2(static_cast<double>(p_)));
    const double lost = p_ < kDeepTree ? limits_.lost_on_the_way(trees) / hops : limits_.lost_on_a_hop(trees);
    tree.narrow = 1 + lost / limits_.slowest_node();
    shapes_.push_back(tree);
    Candidate r2ccl;
    r2ccl.algorithm = Algorithm::kR2cclAllReduce;
    r2ccl.rails = over_ports([&](Traffic& traffic) { traffic.add_r2ccl(r2ccl_rings(c_, 1).rings); });
    shapes_.push_back(r2ccl);
    if (job_.direct) {
      Candidate direct;
      direct.algorithm = Algorithm::kDirect;
      direct.rails = over_ports(
          [&](Traffic& traffic) { traffic.add_schedule(direct_allreduce(direct_shares(c_).shares, 1)); });
      shapes_.push_back(direct);
    }
    by_capacities();
    // What an operation that is alone takes is known of leaves that are the weakest nodes only (alone.h).
    if (job_.outstanding > 1 && p_ > 2) pairs();
    return std::move(shapes_);
  }

 private:
  /// These nodes in an order in which neighbours have as many rails in common as can be.
  Ranks bridged(const Ranks& nodes) const {
    std::vector<uint64_t> rails;
    for (const uint32_t node : nodes) rails.push_back(limits_.working()[node]);
    Ranks order = bridge_order(rails);
    for (uint32_t& node : order) node = nodes[node];
    return order;
  }
  template <typename F>
  double over_ports(F add) const {
    Traffic traffic(p_);
    add(traffic);
    return limits_.over_ports(traffic);
  }
  void rings() {
    std::vector<Ranks> orders{natural_};
    if (bridged_ != natural_) orders.push_back(bridged_);
    for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kUnequalRing})
      for (const Ranks& order : orders) {
        Candidate shape;
        shape.algorithm = algorithm;
        shape.order = order;
        shape.allowance = order == natural_ ? 1 : kAllowance;
        shape.rails = over_ports([&](Traffic& traffic) {
          if (algorithm == Algorithm::kRing) return traffic.add_ring(order, 1);
          traffic.add_unequal_ring(order, unequal_ring(c_).in_order(order));
        });
        shapes_.push_back(std::move(shape));
      }
  }
  void add(Algorithm algorithm, std::vector<MixPart> parts, double allowance) {
    Candidate shape;
    shape.algorithm = algorithm;
    Traffic traffic(p_);
    for (const MixPart& part : parts) traffic.add_part(part);
    shape.rails = limits_.over_ports(traffic);
    least_ = std::min(least_, limits_.busiest(traffic));
    for (const MixPart& part : parts)
      shape.leaves = std::max(shape.leaves, static_cast<uint32_t>(part.leaves.size()));
    shape.parts = std::move(parts);
    shape.allowance = allowance;
    shapes_.push_back(std::move(shape));
  }
  void add_with_orders(Algorithm algorithm, std::vector<MixPart> parts) {
    std::vector<MixPart> others = parts;
    for (MixPart& part : others) part.owners = bridged(part.owners);
    const bool same = std::equal(parts.begin(), parts.end(), others.begin(),
                                 [](const MixPart& a, const MixPart& b) { return a.owners == b.owners; });
    add(algorithm, std::move(parts), 1);
    if (!same) add(algorithm, std::move(others), kAllowance);
  }
  /// The plans by capacities alone, with the nodes in this order or another one.
  void by_capacities() {
    const Ranks order = by_capacity(c_);
    for (size_t leaves = 1; leaves < p_; ++leaves) {
      const bool alike = leaves == 1 && c_[order.front()] >= c_[order.back()];
      if (!(c_[order[leaves]] > c_[order[leaves - 1]]) && !alike) continue;
      Ranks owners(order.begin() + static_cast<long>(leaves), order.end());
      std::sort(owners.begin(), owners.end());
      add_with_orders(
          Algorithm::kFourStage,
          {{1, std::move(owners), Ranks(order.begin(), order.begin() + static_cast<long>(leaves))}});
    }
    add_with_orders(Algorithm::kMix, mix_fractions(c_).parts);
  }

  /// Sets of degraded nodes that may be leaves.
  std::vector<Ranks> leaf_sets() const {
    const double most = *std::max_element(c_.begin(), c_.end());
    Ranks degraded;
    for (const uint32_t node : bridged_)
      if (c_[node] < most * (1 - kSameLevel)) degraded.push_back(node);
    std::vector<Ranks> sets;
    const size_t count = degraded.size();
    if (count <= kMostDegraded) {
      for (uint32_t set = 1; set < 1u << count; ++set) {
        Ranks leaves;
        for (size_t i = 0; i < count; ++i)
          if (set >> i & 1) leaves.push_back(degraded[i]);
        if (leaves.size() < p_) sets.push_back(std::move(leaves));
      }
      return sets;
    }
    // The weakest; and one half and the other, in the order of the ring and in that of capacity.
    std::vector<double> capacities;
    for (const uint32_t node : degraded) capacities.push_back(c_[node]);
    Ranks weakest;
    for (const uint32_t at : by_capacity(capacities)) weakest.push_back(degraded[at]);
    for (const Ranks& order : {degraded, weakest}) {
      Ranks half[4];
      for (size_t i = 0; i < count; ++i) {
        half[i % 2].push_back(order[i]);
        half[i < count / 2 ? 2 : 3].push_back(order[i]);
      }
      sets.insert(sets.end(), std::begin(half), std::end(half));
    }
    if (count < p_) sets.push_back(weakest);
    return sets;
  }

  struct Pair {
    size_t first, second;
    double fraction;  ///< of the first
    double time;
  };
  /// The fraction of a line of limits at which the greatest is least. Nothing if that is not below `enough`.
  static std::optional<Pair> best_fraction(const std::vector<double>& first,
                                           const std::vector<double>& second, double enough) {
    constexpr int kRounds = 24;
    const auto greatest = [&](double fraction) {
      size_t at = 0;
      double most = -1;
      for (size_t i = 0; i < first.size(); ++i) {
        const double time = fraction * first[i] + (1 - fraction) * second[i];
        if (time > most) most = time, at = i;
      }
      return std::pair{at, most};
    };
    const auto slope = [&](size_t i) { return first[i] - second[i]; };
    auto [low, low_time] = greatest(0);
    auto [high, high_time] = greatest(1);
    Pair best{0, 0, 0, low_time};
    if (high_time < best.time) best.fraction = 1, best.time = high_time;
    // Between a limit that falls with the fraction and one that rises is what is sought.
    for (int round = 0; round < kRounds && slope(low) < 0 && slope(high) > 0; ++round) {
      const double fraction = (second[low] - second[high]) / (slope(high) - slope(low));
      const double least = second[low] + fraction * slope(low);
      if (least > enough) return std::nullopt;
      const auto [at, time] = greatest(fraction);
      if (time < best.time) best.fraction = fraction, best.time = time;
      if (time <= least * (1 + 1e-9) || slope(at) == 0) break;
      (slope(at) < 0 ? low : high) = at;
    }
    if (best.time > enough) return std::nullopt;
    return best;
  }

  /// Four-stage with each set of leaves, and any two of these, or one and a ring, on the best fractions.
  void pairs() {
    std::vector<MixPart> parts{{1, bridged_, {}}};
    for (Ranks& leaves : leaf_sets()) {
      Ranks owners;
      for (const uint32_t node : natural_)
        if (std::find(leaves.begin(), leaves.end(), node) == leaves.end()) owners.push_back(node);
      parts.push_back({1, bridged(owners), std::move(leaves)});
    }
    std::vector<std::vector<double>> times;
    std::vector<Pair> found;
    double enough = least_;
    for (const MixPart& part : parts) {
      Traffic traffic(p_);
      traffic.add_part(part);
      times.push_back(limits_.times(traffic));
      const double alone = *std::max_element(times.back().begin(), times.back().end());
      enough = std::min(enough, alone);
      if (!part.leaves.empty()) found.push_back({times.size() - 1, times.size() - 1, 1, alone});
    }
    for (size_t first = 0; first < parts.size(); ++first)
      for (size_t second = first + 1; second < parts.size(); ++second)
        if (auto pair = best_fraction(times[first], times[second], enough * kNearLeast)) {
          constexpr double kLeastFraction = 0.02;
          if (pair->fraction < kLeastFraction || pair->fraction > 1 - kLeastFraction) continue;
          found.push_back({first, second, pair->fraction, pair->time});
          enough = std::min(enough, pair->time);
        }
    std::stable_sort(found.begin(), found.end(),
                     [](const Pair& a, const Pair& b) { return a.time < b.time; });
    size_t taken = 0;
    for (const Pair& pair : found) {
      if (pair.time > enough * kNearLeast || taken == kMostPairs) break;
      ++taken;
      if (pair.first == pair.second) {
        add(Algorithm::kFourStage, {parts[pair.first]}, kAllowance);
        continue;
      }
      MixPart one = parts[pair.first], other = parts[pair.second];
      one.fraction = pair.fraction;
      other.fraction = 1 - pair.fraction;
      add(Algorithm::kMix, {std::move(one), std::move(other)}, kAllowance);
    }
  }

  const Job& job_;
  const std::vector<double>& c_;
  const size_t p_;
  const RailLimits limits_;
  const Ranks natural_, bridged_;
  std::vector<Candidate> shapes_;
  double least_ = INFINITY;  // of the busiest NIC by any four-stage or mix so far
};

}  // namespace

std::vector<Candidate> shapes_by_rails(const Job& job) {
  if (job.capacities.size() > kMostNodesOfShapes || !rails_differ(job.nics, job.capacities.size())) return {};
  return Shapes(job).all();
}

}  // namespace r2ccl::collective
