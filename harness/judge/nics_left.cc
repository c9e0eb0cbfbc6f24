// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/nics_left.h"

#include <algorithm>
#include <climits>

#include "harness/judge/ports.h"

namespace r2bench {
namespace {

int node_of(const Fabric& fabric, int rank) { return rank / std::max(fabric.ranks_per_node, 1); }

/// What the engine cpu opens: rings, or of each rank one channel after the other to every peer. The ranks of
/// a communicator have equally many.
std::vector<Connection> channels_of_workload(const Scenario& scenario) {
  const Fabric& fabric = scenario.fabric;
  std::vector<Connection> all;
  for (int rank = 0; rank < fabric.ranks(); ++rank) {
    const Communicator group = communicator_of(scenario, rank);
    const bool to_all = scenario.workload.op == Operation::kAllToAll;
    if (scenario.workload.op == Operation::kBroadcast && group.position == group.size - 1) continue;
    for (int shift = 1; shift < (to_all ? group.size : std::min(group.size, 2)); ++shift) {
      const int local = rank % fabric.ranks_per_node, peer = group.rank_at(group.position + shift),
                peer_local = peer % fabric.ranks_per_node;
      const std::vector<int> nics = nics_from_near(fabric, local);
      const std::vector<int> peer_nics = nics_from_near(fabric, peer_local);
      const int channels = channels_of(scenario, local);
      for (int c = 0; c < channels; ++c)
        all.push_back({.from = uint16_t(node_of(fabric, rank)),
                       .to = uint16_t(node_of(fabric, peer)),
                       .tx_nic = uint16_t(nics[size_t(c) % nics.size()]),
                       .rx_nic = uint16_t(peer_nics[size_t(c) % peer_nics.size()]),
                       .from_socket = socket_of_rank(fabric, local),
                       .to_socket = socket_of_rank(fabric, peer_local),
                       .demand = 1.0 / channels / (to_all ? group.size - 1 : 1)});
    }
  }
  return all;
}

/// What was delivered by whole operations before `until_ns`, by stream; the streams were at home then.
std::vector<Connection> channels_seen(const Scenario& scenario, const Record& record, uint64_t until_ns) {
  uint64_t end_ns = 0;
  for (const OperationSpan& operation : record.operations)
    if (operation.complete && operation.span.end_ns <= until_ns)
      end_ns = std::max(end_ns, operation.span.end_ns);
  if (end_ns == 0) end_ns = until_ns;
  const Fabric& fabric = scenario.fabric;
  std::map<uint32_t, Connection> seen;  // by stream
  for (const Delivery& d : record.deliveries) {
    if (d.time_ns > end_ns) break;
    const Stream& stream = record.streams[d.stream];
    const uint16_t tx_nic = d.tx_nic == kNoNic ? d.rx_nic : d.tx_nic;
    if (std::max(stream.rx_node, stream.tx_node) >= fabric.nodes ||
        std::max(d.rx_nic, tx_nic) >= fabric.nics_per_node)
      continue;
    Connection& channel = seen.try_emplace(d.stream, Connection{.from = stream.tx_node,
                                                                .to = stream.rx_node,
                                                                .tx_nic = tx_nic,
                                                                .rx_nic = d.rx_nic,
                                                                .from_socket = socket_of_nic(fabric, tx_nic),
                                                                .to_socket = socket_of_nic(fabric, d.rx_nic),
                                                                .demand = 0})
                              .first->second;
    channel.demand += d.bytes;
  }
  std::vector<Connection> all;
  for (const auto& [stream, channel] : seen)
    if (channel.demand > 0) all.push_back(channel);
  return all;
}

Wiring wiring_of(const Scenario& scenario, const NodeLoad& load, const Record& record, uint64_t until_ns) {
  Wiring wiring{load.nic_socket, load.far_cost, {}};
  if (scenario.workload.engine != Engine::kCpu) wiring.channels = channels_seen(scenario, record, until_ns);
  if (wiring.channels.empty()) wiring.channels = channels_of_workload(scenario);
  return wiring;
}

bool strikes_all_queue_pairs(const faultinject::FaultSpec& spec) {
  return spec.target.qp.kind == faultinject::QpSelector::Kind::kAll ||
         spec.count == faultinject::FaultSpec::kAll;
}

}  // namespace

NicsLeft::NicsLeft(const Scenario& scenario, const Mode& mode, const std::vector<Firing>& strikes,
                   const Record& record)
    : scenario_(scenario),
      mode_(mode),
      load_(load_of(scenario)),
      by_channel_(mode.kind == ModeKind::kBaseline || mode.kind == ModeKind::kMigrate),
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
  wiring_ = wiring_of(scenario, load_, record, times.empty() ? UINT64_MAX : times.front());
  State last = whole();
  for (const uint64_t time : times) {
    State now = state_at(time);
    if (now == last) continue;
    moments_.push_back(time);
    last = std::move(now);
  }
}

