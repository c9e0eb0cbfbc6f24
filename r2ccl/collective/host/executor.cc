// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/executor.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "r2ccl/collective/host/executor_state.h"

namespace r2ccl::collective {

Executor::Executor(Transport& transport, ExecutorLimits limits) : transport_(transport), limits_(limits), window_(limits.window_bytes) {}
Executor::~Executor() = default;

Executor::End& Executor::end(uint32_t number, bool sends) {
  if (number >= ends_.size()) ends_.resize(number + 1);
  if (!ends_[number]) {
    ends_[number] = std::make_unique<End>();
    ends_[number]->number = number;
    ends_[number]->sends = sends;
    (sends ? senders_ : receivers_).push_back(ends_[number].get());
  }
  return *ends_[number];
}

Executor::Run* Executor::begin(Work work) {
  std::unique_ptr<Run> run;
  if (free_runs_.empty()) {
    run = std::make_unique<Run>();
  } else {
    run = std::move(free_runs_.back());
    free_runs_.pop_back();
  }
  run->work = std::move(work);
  const Program& program = *run->work.program;
  run->done.assign(program.lanes().size(), 0);
  run->written.assign(run->work.ranges->size(), 0);
  run->open_lanes = 0;
  run->copied = 0;
  run->number = begun_++;
  const auto slot = static_cast<uint32_t>(run->number % program.slots());
  for (size_t lane = 0; lane < program.lanes().size(); ++lane) {
    if (run->operations(lane) == 0) continue;
    ++run->open_lanes;
    end(program.end(lane, slot), program.lanes()[lane].sends).tasks.push_back({run.get(), static_cast<uint16_t>(lane)});
  }
  runs_.push_back(std::move(run));
  return runs_.back().get();
}

bool Executor::finished(const Run* run) const { return run->finished(); }

void Executor::release(Run* run) {
  const auto it = std::find_if(runs_.begin(), runs_.end(), [run](const auto& held) { return held.get() == run; });
  if (it == runs_.end()) return;
  run->work = {};
  free_runs_.push_back(std::move(*it));
  runs_.erase(it);
}

bool Executor::waits_over(const Run& run, const Op& op, uint32_t segment) const {
  const Schedule& schedule = run.work.program->schedule();
  for (const Wait& wait : op.waits) {
    if (wait.none()) continue;
    const Lane& lane = run.work.program->lanes()[wait.lane];
    const uint32_t of = wait.last ? static_cast<uint32_t>(schedule.iterations(lane)) - 1 : segment;
    if (run.done[wait.lane] < of * lane.ops.size() + wait.op + 1) return false;
  }
  return true;
}

void Executor::complete(Run& run, uint16_t lane) {
  if (++run.done[lane] == run.operations(lane)) --run.open_lanes;
}

Executor::Cursor Executor::front(const End& end) const {
  const Task& task = end.tasks.front();
  const Program& program = *task.run->work.program;
  const Lane& lane = program.lanes()[task.lane];
  Cursor at;
  at.op = &lane.ops[task.op];
  at.chunk = program.schedule().part_of(lane).chunk(task.segment, at.op->chunk);
  const auto [first, count] = (*task.run->work.ranges)[at.chunk];
  at.from = first * task.run->work.element_bytes;
  at.bytes = count * task.run->work.element_bytes;
  return at;
}

/// The cursor moves behind `posted` more bytes of the chunk.
void Executor::advance(End& end, const Cursor& at, uint64_t posted) {
  Task& task = end.tasks.front();
  const Program& program = *task.run->work.program;
  const Lane& lane = program.lanes()[task.lane];
  task.offset += posted;
  if (task.offset < at.bytes) return;
  task.offset = 0;
  if (++task.op < lane.ops.size()) return;
  task.op = 0;
  if (++task.segment == program.schedule().iterations(lane)) end.tasks.pop_front();
}

/// Chunks without bytes have no message; they complete in their turn. True: one has been passed.
bool Executor::pass_empty(End& end) {
  bool moved = false;
  while (!end.tasks.empty() && !end.full()) {
    const Cursor at = front(end);
    const Task task = end.tasks.front();
    if (at.bytes > 0) break;
    if (!waits_over(*task.run, *at.op, task.segment)) break;
    if (end.posted == end.completed) {
      complete(*task.run, task.lane);
    } else {
      Message& message = end.at(end.posted++);
      message = {};
      message.run = task.run;
      message.op = at.op;
      message.segment = task.segment;
      message.chunk = at.chunk;
      message.lane = task.lane;
      message.last = message.arrived = true;
      ++end.chunks_open;
    }
    advance(end, at, 0);
    moved = true;
  }
  return moved;
}

/// Credits: chunks that may be under way, or arrived and not taken.
bool Executor::may_post(const End& end, const Cursor& at) const {
  if (end.full()) return false;
  const Task& task = end.tasks.front();
  if (task.offset > 0) return true;
  const Connection& connection = task.run->work.program->connection(task.lane);
  return end.chunks_open < connection.credits || (end.chunks_open + 1) * at.bytes <= limits_.credit_bytes;
}

/// Of each rail the oldest messages, until one of them is not done: a rail is a channel of its own, which writes and
/// reads ACKs only when its own messages are tested.
Result<bool> Executor::test(End& end) {
  bool moved = false;
  uint32_t open = 0;  // rails with a message that is not done
  for (uint64_t number = end.completed; number < end.posted; ++number) {
    Message& message = end.at(number);
    const uint32_t rail = 1u << message.rail;
    if (message.arrived || (open & rail) != 0) continue;
    auto outcome = transport_.test(message.request);
    if (!outcome) return outcome.error();
    if (!outcome->done) {
      open |= rail;
      continue;
    }
    if (!end.sends && outcome->bytes != message.bytes) {
      return Error{ErrorCode::kInvalidArgument,
                   "a message of " + std::to_string(outcome->bytes) + " bytes arrived where the schedule has " +
                       std::to_string(message.bytes) + ": ranks do not run the same operation"};
    }
    message.arrived = true;
    moved = true;
    if (end.sends) window_.done(message.rail, message.bytes, transport_.now() - message.posted_at);
  }
  while (end.sends && end.completed < end.posted && end.at(end.completed).arrived) {
    const Message& message = end.at(end.completed++);
    if (!message.last) continue;
    complete(*message.run, message.lane);
    --end.chunks_open;
  }
  return moved;
}

Result<bool> Executor::post_receives(End& end) {
  bool moved = false;
  for (;;) {
    moved |= pass_empty(end);
    if (end.tasks.empty()) break;
    const Cursor at = front(end);
    if (at.bytes == 0 || !may_post(end, at)) break;
    const Task& task = end.tasks.front();
    const bool adds = at.op->kind == OpKind::kRecvReduce;
    // A sum waits for its addition, not for its transfer; everything else writes into the result.
    if (!adds && !waits_over(*task.run, *at.op, task.segment)) break;
    Message message;
    message.run = task.run;
    message.op = at.op;
    message.segment = task.segment;
    message.chunk = at.chunk;
    message.lane = task.lane;
    message.from = at.from + task.offset;
    transport_.route(end.number, task.run->work.program->rails(task.lane));
    const RailTurns::Message part = transport_.next(end.number, at.bytes, task.offset, limits_.message_bytes);
    message.rail = part.rail;
    message.bytes = part.bytes;
    message.last = task.offset + message.bytes == at.bytes;
    Result<void*> request{nullptr};
    if (adds) {
      if (!end.memory.data) {
        const size_t bytes = limits_.staging_bytes / task.run->work.program->slots();
        auto memory = transport_.staging(bytes);
        if (!memory) return memory.error();
        end.memory = *memory;
        end.staging = StagingRing(bytes);
      }
      StagingRing before = end.staging;
      const auto piece = end.staging.take(message.bytes);
      if (!piece) break;
      message.piece = *piece;
      message.staged = end.memory.data + piece->offset;
      request = transport_.irecv(end.number, message.staged, message.bytes, end.memory.registration);
      if (!request || !*request) end.staging = before;
    } else {
      const Work::Memory memory = task.run->result(message.from);
      request = transport_.irecv(end.number, memory.at(message.from), message.bytes, memory.registration);
    }
    if (!request) return request.error();
    if (!*request) break;
    message.request = *request;
    if (task.offset == 0) ++end.chunks_open;
    end.at(end.posted++) = message;
    advance(end, at, message.bytes);
    moved = true;
  }
  return moved;
}

/// A lane's virtual time: the operations that it has sent, and how much of the one that it is at. All lanes of a
/// schedule carry their weight's part of each operation, so this is bytes over weight.
double Executor::progress_of(const End& end) const {
  const Task& task = end.tasks.front();
  const Lane& lane = task.run->work.program->lanes()[task.lane];
  const double operations = static_cast<double>(lane.ops.size());
  const double within = (static_cast<double>(task.op) + static_cast<double>(task.segment) * operations) /
                        (operations * task.run->work.program->schedule().iterations(lane));
  return static_cast<double>(task.run->number) + within;
}

// Weighted fair queueing: the lane of the least virtual time is next, of those that have something to send to
// somebody who waits for it. A lane that had to wait for its turn in the schedule catches up: how much each has
// to carry is known beforehand, and a port at its limit has nothing to give away.
Result<bool> Executor::post_sends() {
  bool moved = false;
  window_.adapt();
  for (End* end : senders_) end->refused = false;
  for (;;) {
    End* next = nullptr;
    double least = 0;
    for (End* end : senders_) {
      if (end->refused) continue;
      moved |= pass_empty(*end);
      if (end->tasks.empty()) continue;
      const Cursor at = front(*end);
      const Task& task = end->tasks.front();
      if (at.bytes == 0 || end->full() || (task.offset == 0 && !waits_over(*task.run, *at.op, task.segment))) {
        end->refused = true;
        continue;
      }
      const double progress = progress_of(*end);
      if (!next || progress < least) next = end, least = progress;
    }
    if (!next) return moved;
    const Cursor at = front(*next);
    const Task& task = next->tasks.front();
    Run& run = *task.run;
    Message message;
    message.run = &run;
    message.op = at.op;
    message.segment = task.segment;
    message.chunk = at.chunk;
    message.lane = task.lane;
    message.from = at.from + task.offset;
    transport_.route(next->number, run.work.program->rails(task.lane));
    const RailTurns::Message part = transport_.next(next->number, at.bytes, task.offset, limits_.message_bytes);
    message.rail = part.rail;
    message.bytes = part.bytes;
    message.last = task.offset + message.bytes == at.bytes;
    if (!window_.room(message.bytes)) return moved;
    const Work::Memory memory = run.written[at.chunk] ? run.result(message.from) : run.work.own;
    auto request = transport_.isend(next->number, memory.at(message.from), message.bytes, memory.registration);
    if (!request) return request.error();
    if (!*request) {
      next->refused = true;
      continue;
    }
    message.request = *request;
    if (task.offset == 0) ++next->chunks_open;
    message.posted_at = transport_.now();
    window_.posted(message.rail, message.bytes);
    ++counters_.messages_sent;
    counters_.bytes_sent += message.bytes;
    next->at(next->posted++) = message;
    advance(*next, at, message.bytes);
    moved = true;
  }
}

/// Takes what has arrived, in order: adds it, or finds it in its place.
Result<bool> Executor::take(End& end, size_t& budget) {
  bool moved = false;
  while (end.completed < end.posted) {
    Message& message = end.at(end.completed);
    if (!message.arrived) break;
    Run& run = *message.run;
    if (message.staged) {
      if (!waits_over(run, *message.op, message.segment)) break;
      if (budget == 0) return moved;
      const bool again = run.written[message.chunk] != 0;
      const auto began = transport_.now();
      while (message.taken < message.bytes && budget > 0) {
        // A piece ends at an element.
        const uint64_t piece = std::min<uint64_t>(kPieceBytes, message.bytes - message.taken);
        const uint64_t at = message.from + message.taken;
        std::byte* to = run.result(at).at(at);
        run.work.reduce(to, again ? to : run.work.own.at(at), message.staged + message.taken,
                        piece / run.work.element_bytes);
        message.taken += piece;
        budget -= std::min<size_t>(budget, piece);
        counters_.bytes_reduced += piece;
        moved = true;
      }
      counters_.reducing += std::chrono::duration_cast<std::chrono::nanoseconds>(transport_.now() - began);
      if (message.taken < message.bytes) return moved;
      end.staging.free_up_to(message.piece);
    }
    if (message.last) {
      if (message.bytes > 0) run.written[message.chunk] = 1;
      complete(run, message.lane);
      --end.chunks_open;
    }
    ++counters_.messages_received;
    ++end.completed;
    moved = true;
  }
  return moved;
}

bool Executor::copy(size_t& budget) {
  bool moved = false;
  for (const auto& run : runs_) {
    const Work& work = run->work;
    while (run->copied < work.copy_bytes && budget > 0) {
      const size_t piece = std::min(kPieceBytes, work.copy_bytes - run->copied);
      std::memcpy(work.copy_to + run->copied, work.copy_from + run->copied, piece);
      run->copied += piece;
      budget -= std::min(budget, piece);
      moved = true;
    }
  }
  return moved;
}

Result<bool> Executor::poll() {
  if (error_) return *error_;
  bool moved = false;
  const auto keep = [&](Result<bool> step) {
    if (!step) error_ = step.error();
    moved |= step.ok() && *step;
    return step.ok();
  };
  for (End* end : senders_)
    if (end->completed < end->posted && !keep(test(*end))) return *error_;
  size_t budget = limits_.reduced_per_poll;
  for (size_t i = 0; i < receivers_.size(); ++i) {
    End* end = receivers_[(first_taken_ + i) % receivers_.size()];
    if (end->completed < end->posted && (!keep(test(*end)) || !keep(take(*end, budget)))) return *error_;
    if (!end->tasks.empty() && !keep(post_receives(*end))) return *error_;
  }
  if (!receivers_.empty()) first_taken_ = (first_taken_ + 1) % receivers_.size();
  moved |= copy(budget);
  if (!keep(post_sends())) return *error_;
  return moved;
}

}  // namespace r2ccl::collective
