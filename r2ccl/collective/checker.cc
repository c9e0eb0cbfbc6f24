// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/checker.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

namespace r2ccl::collective {
namespace {

using Contributions = std::vector<uint64_t>;  // one bit for each rank

bool empty(const uint64_t* set, size_t words) {
  return std::all_of(set, set + words, [](uint64_t word) { return word == 0; });
}

struct Access {
  uint16_t lane = Wait::kNone;
  uint32_t count = 0;  // the lane's operations up to this one, itself included
};

/// What a rank's chunk went through: its last write and the reads since.
struct History {
  Access write;
  std::vector<Access> reads;
};

struct LaneState {
  uint32_t op = 0, segment = 0;
  uint32_t done = 0;              // operations, all segments
  std::vector<uint32_t> clocks;   // of each completed operation, rank's lanes in a row
  std::vector<uint16_t> waiting;  // lanes of the rank to look at when this one moves on
  bool queued = false;
};

struct Message {
  uint32_t chunk = 0;
  Contributions value;
};

class Execution {
 public:
  explicit Execution(const Schedule& schedule) : schedule_(schedule), words_((schedule.ranks + 63) / 64) {}

  Result<void> run() {
    if (Result<void> shape = check_shape(); !shape) return shape;
    prepare();
    while (!queue_.empty()) {
      const auto [rank, lane] = queue_.front();
      queue_.pop_front();
      lanes_[rank][lane].queued = false;
      while (error_.empty() && step(rank, lane)) {
      }
      if (!error_.empty()) return wrong(error_);
    }
    return check_end();
  }

 private:
  static Error wrong(std::string text) { return Error{ErrorCode::kInvalidArgument, std::move(text)}; }

  std::string place(uint32_t rank, uint16_t lane) const {
    const LaneState& state = lanes_[rank][lane];
    return "rank " + std::to_string(rank) + ", lane " + std::to_string(lane) + ", operation " +
           std::to_string(state.op) + " of segment " + std::to_string(state.segment);
  }

  Result<void> check_shape() const {
    double sum = 0;
    for (const Part& part : schedule_.parts) {
      double chunks = 0;
      for (const double chunk : part.chunks) chunks += chunk;
      if (std::abs(chunks - 1) > 1e-9 || part.segments == 0)
        return wrong("the chunks of a part do not add up to it");
      sum += part.fraction;
    }
    if (std::abs(sum - 1) > 1e-9) return wrong("the parts do not add up to the data");
    if (schedule_.root >= schedule_.ranks) return wrong("the root is no rank");
    for (const auto* whose : {&schedule_.owner, &schedule_.origin}) {
      if (whose->empty()) continue;
      if (whose->size() != schedule_.chunks()) return wrong("not every chunk has an owner, or an origin");
      if (std::any_of(whose->begin(), whose->end(),
                      [this](uint32_t rank) { return rank >= schedule_.ranks; }))
        return wrong("a chunk's owner or origin is no rank");
    }
    if (schedule_.lanes.size() != schedule_.ranks)
      return wrong("there are not as many lists of lanes as ranks");
    for (uint32_t rank = 0; rank < schedule_.ranks; ++rank) {
      const auto& lanes = schedule_.lanes[rank];
      for (size_t l = 0; l < lanes.size(); ++l) {
        const Lane& lane = lanes[l];
        const std::string where = "rank " + std::to_string(rank) + ", lane " + std::to_string(l);
        if (lane.part >= schedule_.parts.size() || lane.connection >= schedule_.connections.size()) {
          return wrong(where + ": no such part or connection");
        }
        const Connection& connection = schedule_.connections[lane.connection];
        if ((lane.sends ? connection.from : connection.to) != rank ||
            (lane.sends ? connection.from_lane : connection.to_lane) != l) {
          return wrong(where + ": its connection does not end there");
        }
        const Part& part = schedule_.part_of(lane);
        for (const Op& op : lane.ops) {
          if (op.chunk >= part.chunks_per_segment()) return wrong(where + ": no such chunk");
          if ((op.kind == OpKind::kSend) != lane.sends)
            return wrong(where + ": sends and receives in one lane");
          for (const Wait& wait : op.waits) {
            if (wait.none()) continue;
            if (wait.lane >= lanes.size() || wait.op >= lanes[wait.lane].ops.size()) {
              return wrong(where + ": waits for an operation that there is not");
            }
            if (!wait.last && schedule_.iterations(lanes[wait.lane]) != part.segments) {
              return wrong(where + ": waits for the same segment of a part with other segments");
            }
          }
        }
      }
    }
    for (const Connection& connection : schedule_.connections) {
      if (connection.from >= schedule_.ranks || connection.to >= schedule_.ranks ||
          connection.from == connection.to ||
          connection.from_lane >= schedule_.lanes[connection.from].size() ||
          connection.to_lane >= schedule_.lanes[connection.to].size()) {
        return wrong("a connection without two ends");
      }
      const Lane& from = schedule_.lanes[connection.from][connection.from_lane];
      const Lane& to = schedule_.lanes[connection.to][connection.to_lane];
      if (from.part != to.part || from.ops.size() != to.ops.size()) {
        return wrong("from rank " + std::to_string(connection.from) + " to " + std::to_string(connection.to) +
                     ": not as many sends as receives");
      }
    }
    return {};
  }

