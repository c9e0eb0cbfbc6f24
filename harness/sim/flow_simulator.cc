// SPDX-License-Identifier: Apache-2.0
#include "harness/sim/flow_simulator.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "harness/sim/fair_shares.h"

namespace r2bench {
namespace {

using r2ccl::Error;
using r2ccl::ErrorCode;
using r2ccl::Result;
using r2ccl::collective::Connection;
using r2ccl::collective::Lane;
using r2ccl::collective::Op;
using r2ccl::collective::OpKind;
using r2ccl::collective::Part;
using r2ccl::collective::Schedule;
using r2ccl::collective::Wait;

constexpr uint32_t kNobody = UINT32_MAX;

struct LaneState {
  uint32_t rank = 0;
  uint16_t number = 0;
  bool queued = false;
  bool busy = false;  // its operation takes time at the moment
  uint32_t op = 0, segment = 0;
  uint64_t done = 0;              // operations, all segments
  std::vector<uint32_t> waiting;  // lanes to look at when this one moves on
};

struct ConnectionState {
  uint32_t send_lane = 0, recv_lane = 0;  // of all lanes
  bool local = false;                     // within a node
  uint32_t outstanding = 0;               // sent and not taken by their receive
  uint32_t arrived = 0;                   // of these, at the receiver
  double remaining = 0;                   // bytes of the transfer under way, at `since`
  double since = 0;
  double debt = 0;  // bytes of earlier ones that kSameMoment let end too soon
  double size = 0;
};

struct End {
  double at = std::numeric_limits<double>::infinity(), from = std::numeric_limits<double>::infinity();
};

enum class EventKind : uint8_t { kArrival, kReduced };
struct Event {
  double at;
  uint64_t number;  // equal times: in order
  EventKind kind;
  uint32_t connection;
  bool operator>(const Event& other) const { return std::tie(at, number) > std::tie(other.at, other.number); }
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Ports& ports, uint64_t bytes)
      : schedule_(schedule), ports_(ports), bytes_(static_cast<double>(bytes)) {}

  Result<SimulationResult> run() {
    if (Result<void> ready = prepare(); !ready) return ready.error();
    for (;;) {
      while (!ready_.empty()) {
        const uint32_t lane = ready_.back();
        ready_.pop_back();
        lanes_[lane].queued = false;
        while (step(lane)) {
        }
      }
      if (active_.empty() && events_.empty()) break;
      if (changed_ != 0) share_ports();
      if (!advance())
        return Error{ErrorCode::kInvalidArgument,
                     schedule_.name + ": a transfer needs a port without capacity"};
      ++result_.steps;
    }
    for (const LaneState& lane : lanes_) {
      if (finished(lane)) continue;
      return Error{ErrorCode::kInvalidArgument, schedule_.name + ": deadlock at rank " +
                                                    std::to_string(lane.rank) + ", lane " +
                                                    std::to_string(lane.number)};
    }
    result_.seconds = now_;
    result_.memory_bytes = memory();
    return result_;
  }

 private:
  const Lane& lane_of(const LaneState& state) const { return schedule_.lanes[state.rank][state.number]; }
  bool finished(const LaneState& state) const {
    const Lane& lane = lane_of(state);
    return state.done == lane.ops.size() * schedule_.iterations(lane);
  }
  double bytes_of(const LaneState& state) const {
    const Lane& lane = lane_of(state);
    return chunk_fraction(schedule_.part_of(lane), lane.ops[state.op].chunk) * bytes_;
  }

  Result<void> prepare() {
    first_lane_.resize(schedule_.ranks);
    for (uint32_t rank = 0; rank < schedule_.ranks; ++rank) {
      first_lane_[rank] = static_cast<uint32_t>(lanes_.size());
      for (uint16_t number = 0; number < schedule_.lanes[rank].size(); ++number) {
        LaneState state;
        state.rank = rank;
        state.number = number;
        lanes_.push_back(std::move(state));
      }
    }
    connections_.resize(schedule_.connections.size());
    rates_.assign(connections_.size(), 0);
    shared_.assign(connections_.size(), 0);
    position_.assign(connections_.size(), kNobody);
    in_rates_.assign(connections_.size(), false);
    reducer_free_.assign(schedule_.ranks, 0);
    if (Result<void> shared = prepare_ports(); !shared) return shared;
    for (uint32_t i = 0; i < connections_.size(); ++i) {
      const Connection& connection = schedule_.connections[i];
      connections_[i].send_lane = first_lane_[connection.from] + connection.from_lane;
      connections_[i].recv_lane = first_lane_[connection.to] + connection.to_lane;
      connections_[i].local = node(connection.from) == node(connection.to);
    }
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) enqueue(lane);
    return {};
  }