NicsLeft::State NicsLeft::whole() const {
  return State(size_t(scenario_.fabric.nodes), std::vector<NicState>(size_t(scenario_.fabric.nics_per_node)));
}

void NicsLeft::take(State& state, const Firing& strike) const {
  const auto& spec = scenario_.faults[strike.fault];
  double left = 1;
  int queue_pairs = 0;
  if (spec.kind->takes == faultinject::Takes::kQueuePairs && by_channel_)
    queue_pairs = strikes_all_queue_pairs(spec) ? NicState::kAllQueuePairs : 1;
  else if (spec.kind->moves_traffic())
    left = 0;
  if (spec.kind->takes == faultinject::Takes::kSpeed && spec.rate_bits_per_s > 0 &&
      scenario_.fabric.nic_rate_bits_per_s > 0)
    left = std::min(1.0, double(spec.rate_bits_per_s) / double(scenario_.fabric.nic_rate_bits_per_s));
  for (const NicId& id : strike.nics) {
    NicState& nic = state[id.node][id.nic];
    nic.capacity = std::min(nic.capacity, left);
    nic.lost_queue_pairs += std::min(queue_pairs, NicState::kAllQueuePairs - nic.lost_queue_pairs);
  }
}

NicsLeft::State NicsLeft::state_at(uint64_t time_ns) const {
  State state = whole();
  for (const Firing* strike : strikes_)
    if (strike->t0_ns <= time_ns && time_ns < acts_until_ns(*strike)) take(state, *strike);
  return state;
}

bool NicsLeft::unchanged_by(const Firing& strike) const {
  const auto& spec = scenario_.faults[strike.fault];
  const bool rates_known = spec.rate_bits_per_s > 0 && scenario_.fabric.nic_rate_bits_per_s > 0;
  if (spec.kind->takes == faultinject::Takes::kSpeed && !rates_known) return false;
  State without = whole();
  bool before = true;  // in the order of the strikes, which tells those at the same time apart
  for (const Firing* other : strikes_) {
    const bool same = other->fault == strike.fault && other->repetition == strike.repetition &&
                      other->strike == strike.strike;
    before = before && !same;
    const bool earlier = other->t0_ns < strike.t0_ns || (before && other->t0_ns == strike.t0_ns);
    if (!same && earlier && strike.t0_ns < acts_until_ns(*other)) take(without, *other);
  }
  State with = without;
  take(with, strike);
  return with == without;
}

double NicsLeft::compute_limit(const State& state) const {
  if (by_channel_) return channel_limit(mode_.kind, state, wiring_);
  std::vector<std::vector<double>> capacity;
  for (const auto& node : state) {
    capacity.emplace_back();
    for (const NicState& nic : node) capacity.back().push_back(nic.capacity);
  }
  return by_schedule_ ? allreduce_limit(capacity, load_) : shared_limit(capacity, load_);
}

double NicsLeft::limit_of(const State& state) const {
  const auto [entry, added] = known_.try_emplace(state, 0);
  if (added) entry->second = compute_limit(state);
  return entry->second;
}

double NicsLeft::limit_at(uint64_t time_ns) const { return limit_of(state_at(time_ns)); }

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
  const State at_t0 = state_at(strike.t0_ns);
  const bool lost = limit_of(at_t0) <= 0;
  std::vector<LimitStep> steps = {{strike.t0_ns, limit_of(at_t0)}};
  for (auto moment = std::upper_bound(moments_.begin(), moments_.end(), strike.t0_ns);
       moment != moments_.end() && *moment < end_ns; ++moment) {
    State state = state_at(*moment);
    if (!lost)
      for (size_t node = 0; node < state.size(); ++node)
        for (size_t nic = 0; nic < state[node].size(); ++nic) {
          NicState& now = state[node][nic];
          now.capacity = std::min(now.capacity, at_t0[node][nic].capacity);
          now.lost_queue_pairs = std::max(now.lost_queue_pairs, at_t0[node][nic].lost_queue_pairs);
        }
    if (const double limit = limit_of(state); limit != steps.back().limit) steps.push_back({*moment, limit});
  }
  return steps;
}

}  // namespace r2bench