  void prepare() {
    const size_t chunks = schedule_.chunks();
    values_.assign(schedule_.ranks * chunks * words_, 0);
    histories_.resize(schedule_.ranks * chunks);
    messages_.resize(schedule_.connections.size());
    lanes_.resize(schedule_.ranks);
    for (uint32_t rank = 0; rank < schedule_.ranks; ++rank) {
      lanes_[rank].resize(schedule_.lanes[rank].size());
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        bool has = true;
        if (schedule_.collective == Collective::kBroadcast) has = rank == schedule_.root;
        if (!schedule_.origin.empty()) has = schedule_.origin[chunk] == rank;
        if (has) value(rank, chunk)[rank / 64] |= uint64_t{1} << rank % 64;
      }
      for (uint16_t lane = 0; lane < lanes_[rank].size(); ++lane) enqueue(rank, lane);
    }
  }

  uint64_t* value(uint32_t rank, uint32_t chunk) {
    return &values_[(static_cast<size_t>(rank) * schedule_.chunks() + chunk) * words_];
  }

  void enqueue(uint32_t rank, uint16_t lane) {
    if (std::exchange(lanes_[rank][lane].queued, true)) return;
    queue_.emplace_back(rank, lane);
  }

  /// The complete value of a chunk, which the end must show.
  Contributions complete(uint32_t chunk) const {
    Contributions all(words_, 0);
    const auto add = [&](uint32_t rank) { all[rank / 64] |= uint64_t{1} << rank % 64; };
    if (schedule_.collective == Collective::kBroadcast) {
      add(schedule_.root);
    } else if (!schedule_.origin.empty()) {
      add(schedule_.origin[chunk]);
    } else {
      for (uint32_t rank = 0; rank < schedule_.ranks; ++rank) add(rank);
    }
    return all;
  }

  /// How many operations of the lane must have completed before the wait is over.
  uint32_t wanted(uint32_t rank, const Wait& wait, uint32_t segment) const {
    const Lane& lane = schedule_.lanes[rank][wait.lane];
    const uint32_t of = wait.last ? static_cast<uint32_t>(schedule_.iterations(lane)) - 1 : segment;
    return of * static_cast<uint32_t>(lane.ops.size()) + wait.op + 1;
  }

  /// Runs the lane's next operation. False: it is at its end or must wait.
  bool step(uint32_t rank, uint16_t number) {
    const Lane& lane = schedule_.lanes[rank][number];
    LaneState& state = lanes_[rank][number];
    if (lane.ops.empty() || state.segment == schedule_.iterations(lane)) return false;
    const Op& op = lane.ops[state.op];
    for (const Wait& wait : op.waits) {
      if (wait.none() || lanes_[rank][wait.lane].done >= wanted(rank, wait, state.segment)) continue;
      lanes_[rank][wait.lane].waiting.push_back(number);
      return false;
    }
    const Connection& connection = schedule_.connections[lane.connection];
    auto& messages = messages_[lane.connection];
    if (lane.sends ? messages.size() >= connection.credits : messages.empty()) return false;

    advance_clock(rank, number, op);
    const uint32_t chunk = schedule_.part_of(lane).chunk(state.segment, op.chunk);
    order(rank, number, chunk, !lane.sends);
    if (error_.empty()) lane.sends ? send(rank, number, chunk) : receive(rank, number, op.kind, chunk);
    if (!error_.empty()) return false;

    if (++state.op == lane.ops.size()) state.op = 0, ++state.segment;
    lane.sends ? enqueue(connection.to, connection.to_lane) : enqueue(connection.from, connection.from_lane);
    for (const uint16_t other : std::exchange(state.waiting, {})) enqueue(rank, other);
    return true;
  }

  /// The operation's clock: of each lane of the rank, how many operations are known to be over when this one
  /// begins.
  void advance_clock(uint32_t rank, uint16_t number, const Op& op) {
    const size_t width = lanes_[rank].size();
    LaneState& state = lanes_[rank][number];
    clock_.assign(width, 0);
    if (state.done > 0) std::copy_n(&state.clocks[(state.done - 1) * width], width, clock_.begin());
    for (const Wait& wait : op.waits) {
      if (wait.none()) continue;
      const uint32_t count = wanted(rank, wait, state.segment);
      const uint32_t* other = &lanes_[rank][wait.lane].clocks[(count - 1) * width];
      for (size_t i = 0; i < width; ++i) clock_[i] = std::max(clock_[i], other[i]);
    }
    ++state.done;
    state.clocks.insert(state.clocks.end(), clock_.begin(), clock_.end());
    state.clocks[(state.done - 1) * width + number] = state.done;
  }

