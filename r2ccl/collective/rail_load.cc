// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/rail_load.h"

#include <algorithm>
#include <map>
#include <set>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/cost.h"

namespace r2ccl::collective {

void Traffic::add_ring(const Ranks& order, double fraction) {
  if (order.size() < 2) return;
  for (size_t i = 0; i < order.size(); ++i)
    add(order[i], order[(i + 1) % order.size()], fraction * ring_volume(order.size()));
}

void Traffic::add_part(const MixPart& part) {
  add_ring(part.owners, part.fraction);
  const double each = part.fraction / static_cast<double>(part.owners.size());
  for (const uint32_t leaf : part.leaves)
    for (const uint32_t owner : part.owners) {
      add(leaf, owner, each);
      add(owner, leaf, each);
    }
}

void Traffic::add_unequal_ring(const Ranks& order, const UnequalRing& shares) {
  add_ring(order, shares.equal);
  const size_t p = order.size();
  for (size_t last = 0; last < p; ++last) {
    const double extra = shares.extra[last];
    if (extra <= 0) continue;
    // Sums up to `last` pass all edges but the one behind it, results all but the one before it.
    for (size_t i = 0; i < p; ++i)
      add(order[i], order[(i + 1) % p], extra * ((i == last ? 0 : 1) + ((i + 1) % p == last ? 0 : 1)));
  }
}

void Traffic::add_r2ccl(std::span<const PartialRing> rings) {
  for (size_t k = 0; k < rings.size(); ++k) {
    const auto& [fraction, order] = rings[k];
    add_ring(order, fraction);
    if (k == 0) continue;
    for (size_t i = 0; i + 1 < order.size(); ++i) add(order[i], order[i + 1], fraction);
    for (uint32_t node = 0; node < nodes_; ++node) {
      if (std::find(order.begin(), order.end(), node) != order.end()) continue;
      add(node, order.front(), fraction);
      add(order.back(), node, fraction);
    }
  }
}

void Traffic::add_schedule(const Schedule& schedule) {
  for (const Connection& connection : schedule.connections)
    add(connection.from, connection.to, connection.weight);
}

bool rails_differ(std::span<const double> nics, size_t nodes) {
  if (nodes == 0 || nics.size() % nodes != 0 || nics.size() < 2 * nodes) return false;
  const size_t rails = nics.size() / nodes;
  const double most = *std::max_element(nics.begin(), nics.end());
  const auto less = [&](size_t nic) { return differ(code_of(nics[nic]), code_of(most)); };
  std::set<uint32_t> lost;
  for (size_t node = 0; node < nodes; ++node) {
    uint32_t of_node = 0;
    for (size_t rail = 0; rail < rails; ++rail) of_node |= uint32_t{less(node * rails + rail)} << rail;
    if (of_node != 0) lost.insert(of_node);
  }
  return lost.size() > 1;
}

RailLimits::RailLimits(std::span<const double> nics, size_t nodes) {
  constexpr size_t kMostSets = 4;  // of a node, whose unions are limits, too
  const size_t rails = nics.size() / nodes;
  const double whole = static_cast<double>(rails);
  const auto weight = [&](size_t node, uint64_t set) {
    double sum = 0;
    for (size_t rail = 0; rail < rails; ++rail)
      if (set >> rail & 1) sum += nics[node * rails + rail] / whole;
    return sum;
  };
  for (size_t node = 0; node < nodes; ++node) {
    uint64_t works = 0;
    for (size_t rail = 0; rail < rails; ++rail) works |= uint64_t{nics[node * rails + rail] > 0} << rail;
    working_.push_back(works);
  }
  const auto add_limit = [&](std::vector<Limit>& limits, uint32_t node, std::vector<uint32_t> peers,
                             double of) {
    for (const bool out : {true, false}) limits.push_back({node, out, peers, of});
  };
  for (uint32_t node = 0; node < nodes; ++node) {
    std::map<uint64_t, std::vector<uint32_t>> peers_by_set;
    for (uint32_t peer = 0; peer < nodes; ++peer)
      if (peer != node) peers_by_set[working_[node] & working_[peer]].push_back(peer);
    std::set<uint64_t> sets;
    for (const auto& [set, peers] : peers_by_set) {
      const std::set<uint64_t> before = sets;
      sets.insert(set);
      if (before.size() >= size_t{1} << kMostSets) continue;
      for (const uint64_t other : before) sets.insert(set | other);
    }
    sets.insert(working_[node]);
    for (const uint64_t set : sets) {
      std::vector<uint32_t> peers;
      for (const auto& [common, of_set] : peers_by_set)
        if ((common & ~set) == 0) peers.insert(peers.end(), of_set.begin(), of_set.end());
      const double of = std::max(weight(node, set), 1 / kNoCommonRail);
      add_limit(set == working_[node] ? ports_ : rails_, node, std::move(peers), of);
    }
    for (uint32_t peer = 0; peer < nodes; ++peer) {
      double both = 0;
      for (size_t rail = 0; rail < rails; ++rail)
        both += std::min(nics[node * rails + rail], nics[peer * rails + rail]) / whole;
      const double slower = std::min(weight(node, working_[node]), weight(peer, working_[peer]));
      const auto time = [](double of) { return 1 / std::max(of, 1 / kNoCommonRail); };
      hops_.push_back(time(both) - time(slower));
    }
    slowest_ = std::max(slowest_, 1 / std::max(weight(node, working_[node]), 1 / kNoCommonRail));
    // Of a NIC that is slow, what both ends have: less than either has on these rails together.
    for (uint32_t peer = 0; peer < nodes; ++peer) {
      const uint64_t common = working_[node] & working_[peer];
      if (peer == node || common == 0) continue;
      double both = 0;
      for (size_t rail = 0; rail < rails; ++rail)
        both += std::min(nics[node * rails + rail], nics[peer * rails + rail]) / whole;
      if (both < 0.999 * std::min(weight(node, common), weight(peer, common)))
        rails_.push_back({node, true, {peer}, both});
    }
  }
}

double RailLimits::time(const Limit& limit, const Traffic& traffic) const {
  double sum = 0;
  for (const uint32_t peer : limit.peers)
    sum += limit.out ? traffic(limit.node, peer) : traffic(peer, limit.node);
  return sum / limit.weight;
}

std::vector<double> RailLimits::times(const Traffic& traffic) const {
  std::vector<double> result;
  result.reserve(ports_.size() + rails_.size());
  for (const auto* limits : {&ports_, &rails_})
    for (const Limit& limit : *limits) result.push_back(time(limit, traffic));
  return result;
}

double RailLimits::busiest(const Traffic& traffic) const {
  const std::vector<double> all = times(traffic);
  return *std::max_element(all.begin(), all.end());
}

double RailLimits::lost_on_the_way(const Schedule& trees) const {
  double longest = 0;
  for (size_t group = 0; group < trees.groups.size(); ++group) {
    std::vector<Ranks> neighbours(trees.ranks);
    for (const Connection& connection : trees.connections)
      if (connection.group == group) neighbours[connection.from].push_back(connection.to);
    struct Visit {
      uint32_t node, from;
      double time;
    };
    // The longest way in a tree ends where it is farthest to from anywhere.
    const auto farthest = [&](uint32_t start) {
      Visit most{start, start, 0};
      std::vector<Visit> open{most};
      while (!open.empty()) {
        const Visit at = open.back();
        open.pop_back();
        if (at.time > most.time) most = at;
        for (const uint32_t next : neighbours[at.node])
          if (next != at.from) open.push_back({next, at.node, at.time + hops_[at.node * trees.ranks + next]});
      }
      return most;
    };
    longest = std::max(longest, farthest(farthest(0).node).time);
  }
  return longest;
}

double RailLimits::lost_on_a_hop(const Schedule& trees) const {
  double most = 0;
  for (const Connection& connection : trees.connections)
    most = std::max(most, hops_[connection.from * trees.ranks + connection.to]);
  return most;
}

double RailLimits::slowest_node() const { return slowest_; }

double RailLimits::over_ports(const Traffic& traffic) const {
  const auto nodes = static_cast<uint32_t>(traffic.nodes());
  for (uint32_t from = 0; from < nodes; ++from)
    for (uint32_t to = 0; to < nodes; ++to)
      if (traffic(from, to) > 0 && (working_[from] & working_[to]) == 0) return kNoCommonRail;
  const std::vector<double> all = times(traffic);
  const double ports = *std::max_element(all.begin(), all.begin() + static_cast<long>(ports_.size()));
  return ports > 0 ? std::max(1.0, *std::max_element(all.begin(), all.end()) / ports) : 1;
}

}  // namespace r2ccl::collective