  uint32_t node(uint32_t rank) const {
    return ports_.node_of_rank.empty() ? rank : ports_.node_of_rank[rank];
  }

  /// One port for each node, direction, rail class and, where they are exclusive, group.
  Result<void> prepare_ports() {
    using Key = std::tuple<uint32_t, bool, uint16_t, uint16_t>;
    std::map<Key, uint32_t> numbers;
    std::map<std::tuple<uint32_t, bool, uint16_t>, double> total;  // weight at the rails of a node
    std::vector<double> weight, capacity;
    std::vector<Key> keys;
    std::vector<FairShares::Flow> flows;
    for (const Connection& connection : schedule_.connections) {
      const uint16_t rail_class = schedule_.groups[connection.group].rail_class;
      const auto end = [&](uint32_t rank, bool sends) {
        const Key key{node(rank), sends, rail_class,
                      ports_.sharing == Sharing::kExclusive ? connection.group : uint16_t{0}};
        const auto [at, added] = numbers.emplace(key, static_cast<uint32_t>(keys.size()));
        if (added) keys.push_back(key), weight.push_back(0);
        const bool local = node(connection.from) == node(connection.to);
        if (!local)
          weight[at->second] += connection.weight,
              total[{node(rank), sends, rail_class}] += connection.weight;
        return at->second;
      };
      FairShares::Flow flow;
      flow.from = end(connection.from, true);
      flow.to = end(connection.to, false);
      flow.weight = connection.weight;
      flows.push_back(flow);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto [of_node, sends, rail_class, group] = keys[i];
      if (rail_class >= ports_.capacity.size() || of_node >= ports_.capacity[rail_class].size()) {
        return Error{ErrorCode::kInvalidArgument,
                     schedule_.name + ": no capacity is given for node " + std::to_string(of_node)};
      }
      const double all = total[{of_node, sends, rail_class}];
      capacity.push_back(ports_.capacity[rail_class][of_node] *
                         (ports_.sharing == Sharing::kExclusive && all > 0 ? weight[i] / all : 1));
    }
    shares_.emplace_back(std::move(capacity), std::move(flows));
    return {};
  }

  void enqueue(uint32_t lane) {
    if (std::exchange(lanes_[lane].queued, true)) return;
    ready_.push_back(lane);
  }

  /// Starts, or does at once, the lane's next operation. True: it may go on to the one after.
  bool step(uint32_t number) {
    LaneState& state = lanes_[number];
    const Lane& lane = lane_of(state);
    if (state.busy || finished(state)) return false;
    const Op& op = lane.ops[state.op];
    for (const Wait& wait : op.waits) {
      if (wait.none()) continue;
      LaneState& other = lanes_[first_lane_[state.rank] + wait.lane];
      const Lane& other_lane = lane_of(other);
      const uint64_t segment = wait.last ? schedule_.iterations(other_lane) - 1 : state.segment;
      if (other.done > segment * other_lane.ops.size() + wait.op) continue;
      other.waiting.push_back(number);
      return false;
    }
    return lane.sends ? start_send(state, lane) : start_receive(state, lane, op.kind);
  }

  bool start_send(LaneState& state, const Lane& lane) {
    ConnectionState& connection = connections_[lane.connection];
    if (connection.outstanding >= schedule_.connections[lane.connection].credits) return false;
    ++connection.outstanding;
    ++result_.transfers;
    const double size = bytes_of(state);
    if (connection.local || size <= 0) {
      sent(lane.connection);
      return true;
    }
    state.busy = true;
    connection.size = size;
    connection.remaining = size + std::exchange(connection.debt, 0);
    connection.since = now_;
    position_[lane.connection] = static_cast<uint32_t>(active_.size());
    active_.push_back(lane.connection);
    ends_.push_back({});
    set_end(lane.connection);
    changed_ += in_rates_[lane.connection] ? -1 : 1;
    return false;
  }

  bool start_receive(LaneState& state, const Lane& lane, OpKind kind) {
    ConnectionState& connection = connections_[lane.connection];
    if (connection.arrived == 0) return false;
    if (kind == OpKind::kRecvReduce && ports_.reduce_bytes_per_second > 0) {
      double& free = reducer_free_[state.rank];
      free = std::max(free, now_) + bytes_of(state) / ports_.reduce_bytes_per_second;
      state.busy = true;
      events_.push({free, event_number_++, EventKind::kReduced, lane.connection});
      return false;
    }
    received(lane.connection);
    return true;
  }

  void move_on(LaneState& state) {
    ++state.done;
    if (++state.op == lane_of(state).ops.size()) state.op = 0, ++state.segment;
    for (const uint32_t other : state.waiting) enqueue(other);
    state.waiting.clear();
  }

