// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/nics_left.h"

#include <algorithm>
#include <numeric>

namespace r2bench {

namespace {

/// What the ranks of a node ask of its NICs: each the same in all, divided equally over its channels.
NodeLoad load_of(const Scenario& scenario) {
  const Fabric& fabric = scenario.fabric;
  NodeLoad load;
  if (fabric.topology) load.far_cost = 100.0 / fabric.topology->cross_percent;
  const int sockets = fabric.topology ? fabric.topology->sockets : 1;
  for (int nic = 0; nic < fabric.nics_per_node; ++nic) {
    load.nic_socket.push_back(socket_of_nic(fabric, nic));
    load.demand.emplace_back(size_t(sockets), 0.0);
  }
  for (int rank = 0; rank < fabric.ranks_per_node; ++rank) {
    const std::vector<int> nics = nics_from_near(fabric, rank);
    const int channels = channels_of(scenario, rank);
    for (int c = 0; c < channels; ++c)
      load.demand[size_t(nics[size_t(c) % nics.size()])][size_t(socket_of_rank(fabric, rank))] +=
          1.0 / channels;
  }
  return load;
}

}  // namespace

NicsLeft::NicsLeft(const Scenario& scenario, const Mode& mode, const std::vector<Firing>& strikes)
    : scenario_(scenario),
      mode_(mode),
      load_(load_of(scenario)),
      by_schedule_(mode.kind == ModeKind::kAllReduce && scenario.workload.op == Operation::kAllReduce &&
                   scenario.workload.collnet != CollNet::kOff &&
                   communicator_of(scenario, 0).size == scenario.fabric.nodes) {
  std::vector<uint64_t> times;
  for (const Firing& strike : strikes) {
    if (is_rank_fault(scenario, strike) || strike.t0_ns == 0) continue;
    strikes_.push_back(&strike);
    times.push_back(strike.t0_ns);
    if (const uint64_t until = acts_until_ns(strike); until != UINT64_MAX) times.push_back(until);
  }
  std::sort(times.begin(), times.end());
  Capacity last = whole();
  for (const uint64_t time : times) {
    Capacity now = capacity_at(time);
    if (now == last) continue;
    moments_.push_back(time);
    last = std::move(now);
  }
}

NicsLeft::Capacity NicsLeft::whole() const {
  return Capacity(size_t(scenario_.fabric.nodes),
                  std::vector<double>(size_t(scenario_.fabric.nics_per_node), 1.0));
}

void NicsLeft::take(Capacity& capacity, const Firing& strike) const {
  const auto& spec = scenario_.faults[strike.fault];
  double left = 1;
  if (spec.kind->moves_traffic()) left = 0;
  if (spec.kind->takes == faultinject::Takes::kSpeed && spec.rate_bits_per_s > 0 &&
      scenario_.fabric.nic_rate_bits_per_s > 0)
    left = std::min(1.0, double(spec.rate_bits_per_s) / double(scenario_.fabric.nic_rate_bits_per_s));
  for (const NicId& nic : strike.nics) {
    double& c = capacity[nic.node][nic.nic];
    c = std::min(c, left);
  }
}

NicsLeft::Capacity NicsLeft::capacity_at(uint64_t time_ns) const {
  Capacity capacity = whole();
  for (const Firing* strike : strikes_)
    if (strike->t0_ns <= time_ns && time_ns < acts_until_ns(*strike)) take(capacity, *strike);
  return capacity;
}

double NicsLeft::limit_of(const Capacity& capacity) const {
  const auto [entry, added] = known_.try_emplace(capacity, 0);
  if (added)
    entry->second =
        by_schedule_ ? allreduce_limit(capacity, load_) : bandwidth_limit(mode_.kind, capacity, load_);
  return entry->second;
}

double NicsLeft::limit_at(uint64_t time_ns) const { return limit_of(capacity_at(time_ns)); }

std::vector<LimitPoint> NicsLeft::changes(uint64_t end_ns) const {
  std::vector<LimitPoint> points;
  for (const uint64_t moment : moments_)
    if (moment <= end_ns) points.push_back({moment, limit_at(moment)});
  return points;
}

uint64_t NicsLeft::next_change_ns(uint64_t time_ns) const {
  const auto next = std::upper_bound(moments_.begin(), moments_.end(), time_ns);
  return next == moments_.end() ? UINT64_MAX : *next;
}

std::vector<LimitStep> NicsLeft::limits_for(const Firing& strike, uint64_t end_ns) const {
  const Capacity at_t0 = capacity_at(strike.t0_ns);
  const bool lost = limit_of(at_t0) <= 0;
  std::vector<LimitStep> steps = {{strike.t0_ns, limit_of(at_t0)}};
  for (auto moment = std::upper_bound(moments_.begin(), moments_.end(), strike.t0_ns);
       moment != moments_.end() && *moment < end_ns; ++moment) {
    Capacity capacity = capacity_at(*moment);
    if (!lost)
      for (size_t node = 0; node < capacity.size(); ++node)
        for (size_t nic = 0; nic < capacity[node].size(); ++nic)
          capacity[node][nic] = std::min(capacity[node][nic], at_t0[node][nic]);
    if (const double limit = limit_of(capacity); limit != steps.back().limit)
      steps.push_back({*moment, limit});
  }
  return steps;
}

double NicsLeft::ports_gbps() const {
  const Fabric& fabric = scenario_.fabric;
  const double time = healthy_time(mode_.kind, load_);
  if (fabric.nic_rate_bits_per_s == 0 || time <= 0) return 0;
  double asked = 0;
  for (const auto& nic : load_.demand) asked += std::accumulate(nic.begin(), nic.end(), 0.0);
  double total = double(fabric.nodes) * double(fabric.nic_rate_bits_per_s) / 1e9 * asked / time;
  const double ranks = communicator_of(scenario_, 0).size;
  if (scenario_.workload.op == Operation::kBroadcast && ranks > 0)
    total *= (ranks - 1) / ranks;  // not the root
  return total;
}

}  // namespace r2bench
