// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/channel/receiver.h"

#include <endian.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "r2ccl/base/log.h"
#include "r2ccl/channel/deeds.h"

namespace r2ccl {

Receiver::Receiver(Core& core, int nic, control::Stream stream, const control::Token& token)
    : Channel(core, receiving_.migration, false, nic, std::move(stream), token) {
  if (core.config.gpu_direct) unflushed_.reserve(size_t(wire::kRingLines) * wire::kMaxNics);
}

void Receiver::handle_greeting(wire::Type type, const control::Message& message, const Tick& /*tick*/) {
  auto hello_from_peer = message.as<wire::Hello>();
  if (type != wire::Type::kHello || !hello_from_peer) {
    fail(Error{ErrorCode::kAuthentication, "a connection began with something other than a hello"});
    return;
  }
  if (auto agreed = check_hello(*hello_from_peer); !agreed) return refuse(agreed.error());
  greeted(*hello_from_peer);
  wire::Hello welcome = hello();
  welcome.nonce = control::random_token();
  send(wire::Type::kWelcome, welcome);
  link_.rekey(welcome.nonce);
}

void Receiver::write_line(Path& path, uint64_t message, HasTurn turn) {
  const size_t slot = message % wire::kRingLines;
  const bool signal = must_signal(path);
  ++path.posted;
  const int error = path.data.post_write(
      Path::work(Path::kWorkCts, path.posted), &memory_->lines[slot], sizeof(wire::CtsLine), path.memory_lkey,
      path.remote().ring + slot * sizeof(wire::CtsLine), path.remote().ring_key, signal);
  if (error != 0) {
    --path.posted;
    suspect_post(path, error, turn);
  } else if (signal) {
    last_signaled_ = path.posted;
  }
}

Result<Request*> Receiver::post(void* data, size_t bytes, Registration* registration) {
  if (status() == Status::kFailed) return error();
  if (status() != Status::kReady || !turn_.try_take()) return nullptr;
  const TurnGuard turn(turn_, std::adopt_lock);
  Path* path = active();
  const uint64_t message = receiving_.ledger.next();
  Request* request = free_request(message);
  if (!path || !request || status() != Status::kReady) return nullptr;
  if (!path->send_queue_room(2)) return no_room(*path, turn);
  receiving_.ledger.open();
  request->channel = this;
  request->message = message;
  request->in_use = true;
  request->data = static_cast<uint8_t*>(data);
  request->bytes = uint32_t(bytes);
  request->flushed = registration && registration->on_gpu();
  for (size_t nic = 0; request->flushed && nic < core_.devices.size(); ++nic)
    request->local_keys[nic] = registration->rkey(int(nic));
  wire::CtsLine& line = memory_->lines[message % wire::kRingLines];
  std::memset(&line, 0, sizeof line);  // no other line made on the stack, which would have to be aligned
  line.head = line.tail = uint32_t(message) + 1;
  line.address = uint64_t(data);
  line.bytes = uint32_t(bytes);
  line.received = uint32_t(receiving_.ledger.received());
  for (int nic = 0; nic < int(core_.devices.size()); ++nic)
    line.keys[nic] = registration ? registration->rkey(nic) : 0;
  line.far_nics = registration ? registration->far_nics() : 0;
  line.check = wire::cts_check(line);
  opened_request();
  receiving_.told = receiving_.ledger.received();
  tests_waited_ = 0;
  write_line(*path, message, turn);  // when it fails the line is repeated after the migration
  return request;
}

void Receiver::on_arrival(Path& path, const ibv_wc& completion, HasTurn turn) {
  // Given back at once: the queue never holds less than the worst case of what may still come.
  if (const int error = path.data.post_receive(completion.wr_id); error != 0 && carries(path))
    suspect_post(path, error, turn);
  const wire::Immediate immediate = wire::decode(be32toh(completion.imm_data));
  const Request& request = requests_[receiving_.ledger.message_of(immediate) % wire::kRingLines];
  const bool hidden = path.flushes() && request.flushed && completion.byte_len > 0;
  const auto outcome = receiving_.ledger.arrive(immediate, completion.byte_len, hidden);
  if (hidden && outcome.arrival == Arrival::kSegment)
    unflushed_.arrived(outcome.message, immediate.segment, completion.byte_len, path.id());
  switch (outcome.arrival) {
    case Arrival::kMessage:
      whole(outcome.message);
      [[fallthrough]];
    case Arrival::kSegment:
      emit(trace::EventType::kSegmentDelivered, path.local_nic(), completion.byte_len, outcome.message,
           path.id());
      break;
    case Arrival::kDuplicate:
      emit(trace::EventType::kDuplicateDropped, path.local_nic(), 0, outcome.message, path.id());
      R2_WARN("NET/R2CCL: channel %u: message %llu arrived twice", number(),
              static_cast<unsigned long long>(outcome.message));
      break;
    case Arrival::kUnknown:
      fail(Error{ErrorCode::kInvalidArgument,
                 "channel " + std::to_string(number()) + ": an immediate without a message arrived"});
      break;
  }
}

void Receiver::whole(uint64_t message) {
  if (receiving_.ledger.bytes(message) > peer_copied_bytes() || peer_copied_bytes() == 0)
    waited_for_ = std::max(waited_for_, message + 1);
}

// One READ at a time, behind all that the path has brought so far.
void Receiver::look_at_flush(Path& path, HasTurn turn) {
  uint64_t covered = 0;
  switch (path.poll_flush(covered, turn)) {
    case ProbeState::kWaiting:
      return;
    case ProbeState::kFailed:
      if (carries(path)) suspect(path, path.last_status, turn);
      return;
    case ProbeState::kAnswered:
      count_progress();
      unflushed_.take(path.id(), covered, [this](const Unflushed::Segment& segment) {
        if (receiving_.ledger.seen(segment.message, segment.segment)) whole(segment.message);
      });
      after_drain(path, turn);
      break;
    case ProbeState::kIdle:
      break;
  }
  const Unflushed::Segment* const newest = unflushed_.newest(path.id());
  if (!newest || path.flush_failed) return;
  const Request& request = requests_[newest->message % wire::kRingLines];
  const int error =
      path.post_flush(request.data, request.local_keys[size_t(path.local_nic())], newest->order, turn);
  if (error != 0 && carries(path)) suspect_post(path, error, turn);
}

// What a NIC that is left has placed can no longer be told from what is still on its way to the GPU.
void Receiver::forget_unflushed(uint32_t path, HasTurn) {
  unflushed_.take(path, [this](const Unflushed::Segment& segment) {
    receiving_.ledger.forget(segment.message, segment.segment, segment.bytes);
  });
}

// Lines and the word go over the path that carries when it is made.
class Receiver::Host : public Deeds {
 public:
  Host(Receiver& receiver, HasTurn turn)
      : Deeds(receiver), r_(receiver), path_(receiver.active()), turn_(turn) {}
  bool peer_copies() const { return r_.peer_copied_bytes() > 0; }
  bool may_repeat() const {
    return !r_.work_requests_open(turn_) && path_->send_queue_room(wire::kRingLines + 1);
  }
  void look() {
    r_.drain_all(turn_);
    for (int look = 0; look < kLooksAtFlush && !r_.unflushed_.empty(); ++look) r_.drain_all(turn_);
  }
  void write_line(uint64_t message) { r_.write_line(*path_, message, turn_); }
  /// To prove the path it is signaled: only a QP that works completes it.
  void write_word(bool prove) {
    if (prove ? r_.status() != Status::kReady : !path_->send_queue_room(1)) return;
    r_.confirm(*path_, prove, turn_);
    if (prove) r_.poke_ = path_->posted;
  }
  void say_wait(uint64_t received) { r_.send(wire::Type::kRemind, wire::Received{received, 0}); }
  /// Over TCP: the word must not hang on the queue pair that it may be missing because of.
  void say_received(uint64_t received, uint16_t segments) {
    r_.send(wire::Type::kReceived, wire::Received{received, segments});
  }