  void sent(uint32_t connection) {
    move_on(lanes_[connections_[connection].send_lane]);
    if (ports_.latency_s > 0 && !connections_[connection].local) {
      events_.push({now_ + ports_.latency_s, event_number_++, EventKind::kArrival, connection});
    } else {
      arrive(connection);
    }
  }

  void arrive(uint32_t connection) {
    ++connections_[connection].arrived;
    enqueue(connections_[connection].recv_lane);
  }

  void received(uint32_t connection) {
    ConnectionState& state = connections_[connection];
    --state.arrived;
    --state.outstanding;
    move_on(lanes_[state.recv_lane]);
    enqueue(state.send_lane);
  }

  void share_ports() {
    shares_.front().compute(active_, shared_);
    std::fill(in_rates_.begin(), in_rates_.end(), false);
    for (const uint32_t i : active_) {
      in_rates_[i] = true;
      if (shared_[i] == rates_[i]) continue;
      ConnectionState& connection = connections_[i];
      connection.remaining = std::max(0.0, connection.remaining - rates_[i] * (now_ - connection.since));
      connection.since = now_;
      rates_[i] = shared_[i];
      set_end(i);
    }
    changed_ = 0;
  }

  /// When the transfer ends at its present rate; and from when on it counts as ended.
  void set_end(uint32_t number) {
    const ConnectionState& connection = connections_[number];
    End& end = ends_[position_[number]];
    if (rates_[number] <= 0) {
      end = {};
      return;
    }
    end.at = connection.since + connection.remaining / rates_[number];
    end.from = end.at - kSameMoment * connection.size / rates_[number];
  }

  /// To the next moment at which something happens. False: nothing moves.
  bool advance() {
    double next = std::numeric_limits<double>::infinity();
    for (const End& end : ends_) next = std::min(next, end.at);
    if (!events_.empty()) next = std::min(next, events_.top().at);
    if (next == std::numeric_limits<double>::infinity()) return false;
    now_ = std::max(now_, next);
    ended_.clear();
    for (size_t i = 0; i < ends_.size(); ++i) {
      if (ends_[i].from <= now_) ended_.push_back(active_[i]);
    }
    for (const uint32_t i : ended_) end_transfer(i);
    while (!events_.empty() && events_.top().at <= now_) {
      const Event event = events_.top();
      events_.pop();
      if (event.kind == EventKind::kArrival) {
        arrive(event.connection);
      } else {
        const uint32_t lane = connections_[event.connection].recv_lane;
        lanes_[lane].busy = false;
        received(event.connection);
        enqueue(lane);
      }
    }
    return true;
  }

  void end_transfer(uint32_t connection) {
    ConnectionState& state = connections_[connection];
    state.debt = std::max(0.0, state.remaining - rates_[connection] * (now_ - state.since));
    const uint32_t last = active_.back(), hole = position_[connection];
    active_[hole] = last;
    ends_[hole] = ends_.back();
    position_[last] = hole;
    active_.pop_back();
    ends_.pop_back();
    changed_ += in_rates_[connection] ? 1 : -1;
    lanes_[state.send_lane].busy = false;
    sent(connection);
    enqueue(state.send_lane);
  }

  uint64_t memory() const {
    uint64_t bytes = shares_.front().memory_bytes() + lanes_.capacity() * sizeof(LaneState) +
                     connections_.capacity() * (sizeof(ConnectionState) + 4 * sizeof(double));
    for (const auto& lanes : schedule_.lanes) {
      for (const Lane& lane : lanes) bytes += sizeof(Lane) + lane.ops.capacity() * sizeof(Op);
    }
    return bytes + schedule_.connections.capacity() * sizeof(Connection);
  }

  const Schedule& schedule_;
  const Ports& ports_;
  const double bytes_;
  double now_ = 0;
  SimulationResult result_;
  std::vector<uint32_t> first_lane_;  // by rank
  std::vector<LaneState> lanes_;
  std::vector<ConnectionState> connections_;
  std::vector<uint32_t> ready_;  // lanes to look at
  std::vector<uint32_t> active_, position_, ended_;
  std::vector<End> ends_;  // as active_
  std::vector<double> rates_, shared_, reducer_free_;
  std::vector<bool> in_rates_;  // which connections the rates were computed for
  int64_t changed_ = 0;         // how many differ from these
  std::vector<FairShares> shares_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t event_number_ = 0;
};

}  // namespace

Result<SimulationResult> simulate(const Schedule& schedule, const Ports& ports, uint64_t bytes) {
  return Simulation(schedule, ports, bytes).run();
}

}  // namespace r2bench
