// SPDX-License-Identifier: Apache-2.0
#include "harness/sim/flow_simulator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

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

/// A lane, as far as it uses one of its connection's flows.
struct LaneState {
  uint32_t rank = 0;
  uint16_t number = 0;
  uint32_t flow = 0;
  double share = 1;  // of each chunk
  bool queued = false;
  bool busy = false;  // its operation takes time at the moment
  uint32_t op = 0, segment = 0;
  uint32_t slot = 0;
  uint32_t turn = 0;              // its pieces before this one
  uint64_t done = 0;              // operations, all segments and pieces
  std::vector<uint32_t> waiting;  // lanes to look at when this one moves on
};

struct FlowState {
  uint32_t connection = 0;
  uint32_t send_lane = 0, recv_lane = 0;  // of lanes_
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

/// As many copies of the schedule beside each other: lane i of slot s is lane s * lanes + i of its rank.
Schedule in_slots(const Schedule& schedule, uint32_t slots) {
  Schedule all = schedule;
  const auto connections = static_cast<uint32_t>(schedule.connections.size());
  for (uint32_t slot = 1; slot < slots; ++slot) {
    for (Connection connection : schedule.connections) {
      connection.from_lane += static_cast<uint16_t>(slot * schedule.lanes[connection.from].size());
      connection.to_lane += static_cast<uint16_t>(slot * schedule.lanes[connection.to].size());
      all.connections.push_back(connection);
    }
    for (uint32_t rank = 0; rank < schedule.ranks; ++rank) {
      const auto first = static_cast<uint16_t>(slot * schedule.lanes[rank].size());
      for (Lane lane : schedule.lanes[rank]) {
        lane.connection += slot * connections;
        for (Op& op : lane.ops)
          for (Wait& wait : op.waits)
            if (!wait.none()) wait.lane += first;
        all.lanes[rank].push_back(std::move(lane));
      }
    }
  }
  return all;
}

enum class EventKind : uint8_t { kArrival, kReduced };
struct Event {
  double at;
  uint64_t number;  // equal times: in order
  EventKind kind;
  uint32_t flow;
  bool operator>(const Event& other) const { return std::tie(at, number) > std::tie(other.at, other.number); }
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Ports& ports, uint64_t bytes, const PieceStream& stream)
      : schedule_(in_slots(schedule, stream.slots)),
        ports_(ports),
        stream_(stream),
        bytes_(static_cast<double>(bytes)) {}

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
      if (changed_ != 0 || aged_) share_ports();
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
    return lane_of(state).ops.empty() || piece_of(state) >= stream_.pieces;
  }
  double bytes_of(const LaneState& state) const {
    const Lane& lane = lane_of(state);
    return chunk_fraction(schedule_.part_of(lane), lane.ops[state.op].chunk) * bytes_ * state.share;
  }

  Result<void> prepare() {
    if (std::min({stream_.pieces, stream_.slots, stream_.in_flight}) == 0)
      return Error{ErrorCode::kInvalidArgument,
                   schedule_.name + ": a stream has no pieces, slots, or none in flight"};
    Result<SharedPorts> shared = shared_ports(schedule_, ports_);
    if (!shared) return shared.error();
    shares_ = std::move(shared.value().shares);
    const std::vector<PortFlow>& parts = shared.value().flows;
    flows_.resize(parts.size());
    std::vector<uint32_t> first_flow(schedule_.connections.size() + 1, static_cast<uint32_t>(parts.size()));
    for (uint32_t i = static_cast<uint32_t>(parts.size()); i-- > 0;) first_flow[parts[i].connection] = i;
    first_lane_.resize(schedule_.ranks);
    pieces_.resize(schedule_.ranks);
    for (uint32_t rank = 0; rank < schedule_.ranks; ++rank) {
      uint32_t open_of_piece = 0;
      first_lane_[rank] = static_cast<uint32_t>(first_state_.size());
      for (uint16_t number = 0; number < schedule_.lanes[rank].size(); ++number) {
        const Lane& lane = schedule_.lanes[rank][number];
        first_state_.push_back(static_cast<uint32_t>(lanes_.size()));
        for (uint32_t i = first_flow[lane.connection]; i < first_flow[lane.connection + 1]; ++i) {
          (lane.sends ? flows_[i].send_lane : flows_[i].recv_lane) = static_cast<uint32_t>(lanes_.size());
          lanes_.push_back(
              {.rank = rank,
               .number = number,
               .flow = i,
               .share = parts[i].share,
               .slot = number / static_cast<uint32_t>(schedule_.lanes[rank].size() / stream_.slots)});
          if (!lane.ops.empty() && lanes_.back().slot == 0) ++open_of_piece;
        }
      }
      pieces_[rank].open.assign(stream_.pieces, open_of_piece);
    }
    first_state_.push_back(static_cast<uint32_t>(lanes_.size()));
    for (uint32_t i = 0; i < flows_.size(); ++i) {
      const Connection& connection = schedule_.connections[parts[i].connection];
      flows_[i].connection = parts[i].connection;
      flows_[i].local = node(connection.from) == node(connection.to);
    }
    rates_.assign(flows_.size(), 0);
    shared_.assign(flows_.size(), 0);
    position_.assign(flows_.size(), kNobody);
    in_rates_.assign(flows_.size(), false);
    reducer_free_.assign(schedule_.ranks, 0);
    for (uint32_t lane = 0; lane < lanes_.size(); ++lane) enqueue(lane);
    return {};
  }

  uint32_t node(uint32_t rank) const {
    return ports_.node_of_rank.empty() ? rank : ports_.node_of_rank[rank];
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
    if (state.op == 0 && state.segment == 0 && !may_begin(number, state)) return false;
    const Op& op = lane.ops[state.op];
    for (const Wait& wait : op.waits) {
      if (!wait.none() && waits(number, state, wait)) return false;
    }
    return lane.sends ? start_send(state) : start_receive(state, op.kind);
  }

  /// Has its piece begun? If not, the lane is looked at when it does.
  bool may_begin(uint32_t number, const LaneState& state) {
    Pieces& pieces = pieces_[state.rank];
    if (piece_of(state) < pieces.ended + stream_.in_flight) return true;
    pieces.waiting.push_back(number);
    return false;
  }

  void end_piece(LaneState& state) {
    Pieces& pieces = pieces_[state.rank];
    --pieces.open[piece_of(state)];
    if (lane_of(state).sends) aged_ = true;
    ++state.turn;
    const uint32_t before = pieces.ended;
    while (pieces.ended < stream_.pieces && pieces.open[pieces.ended] == 0) ++pieces.ended;
    if (pieces.ended == before) return;
    for (const uint32_t lane : pieces.waiting) enqueue(lane);
    pieces.waiting.clear();
  }

  /// Is a part of what the operation waits for missing? Then the lane is looked at when that part is done.
  bool waits(uint32_t number, const LaneState& state, const Wait& wait) {
    const uint32_t lane = first_lane_[state.rank] + wait.lane;
    for (uint32_t i = first_state_[lane]; i < first_state_[lane + 1]; ++i) {
      LaneState& other = lanes_[i];
      const Lane& other_lane = lane_of(other);
      const uint64_t iterations = schedule_.iterations(other_lane);
      const uint64_t segment = state.turn * iterations + (wait.last ? iterations - 1 : state.segment);
      if (other.done > segment * other_lane.ops.size() + wait.op) continue;
      other.waiting.push_back(number);
      return true;
    }
    return false;
  }

  bool start_send(LaneState& state) {
    FlowState& flow = flows_[state.flow];
    if (flow.outstanding >= schedule_.connections[flow.connection].credits) return false;
    ++flow.outstanding;
    ++result_.transfers;
    const double size = bytes_of(state);
    if (flow.local || size <= 0) {
      sent(state.flow);
      return true;
    }
    state.busy = true;
    flow.size = size;
    flow.remaining = size + std::exchange(flow.debt, 0);
    flow.since = now_;
    position_[state.flow] = static_cast<uint32_t>(active_.size());
    active_.push_back(state.flow);
    ends_.push_back({});
    set_end(state.flow);
    changed_ += in_rates_[state.flow] ? -1 : 1;
    return false;
  }

  bool start_receive(LaneState& state, OpKind kind) {
    if (flows_[state.flow].arrived == 0) return false;
    if (kind == OpKind::kRecvReduce && ports_.reduce_bytes_per_second > 0) {
      double& free = reducer_free_[state.rank];
      free = std::max(free, now_) + bytes_of(state) / ports_.reduce_bytes_per_second;
      state.busy = true;
      events_.push({free, event_number_++, EventKind::kReduced, state.flow});
      return false;
    }
    received(state.flow);
    return true;
  }

  void move_on(LaneState& state) {
    ++state.done;
    if (++state.op == lane_of(state).ops.size()) {
      state.op = 0;
      if (++state.segment == schedule_.iterations(lane_of(state))) {
        state.segment = 0;
        end_piece(state);
      }
    }
    for (const uint32_t other : state.waiting) enqueue(other);
    state.waiting.clear();
  }

  void sent(uint32_t flow) {
    move_on(lanes_[flows_[flow].send_lane]);
    if (ports_.latency_s > 0 && !flows_[flow].local) {
      events_.push({now_ + ports_.latency_s, event_number_++, EventKind::kArrival, flow});
    } else {
      arrive(flow);
    }
  }

  void arrive(uint32_t flow) {
    ++flows_[flow].arrived;
    enqueue(flows_[flow].recv_lane);
  }

  void received(uint32_t flow) {
    FlowState& state = flows_[flow];
    --state.arrived;
    --state.outstanding;
    move_on(lanes_[state.recv_lane]);
    enqueue(state.send_lane);
  }

  uint32_t piece_of(const LaneState& lane) const { return lane.slot + lane.turn * stream_.slots; }

  /// Flows of a stream by the age of their pieces.
  void weigh() {
    const auto piece = [&](uint32_t flow) { return piece_of(lanes_[flows_[flow].send_lane]); };
    uint32_t oldest = UINT32_MAX;
    for (const uint32_t i : active_) oldest = std::min(oldest, piece(i));
    constexpr uint32_t kMost = 10;  // more makes no difference
    factors_.resize(flows_.size());
    for (const uint32_t i : active_)
      factors_[i] = std::pow(kLaterPiece, static_cast<double>(std::min(piece(i) - oldest, kMost)));
  }

  void share_ports() {
    if (stream_.pieces > 1) weigh();
    shares_->compute(active_, shared_, factors_);
    std::fill(in_rates_.begin(), in_rates_.end(), false);
    for (const uint32_t i : active_) {
      in_rates_[i] = true;
      if (shared_[i] == rates_[i]) continue;
      FlowState& flow = flows_[i];
      flow.remaining = std::max(0.0, flow.remaining - rates_[i] * (now_ - flow.since));
      flow.since = now_;
      rates_[i] = shared_[i];
      set_end(i);
    }
    changed_ = 0;
    aged_ = false;
  }

  /// When the transfer ends at its present rate; and from when on it counts as ended.
  void set_end(uint32_t number) {
    const FlowState& flow = flows_[number];
    End& end = ends_[position_[number]];
    if (rates_[number] <= 0) {
      end = {};
      return;
    }
    end.at = flow.since + flow.remaining / rates_[number];
    end.from = end.at - kSameMoment * flow.size / rates_[number];
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
        arrive(event.flow);
      } else {
        const uint32_t lane = flows_[event.flow].recv_lane;
        lanes_[lane].busy = false;
        received(event.flow);
        enqueue(lane);
      }
    }
    return true;
  }

  void end_transfer(uint32_t flow) {
    FlowState& state = flows_[flow];
    state.debt = std::max(0.0, state.remaining - rates_[flow] * (now_ - state.since));
    const uint32_t last = active_.back(), hole = position_[flow];
    active_[hole] = last;
    ends_[hole] = ends_.back();
    position_[last] = hole;
    active_.pop_back();
    ends_.pop_back();
    changed_ += in_rates_[flow] ? 1 : -1;
    lanes_[state.send_lane].busy = false;
    sent(flow);
    enqueue(state.send_lane);
  }

  uint64_t memory() const {
    uint64_t bytes = shares_->memory_bytes() + lanes_.capacity() * sizeof(LaneState) +
                     flows_.capacity() * (sizeof(FlowState) + 4 * sizeof(double)) +
                     factors_.capacity() * sizeof(double);
    for (const Pieces& pieces : pieces_) bytes += sizeof(Pieces) + pieces.open.capacity() * sizeof(uint32_t);
    for (const auto& lanes : schedule_.lanes) {
      for (const Lane& lane : lanes) bytes += sizeof(Lane) + lane.ops.capacity() * sizeof(Op);
    }
    return bytes + schedule_.connections.capacity() * sizeof(Connection);
  }

  /// What of the stream a rank has done.
  struct Pieces {
    uint32_t ended = 0;             // all before it have ended
    std::vector<uint32_t> open;     // lanes that are not done with the piece
    std::vector<uint32_t> waiting;  // lanes whose piece has not begun
  };

  const Schedule schedule_;
  const Ports& ports_;
  const PieceStream stream_;
  const double bytes_;
  double now_ = 0;
  SimulationResult result_;
  std::vector<uint32_t> first_lane_;   // by rank
  std::vector<uint32_t> first_state_;  // of lanes_, by lane of all
  std::vector<LaneState> lanes_;
  std::vector<Pieces> pieces_;  // by rank
  std::vector<FlowState> flows_;
  std::vector<uint32_t> ready_;  // lanes to look at
  std::vector<uint32_t> active_, position_, ended_;
  std::vector<End> ends_;  // as active_
  std::vector<double> rates_, shared_, reducer_free_;
  std::vector<double> factors_;  // by flow; empty: not a stream
  std::vector<bool> in_rates_;   // which flows the rates were computed for
  int64_t changed_ = 0;          // how many differ from these
  bool aged_ = false;            // a lane sends for its next piece: its weight has changed
  std::optional<FairShares> shares_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t event_number_ = 0;
};

}  // namespace

Result<SimulationResult> simulate(const Schedule& schedule, const Ports& ports, uint64_t bytes,
                                  const PieceStream& stream) {
  return Simulation(schedule, ports, bytes, stream).run();
}

}  // namespace r2bench