 private:
  Receiver& r_;
  Path* const path_;
  const HasTurn turn_;
};

void Receiver::waited(bool patient, HasTurn turn) {
  Host host(*this, turn);
  receiving_.waited(host, patient);
}

Path* Receiver::standing_still(HasTurn turn) const {
  if (!active()) return nullptr;
  if (active()->flush_under_way()) return active();
  for (Path* lane : lanes(turn))
    if (lane->flush_under_way()) return lane;
  const bool poked = poke_ != 0 && int32_t(active()->completed - poke_) < 0;
  return poked || !active()->send_queue_room(2) ? active() : nullptr;
}

void Receiver::confirm(Path& path, bool signaled, HasTurn turn) {
  receiving_.told = receiving_.ledger.received();
  tests_waited_ = 0;
  uint64_t& staged = memory_->staged_received[path.posted % std::size(memory_->staged_received)];
  staged = receiving_.told;
  const bool signal = must_signal(path) || signaled;
  ++path.posted;
  const int error = path.data.post_write(
      Path::work(Path::kWorkCts, path.posted), &staged, sizeof staged, path.memory_lkey,
      path.remote().ring + offsetof(ChannelMemory, received) - offsetof(ChannelMemory, lines),
      path.remote().ring_key, signal);
  if (error != 0) {
    --path.posted;
    suspect_post(path, error, turn);
  } else if (signal) {
    last_signaled_ = path.posted;
  }
}

void Receiver::after_drain(Path& path, HasTurn turn) {
  if (!carries(path) || !active() || !owes_confirmation() || !active()->send_queue_room(1)) return;
  const bool may_wait =
      lacking(turn) && receiving_.ledger.received() - receiving_.told < kMessagesToWaitForLine;
  if (!may_wait) confirm(*active(), false, turn);
}

void Receiver::hear_remind(uint64_t /*received*/, HasTurn turn) {
  Host host(*this, turn);
  receiving_.hear_question(host);
}

bool Receiver::hear_fenced(const wire::Fenced& fenced, const Tick& tick) {
  Deeds deeds(*this, tick);
  return Conduct(receiving_.migration, deeds).hear_fenced(fenced.epoch, fenced.path, fenced.stopped != 0);
}

Result<TestOutcome> Receiver::test(Request& request) {
  const Status before = status();
  if (!turn_.try_take()) return TestOutcome{};
  const TurnGuard turn(turn_, std::adopt_lock);
  if (!receiving_.ledger.complete(request.message)) {
    if (before == Status::kReady && active()) {
      drain(*active(), turn);
      for (Path* lane : lanes(turn)) drain(*lane, turn);
    }
    if (!receiving_.ledger.complete(request.message)) {
      if (status() == Status::kFailed) return error();
      if (owes_confirmation() && ++tests_waited_ >= kTestsToWaitForLine && status() == Status::kReady &&
          active() && active()->send_queue_room(1))
        confirm(*active(), false, turn);
      nothing_new(turn);
      return TestOutcome{};
    }
  }
  request.in_use = false;
  finished_request();
  return TestOutcome{true, size_t(receiving_.ledger.bytes(request.message))};
}

void Receiver::fill_ledger(wire::Fenced& fenced, HasTurn) const {
  fenced.first_incomplete = receiving_.ledger.report(fenced.segments);
}

void Receiver::carries_on(bool moved, HasTurn turn) {
  const Path& path = *active();
  if (moved) last_signaled_ = path.posted;
  poke_ = 0;
  Host host(*this, turn);
  // Where nothing has moved the lines are on their way, and repeated for good measure.
  receiving_.carries_on(host, moved || path.send_queue_room(wire::kRingLines + 1));
}

}  // namespace r2ccl
