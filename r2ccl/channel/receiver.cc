// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/channel/receiver.h"

#include <endian.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"
#include "r2ccl/trace/ring.h"

namespace r2ccl {

Receiver::Receiver(ProcessContext& context, int nic, control::Stream stream, const control::Token& token)
    : Channel(context, receiving_.migration, false, nic, std::move(stream), token) {
  if (context.config.gpu_direct) unflushed_.reserve(size_t(wire::kRingLines) * wire::kMaxNics);
}

void Receiver::handle_greeting(wire::Type type, const control::Message& message, const Tick& /*tick*/) {
  auto hello_from_peer = message.as<wire::Hello>();
  if (type != wire::Type::kHello || !hello_from_peer) {
    fail(Error{ErrorCode::kAuthentication, "a connection began with something other than a hello"});
    return;
  }
  wire::Hello welcome = hello();
  if (auto agreed = agree(welcome, *hello_from_peer); !agreed) return refuse(agreed.error());
  greeted(*hello_from_peer);
  welcome.nonce = control::random_token();
  send(wire::Type::kWelcome, welcome);
  link_.rekey(welcome.nonce);
}

void Receiver::write_cts(Path& path, uint64_t message, Owned owned) {
  ownership_.check(owned);
  const size_t slot = message % wire::kRingLines;
  const bool signal = signals_.due(path.posted);
  ++path.posted;
  const int error = path.data.post_write(
      Path::work(Path::kWorkCts, path.posted), &memory_->lines[slot], sizeof(wire::CtsLine), path.memory_lkey,
      path.remote().ring + slot * sizeof(wire::CtsLine), path.remote().ring_key, signal);
  if (error != 0) {
    --path.posted;
    suspect_post(path, error, owned);
  } else if (signal) {
    signals_.set(path.posted);
  }
}

Result<Request*> Receiver::post(void* data, size_t bytes, Registration* registration,
                                ProgressThread& thread) {
  if (status() == Status::kFailed) return error();
  if (status() != Status::kReady || !ownership_.try_acquire()) return nullptr;
  const OwnershipGuard owned(ownership_, std::adopt_lock);
  Path* path = active();
  const uint64_t message = receiving_.ledger.next();
  Request* request = free_request(message);
  if (!path || !request || status() != Status::kReady) return nullptr;
  if (!path->send_queue_room(End::kRoomForCts)) return no_room(*path, owned);
  receiving_.ledger.open();
  take(*request, message);
  request->data = static_cast<uint8_t*>(data);
  request->bytes = uint32_t(bytes);
  request->flushed = registration && registration->on_gpu();
  if (request->flushed) request->local_keys = registration->rkeys();
  static constexpr uint32_t kNoKeys[wire::kMaxNics]{};
  wire::write_line({.head = uint32_t(message) + 1,
                    .address = uint64_t(data),
                    .bytes = uint32_t(bytes),
                    .received = uint32_t(receiving_.ledger.received()),
                    .keys = registration ? registration->rkeys().data() : kNoKeys,
                    .far_nics = (registration ? registration->far_nics() : 0) | receiving_.mark()},
                   memory_->lines[message % wire::kRingLines]);
  thread.opened(*request, true);
  receiving_.tells();
  write_cts(*path, message, owned);  // when it fails the line is repeated after the migration
  // Where it keeps nobody waiting: what arrives is wanted at once.
  give_back_receives(*path, verbs::QueuePair::kReceiveBatch / 2, owned);
  return request;
}

// The queue never holds less than the worst case of what may still come.
void Receiver::give_back_receives(Path& path, uint32_t enough, Owned owned) {
  if (const int error = path.give_back_receives(enough, owned); error != 0 && path.carries())
    suspect_post(path, error, owned);
}

void Receiver::on_arrival(Path& path, const ibv_wc& completion, Owned owned) {
  ownership_.check(owned);
  ++path.receives_used;
  give_back_receives(path, verbs::QueuePair::kReceiveBatch, owned);
  path.carried(completion.byte_len, owned);
  const wire::Immediate immediate = wire::decode(be32toh(completion.imm_data));
  const Request& request = requests_[receiving_.ledger.message_of(immediate) % wire::kRingLines];
  const bool hidden = path.flushes() && request.flushed && completion.byte_len > 0;
  const auto outcome = receiving_.ledger.arrive(immediate, completion.byte_len, hidden);
  if (hidden && outcome.arrival == Arrival::kSegment)
    unflushed_.arrived(outcome.message, immediate.segment, completion.byte_len, path.id());
  switch (outcome.arrival) {
    case Arrival::kMessage:
    case Arrival::kSegment:
      receiving_.segment_came(outcome.message, immediate.ack_soon);
      if (outcome.arrival == Arrival::kMessage) whole(outcome.message);
      // Not emit(): this one is in the way of each message, and wants to be compiled in place.
      trace::Writer::instance().emit(trace::EventType::kSegmentDelivered, uint16_t(path.local_nic()),
                                     number(), completion.byte_len, outcome.message, path.id(),
                                     uint32_t(peer_.process()));
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

void Receiver::whole(uint64_t message) { receiving_.is_whole(message, peer_.copied_bytes()); }

// One READ at a time, behind all that the path has brought so far.
void Receiver::look_at_flush(Path& path, Owned owned) {
  ownership_.check(owned);
  uint64_t covered = 0;
  switch (path.poll_flush(covered, owned)) {
    case ProbeState::kWaiting:
      return;
    case ProbeState::kFailed:
      if (path.carries()) suspect(path, path.last_status, owned);
      return;
    case ProbeState::kAnswered:
      activity_.moved();
      unflushed_.take(path.id(), covered, [this](const Unflushed::Segment& segment) {
        if (receiving_.ledger.seen(segment.message, segment.segment)) whole(segment.message);
      });
      after_drain(path, owned);
      break;
    case ProbeState::kIdle:
      break;
  }
  const Unflushed::Segment* const newest = unflushed_.newest(path.id());
  if (!newest || path.flush_failed) return;
  const Request& request = requests_[newest->message % wire::kRingLines];
  const int error =
      path.post_flush(request.data, request.local_keys[size_t(path.local_nic())], newest->order, owned);
  if (error != 0 && path.carries()) suspect_post(path, error, owned);
}

// CTS entries and ACKs go over the path that is active when the host is made.
class Receiver::Host : public Actions {
 public:
  Host(Receiver& receiver, Owned owned)
      : Actions(receiver), r_(receiver), path_(receiver.active()), owned_(owned) {
    receiver.ownership_.check(owned);
  }
  bool peer_copies() const { return r_.peer_.copied_bytes() > 0; }
  bool room(uint32_t wanted) const { return path_->send_queue_room(wanted); }
  bool flushing(uint32_t id) const { return r_.carrying(id)->flush_under_way(); }
  uint32_t posted() const { return path_->posted; }
  uint32_t completed() const { return path_->completed; }
  bool unflushed() const { return !r_.unflushed_.empty(); }
  void look() { r_.drain_all(owned_); }
  void write_cts(uint64_t message) { r_.write_cts(*path_, message, owned_); }
  /// To prove the path it is signaled: only a QP that works completes it.
  void write_ack(bool prove) { r_.confirm(*path_, prove, owned_); }
  void send_wait(uint64_t received) { r_.send(wire::Type::kAckQuery, wire::Received{received, 0}); }
  /// Over TCP: the queue pair may be the reason why the ACK is missing.
  void send_received(uint64_t received, uint16_t segments) {
    r_.send(wire::Type::kReceived, wire::Received{received, segments});
  }

 private:
  Receiver& r_;
  Path* const path_;
  const Owned owned_;
};

void Receiver::waited(bool patient, Owned owned) {
  Host host(*this, owned);
  receiving_.waited(host, patient);
  active()->push_work(owned);
}

uint32_t Receiver::standing_still(Owned owned) {
  Host host(*this, owned);
  return receiving_.standing_still(host);
}

void Receiver::confirm(Path& path, bool signaled, Owned owned) {
  ownership_.check(owned);
  uint64_t& staged = memory_->staged_received[path.posted % std::size(memory_->staged_received)];
  staged = receiving_.tells_alone();
  const bool signal = signals_.due(path.posted) || signaled;
  ++path.posted;
  const int error = path.data.post_write(
      Path::work(Path::kWorkCts, path.posted), &staged, sizeof staged, path.memory_lkey,
      path.remote().ring + offsetof(ChannelMemory, received) - offsetof(ChannelMemory, lines),
      path.remote().ring_key, signal);
  if (error != 0) {
    --path.posted;
    suspect_post(path, error, owned);
  } else if (signal) {
    signals_.set(path.posted);
  }
}

void Receiver::after_drain(Path& path, Owned owned) {
  ownership_.check(owned);
  if (tests_ || !path.carries() || !active()) return;
  if (receiving_.ack_due(context_.strict_ack()) && active()->send_queue_room(1))
    confirm(*active(), false, owned);
}

bool Receiver::acknowledge() {
  if (!ownership_.try_acquire()) return false;
  const OwnershipGuard owned(ownership_, std::adopt_lock);
  // Behind a migration the peer is told in any case.
  if (receiving_.late_ack_due() && status() == Status::kReady && active() && active()->send_queue_room(1))
    confirm(*active(), false, owned);
  return true;
}

void Receiver::on_ack_query(uint64_t /*received*/, Owned owned) {
  Host host(*this, owned);
  receiving_.on_ack_query(host);
}

bool Receiver::peer_fenced(const wire::Fenced& fenced, const Tick& tick) {
  Actions actions(*this, tick);
  return ChannelEnd(receiving_.migration, actions).on_fenced(fenced.epoch, fenced.path, fenced.stopped != 0);
}

// What else has come waits for the test of its own request.
inline void Receiver::look_for(uint64_t message, Owned owned) {
  const std::vector<Path*>& beside = lanes(owned);
  if (beside.empty()) {
    drain(*active(), owned);
    return;
  }
  if (End::is_crowded(active()->posted - active()->completed, Path::kSendDepth)) drain(*active(), owned);
  arrivals_.look(beside.size() + 1, [&](size_t at) -> balance::Looked {
    const uint64_t before = activity_.progress();
    drain(at == 0 ? *active() : *beside[at - 1], owned);
    return balance::looked(receiving_.ledger.complete(message), activity_.progress() != before);
  });
}

Result<TestOutcome> Receiver::test(Request& request, ProgressThread& thread) {
  const Status before = status();
  if (!ownership_.try_acquire()) return TestOutcome{};
  const OwnershipGuard owned(ownership_, std::adopt_lock);
  bool done = receiving_.ledger.complete(request.message);
  Ack ack = Ack::kNone;
  if (!done) {
    if (before == Status::kReady && active()) {
      tests_ = true;
      look_for(request.message, owned);
      tests_ = false;
    }
    done = receiving_.ledger.complete(request.message);
    if (!done && status() == Status::kFailed) {
      thread.ended(request);
      return error();
    }
    if (done) thread.ended(request);
    ack = receiving_.ack_after_test(context_.strict_ack(), done, thread.may_put_off_ack());
    if (ack == Ack::kNow && status() == Status::kReady && active() && active()->send_queue_room(1))
      confirm(*active(), false, owned);
    if (ack == Ack::kLater) thread.put_off_ack(*this);
    if (!done) {
      nothing_new(owned);
      return TestOutcome{};
    }
  } else {
    thread.ended(request);
  }
  give_back(request);
  return TestOutcome{true, size_t(receiving_.ledger.bytes(request.message))};
}

void Receiver::fill_ledger(wire::Fenced& fenced, Owned owned) {
  ownership_.check(owned);
  fenced.first_incomplete = receiving_.report(unflushed_, fenced.path, fenced.segments);
}

void Receiver::carries_on(bool moved, Owned owned) {
  if (moved) signals_.set(active()->posted);
  Host host(*this, owned);
  receiving_.carries_on(host, moved);
}

}  // namespace r2ccl