  /// Compares the operation with those on the same chunk that it conflicts with, and takes note of it.
  void order(uint32_t rank, uint16_t number, uint32_t chunk, bool writes) {
    History& history = histories_[static_cast<size_t>(rank) * schedule_.chunks() + chunk];
    const auto unordered = [&](const Access& before) {
      return before.lane != Wait::kNone && before.lane != number && clock_[before.lane] < before.count;
    };
    const Access* conflict = unordered(history.write) ? &history.write : nullptr;
    for (const Access& read : history.reads) {
      if (writes && conflict == nullptr && unordered(read)) conflict = &read;
    }
    if (conflict != nullptr) {
      error_ = place(rank, number) + ": not ordered with what lane " + std::to_string(conflict->lane) +
               " does with chunk " + std::to_string(chunk);
      return;
    }
    const Access now{number, lanes_[rank][number].done};
    if (writes) {
      history.write = now;
      history.reads.clear();
    } else {
      history.reads.push_back(now);
    }
  }

  void send(uint32_t rank, uint16_t number, uint32_t chunk) {
    const uint64_t* held = value(rank, chunk);
    if (empty(held, words_)) {
      error_ = place(rank, number) + ": sends chunk " + std::to_string(chunk) + " of which it has nothing";
      return;
    }
    messages_[schedule_.lanes[rank][number].connection].push_back(
        {chunk, Contributions(held, held + words_)});
  }

  void receive(uint32_t rank, uint16_t number, OpKind kind, uint32_t chunk) {
    auto& messages = messages_[schedule_.lanes[rank][number].connection];
    const Message message = std::move(messages.front());
    messages.pop_front();
    uint64_t* held = value(rank, chunk);
    const std::string subject = place(rank, number) + ": ";
    if (message.chunk != chunk) {
      error_ = subject + "expects chunk " + std::to_string(chunk) + " and is sent " +
               std::to_string(message.chunk);
      return;
    }
    switch (kind) {
      case OpKind::kSend:
        break;
      case OpKind::kRecv:
        if (!empty(held, words_))
          error_ = subject + "receives into chunk " + std::to_string(chunk) + ", which holds something";
        break;
      case OpKind::kRecvReduce:
        for (size_t i = 0; i < words_; ++i) {
          if ((held[i] & message.value[i]) != 0)
            error_ = subject + "adds a contribution to chunk " + std::to_string(chunk) + " twice";
        }
        break;
      case OpKind::kRecvCopy:
        for (size_t i = 0; i < words_; ++i) {
          if ((held[i] & ~message.value[i]) != 0) {
            error_ = subject + "copies a partial result over chunk " + std::to_string(chunk) +
                     ", which holds what it lacks";
          }
        }
        if (std::equal(message.value.begin(), message.value.end(), held)) {
          error_ = subject + "copies chunk " + std::to_string(chunk) + " to where it is already";
        }
        break;
    }
    for (size_t i = 0; i < words_; ++i)
      held[i] = kind == OpKind::kRecvCopy ? message.value[i] : held[i] | message.value[i];
  }

  Result<void> check_end() {
    for (uint32_t rank = 0; rank < schedule_.ranks; ++rank) {
      for (uint16_t lane = 0; lane < lanes_[rank].size(); ++lane) {
        const Lane& of = schedule_.lanes[rank][lane];
        if (of.ops.empty() || lanes_[rank][lane].segment == schedule_.iterations(of)) continue;
        return wrong("deadlock: " + place(rank, lane) + " is never run");
      }
    }
    for (uint32_t chunk = 0; chunk < schedule_.chunks(); ++chunk) {
      const Contributions all = complete(chunk);
      for (uint32_t rank = 0; rank < schedule_.ranks; ++rank) {
        if (!schedule_.owner.empty() && schedule_.owner[chunk] != rank) continue;
        if (std::equal(all.begin(), all.end(), value(rank, chunk))) continue;
        return wrong("rank " + std::to_string(rank) + " does not end with all of chunk " +
                     std::to_string(chunk));
      }
    }
    return {};
  }

  const Schedule& schedule_;
  const size_t words_;
  std::vector<uint64_t> values_;
  std::vector<History> histories_;
  std::vector<std::deque<Message>> messages_;
  std::vector<std::vector<LaneState>> lanes_;
  std::deque<std::pair<uint32_t, uint16_t>> queue_;
  std::vector<uint32_t> clock_;
  std::string error_;
};

}  // namespace

Result<void> check(const Schedule& schedule) { return Execution(schedule).run(); }

}  // namespace r2ccl::collective
