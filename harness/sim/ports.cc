// SPDX-License-Identifier: Apache-2.0
#include "harness/sim/ports.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "r2ccl/collective/rails.h"

namespace r2bench {
namespace {

using r2ccl::Error;
using r2ccl::ErrorCode;
using r2ccl::Result;
using r2ccl::collective::Connection;
using r2ccl::collective::RailShares;
using r2ccl::collective::Schedule;

Error invalid(const Schedule& schedule, const std::string& text) {
  return {ErrorCode::kInvalidArgument, schedule.name + ": " + text};
}

/// One port for each NIC and direction.
Result<SharedPorts> nic_ports(const Schedule& schedule, const Ports& ports) {
  const size_t rails = ports.nics.size() / schedule.ranks;
  if (rails == 0 || rails > r2ccl::collective::kMostNics || ports.nics.size() != rails * schedule.ranks)
    return invalid(schedule, "each node needs the same number of NICs, 1 to " +
                                 std::to_string(r2ccl::collective::kMostNics));
  const bool classes = std::any_of(schedule.groups.begin(), schedule.groups.end(),
                                   [](const auto& group) { return group.rail_class != 0; });
  if (!ports.node_of_rank.empty() || ports.sharing != Sharing::kMaxMin || classes)
    return invalid(schedule, "NICs are shared by max-min, each rank is a node, and all NICs carry all");
  if (!have_common_rails(schedule, ports.nics))
    return invalid(schedule, "two nodes that exchange data have no common rail");
  const std::vector<RailShares> shares = rail_shares(schedule, ports.nics, rails);
  const RailShares even = r2ccl::collective::even_shares(rails);
  const auto receiving = static_cast<uint32_t>(ports.nics.size());
  std::vector<double> capacity;
  for (const double nic : ports.nics) capacity.push_back(nic * ports.nic_bytes_per_second);
  capacity.insert(capacity.end(), capacity.begin(), capacity.begin() + receiving);
  std::vector<PortFlow> parts;
  std::vector<FairShares::Flow> flows;
  for (uint32_t i = 0; i < schedule.connections.size(); ++i) {
    const Connection& connection = schedule.connections[i];
    for (uint32_t rail = 0; rail < rails; ++rail) {
      const uint32_t share = (shares.empty() ? even : shares[i])[rail];
      if (share == 0) continue;
      parts.push_back({i, static_cast<double>(share) / r2ccl::collective::kWhole});
      FairShares::Flow flow;
      flow.from = connection.from * static_cast<uint32_t>(rails) + rail;
      flow.to = receiving + connection.to * static_cast<uint32_t>(rails) + rail;
      flow.weight = connection.weight * parts.back().share;
      flows.push_back(flow);
    }
  }
  return SharedPorts{std::move(parts), FairShares(std::move(capacity), std::move(flows))};
}

/// One port for each node, direction, rail class and, where they are exclusive, group.
Result<SharedPorts> node_ports(const Schedule& schedule, const Ports& ports) {
  using Key = std::tuple<uint32_t, bool, uint16_t, uint16_t>;
  const auto node = [&](uint32_t rank) {
    return ports.node_of_rank.empty() ? rank : ports.node_of_rank[rank];
  };
  std::map<Key, uint32_t> numbers;
  std::map<std::tuple<uint32_t, bool, uint16_t>, double> total;  // weight at the rails of a node
  std::vector<double> weight, capacity;
  std::vector<Key> keys;
  std::vector<PortFlow> parts;
  std::vector<FairShares::Flow> flows;
  for (const Connection& connection : schedule.connections) {
    const uint16_t rail_class = schedule.groups[connection.group].rail_class;
    const auto end = [&](uint32_t rank, bool sends) {
      const Key key{node(rank), sends, rail_class,
                    ports.sharing == Sharing::kExclusive ? connection.group : uint16_t{0}};
      const auto [at, added] = numbers.emplace(key, static_cast<uint32_t>(keys.size()));
      if (added) keys.push_back(key), weight.push_back(0);
      const bool local = node(connection.from) == node(connection.to);
      if (!local)
        weight[at->second] += connection.weight, total[{node(rank), sends, rail_class}] += connection.weight;
      return at->second;
    };
    FairShares::Flow flow;
    flow.from = end(connection.from, true);
    flow.to = end(connection.to, false);
    flow.weight = connection.weight;
    parts.push_back({static_cast<uint32_t>(flows.size()), 1});
    flows.push_back(flow);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto [of_node, sends, rail_class, group] = keys[i];
    if (rail_class >= ports.capacity.size() || of_node >= ports.capacity[rail_class].size())
      return invalid(schedule, "no capacity is given for node " + std::to_string(of_node));
    const double all = total[{of_node, sends, rail_class}];
    capacity.push_back(ports.capacity[rail_class][of_node] *
                       (ports.sharing == Sharing::kExclusive && all > 0 ? weight[i] / all : 1));
  }
  return SharedPorts{std::move(parts), FairShares(std::move(capacity), std::move(flows))};
}

}  // namespace

Result<SharedPorts> shared_ports(const Schedule& schedule, const Ports& ports) {
  return ports.nics.empty() ? node_ports(schedule, ports) : nic_ports(schedule, ports);
}

bool have_common_rails(const Schedule& schedule, std::span<const double> nics) {
  const size_t rails = nics.size() / std::max(1u, schedule.ranks);
  return nics.empty() ||
         std::all_of(schedule.connections.begin(), schedule.connections.end(), [&](const Connection& of) {
           if (!(of.weight > 0)) return true;
           for (size_t rail = 0; rail < rails; ++rail)
             if (std::min(nics[of.from * rails + rail], nics[of.to * rails + rail]) > 0) return true;
           return false;
         });
}

}  // namespace r2bench
