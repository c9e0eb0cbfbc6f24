// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/channel/sender.h"

#include <algorithm>
#include <cstring>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"
#include "r2ccl/protocol/sent.h"

namespace r2ccl {
namespace {

// Messages up to this size are copied before they are written.
constexpr uint32_t kCopiedFirst = 256;

// A message number's low bits and a segment number share the lower half of a work request's id.
uint32_t detail_of(uint64_t message, uint32_t segment) { return uint32_t(message & 0xffffff) << 8 | segment; }

}  // namespace

Result<std::shared_ptr<Sender>> Sender::start(ProcessContext& context, int nic, const wire::Handle& handle) {
  if (handle.magic != wire::kHandleMagic)
    return Error{ErrorCode::kBadHandle, "the connect handle was not made by this plugin"};
  if (handle.version != wire::kWireVersion)
    return Error{ErrorCode::kVersionMismatch, "the listening rank speaks wire version " +
                                                  std::to_string(handle.version) + ", this one speaks " +
                                                  std::to_string(wire::kWireVersion)};
  auto fd = control::start_connect(handle.where, nullptr, context.silence());
  if (!fd && !is_break(context.resilient(), true, false)) return fd.error();
  control::Stream stream = fd ? control::Stream(std::move(*fd)) : control::Stream();
  return std::shared_ptr<Sender>(new Sender(context, nic, std::move(stream), handle));
}

Sender::Sender(ProcessContext& context, int nic, control::Stream stream, const wire::Handle& handle)
    : SenderPaths(context, sending_.migration, nic, std::move(stream), handle.token) {
  peer_.listens(handle.where);
  wire::Hello words = hello();
  words.listener = handle.listener;
  send(wire::Type::kHello, words);
}

void Sender::handle_greeting(wire::Type type, const control::Message& message, const Tick& /*tick*/) {
  auto welcome = message.as<wire::Hello>();
  if (type != wire::Type::kWelcome || !welcome) {
    fail(Error{ErrorCode::kAuthentication, "the peer answered with something other than a welcome"});
    return;
  }
  link_.rekey(welcome->nonce);
  if (auto agreed = agree(hello(), *welcome); !agreed) return refuse(agreed.error());
  greeted(*welcome);
}

void Sender::begin_to_meter(Path& path) {
  path.sizes.resize(Path::kSendDepth);
  path.link_meter = context_.link_meter(path.local_nic(), path.remote());
}

bool Sender::write(Path& path, const Request& request, uint32_t segment, Owned owned) {
  ownership_.check(owned);
  const Request::Part& part = request.parts[segment];
  const uint32_t immediate =
      wire::encode({uint32_t(request.message), segment, request.segments, request.ack_soon});
  const int error = path.data.post_write_imm(
      Path::data_work(part.bytes, detail_of(request.message, segment)), request.data + part.offset,
      part.bytes, request.copied ? path.memory_lkey : request.local_keys[size_t(path.local_nic())],
      request.remote_address + part.offset, request.remote_keys[size_t(path.remote_nic())], immediate);
  if (error == 0) {
    if (context_.balances()) {
      if (path.sizes.empty()) begin_to_meter(path);
      path.sizes[path.posted % Path::kSendDepth] = part.bytes;
      path.metered +=
          meter_post(context_.meters[size_t(path.local_nic())], path.link_meter, part.bytes, now_ns);
      if (follows_plan()) context_.planned_bytes.fetch_add(part.bytes, std::memory_order_relaxed);
    }
    ++path.posted;
    return true;
  }
  suspect_post(path, error, owned);
  return false;
}

// Which part of the message goes over which path. False: some queue is full, not now.
bool Sender::divide(Request& request, Path& active, const Registration* registration, Owned owned) {
  ownership_.check(owned);
  request.segments = 1;
  request.parts[0] = {active.id(), 0, request.bytes};
  if (spread_over_.empty() || request.bytes == 0 || !registration) return true;
  if (balance::Splitter::stays(request.bytes) && spread_over_[splitter_.lane_of_tiny()] == &active)
    return true;
  for (const Path* path : spread_over_)
    if (!path->send_queue_room()) return false;
  std::array<balance::Piece, balance::kMaxRails> pieces;
  const size_t count = splitter_.split(request.remote_address, request.bytes, pieces);
  const auto keys_for = [&](const balance::Piece& piece) {
    const Path& path = *spread_over_[piece.lane];
    return (request.copied || registration->lkey(path.local_nic()) != 0) &&
           request.remote_keys[size_t(path.remote_nic())] != 0;
  };
  // A NIC that could not register this buffer is about to be left; until then its part goes with the rest.
  if (!std::all_of(pieces.begin(), pieces.begin() + count, keys_for)) return true;
  request.segments = uint32_t(count);
  for (size_t i = 0; i < count; ++i)
    request.parts[i] = {spread_over_[pieces[i].lane]->id(), pieces[i].offset, pieces[i].bytes};
  return true;
}

void Sender::spread(std::span<const balance::LaneShare> shares, Owned owned) {
  std::vector<uint32_t> carriers{active() ? active()->id() : 0};
  for (const Path* lane : lanes(owned)) carriers.push_back(lane->id());
  balance::Spread next = balance::spread(carriers, shares, for_tiny());
  if (next == spread_) return;
  spread_ = std::move(next);
  spread_over_.clear();
  for (const uint32_t path : spread_.over) spread_over_.push_back(carrying(path));
  // Numbers of the channels of one home NIC differ by multiples of the NICs.
  splitter_.set(spread_.parts, spread_.for_tiny, number() * 0x9e3779b1u >> 16);
}

const Path* Sender::path_of_tiny() const {
  return spread_over_.empty() ? active() : spread_over_[splitter_.lane_of_tiny()];
}

const Path* Sender::lane_for_tiny(int nic) const {
  for (size_t lane = 0; lane < spread_over_.size(); ++lane)
    if (spread_over_[lane]->local_nic() == nic && splitter_.may_carry_tiny(lane)) return spread_over_[lane];
  return nullptr;
}

struct Sender::Messages {
  const Sender& s;
  static constexpr bool holds(Rule) { return true; }
  bool acknowledged() const { return s.context_.strict_ack(); }
  const Request& request(uint64_t message) const { return s.requests_[message % wire::kRingLines]; }
  bool known(uint64_t message) const { return request(message).message == message; }
  bool kept(uint64_t message) const { return s.holds(request(message), message); }
  uint32_t segments(uint64_t message) const { return request(message).segments; }
  uint32_t path_of(uint64_t message, uint32_t segment) const { return request(message).parts[segment].path; }
  uint32_t bytes_of(uint64_t message, uint32_t segment) const {
    return request(message).parts[segment].bytes;
  }
  bool carries(uint32_t path) const { return s.carrying(path) != nullptr; }
  static constexpr bool written(uint64_t, uint32_t) { return true; }
};

bool Sender::rests(const Path& path, Owned owned) const {
  ownership_.check(owned);
  const Messages messages{*this};
  return sending_.is_over(messages, path.id(), path.posted == path.completed);
}

Result<Request*> Sender::post(void* data, size_t bytes, Registration* registration, ProgressThread& thread) {
  if (status() == Status::kFailed) return error();
  if (status() == Status::kMigrating) activity_.wants_a_path();
  if (status() != Status::kReady || !ownership_.try_acquire()) return nullptr;
  const OwnershipGuard owned(ownership_, std::adopt_lock);
  Path* path = active();
  const uint64_t message = sending_.ledger.next();
  Request* request = free_request(message);
  if (!path || !request || status() != Status::kReady || !path->send_queue_room()) return nullptr;
  wire::CtsLine& line = line_;
  if (!wire::read_line(memory_->lines[message % wire::kRingLines], uint32_t(message) + 1, line)) {
    // The line may be missing because this end's QP is dead, and with nothing open nobody else looks.
    if (++empty_posts_ % kEmptyPostsPerLook == 0) drain(*path, owned);
    return nullptr;
  }
  if (lines_read_ <= message) {
    lines_read_ = message + 1;
    sending_.confirmed_low(line.received, (line.far_nics & wire::kWaitedLong) != 0, now_ns);
  }
  request->bytes = uint32_t(std::min<size_t>(bytes, line.bytes));
  const bool is_small = request->bytes <= context_.copied_bytes() && context_.copied_bytes() > 0;
  std::optional<uint32_t> copy;
  if (is_small) copy = copies_.take(message, request->bytes, sending_.surely_received());
  request->copied = copy.has_value();
  const auto lacks_key = [&](int nic) { return registration && bytes > 0 && registration->lkey(nic) == 0; };
  if (!request->copied && lacks_key(path->local_nic())) {  // the channel is about to leave this NIC
    activity_.wants_a_path();
    return nullptr;
  }
  request->data = static_cast<uint8_t*>(data);
  if (registration)
    request->local_keys = registration->lkeys();
  else
    request->local_keys.fill(0);
  request->remote_address = line.address;
  if (context_.balances() && registration && request->bytes > 0)
    memory_is_far(registration->far_nics(), uint8_t(line.far_nics));
  std::copy(std::begin(line.keys), std::end(line.keys), request->remote_keys.begin());
  if (!divide(*request, *path, registration, owned)) return nullptr;
  // The tiniest are copied before they are written: then a NIC reads them where it reads other small things.
  // A larger one is written from the program's buffer, and copied while it is on its way.
  const bool copied_later = copy && request->bytes > kCopiedFirst && !lacks_a_key(*request);
  if (copied_later)
    request->copied = false;
  else if (copy)
    keep_copy(*request, *copy);
  take(*request, message);
  const auto open = [&](uint32_t behind) {
    const uint64_t next = message + behind;
    const uint32_t head = __atomic_load_n(&memory_->lines[next % wire::kRingLines].head, __ATOMIC_RELAXED);
    return head == uint32_t(next) + 1;
  };
  request->ack_soon =
      sending_.asks_for_ack(context_.strict_ack(), copy.has_value(), is_small && !copy, open, now_ns);
  sending_.ledger.open(request->segments);
  thread.opened(*request, false);
  for (uint32_t i = 0; i < request->segments; ++i)  // one that fails is replayed after its path's migration
    if (Path* on = carrying(request->parts[i].path)) write(*on, *request, i, owned);
  if (copied_later) keep_copy(*request, *copy);
  return request;
}

// A part of it is to go over a NIC on which the program's buffer could not be registered.
bool Sender::lacks_a_key(const Request& request) const {
  for (uint32_t i = 0; i < request.segments; ++i) {
    const Path* const on = carrying(request.parts[i].path);
    if (on && request.local_keys[size_t(on->local_nic())] == 0) return true;
  }
  return false;
}

// From now on it is sent from the copy, whoever sends it.
void Sender::keep_copy(Request& request, uint32_t at) {
  // What says that the message is there may have been a plain load: where loads may be late, the copy must
  // not be made of what was there before.
  std::atomic_thread_fence(std::memory_order_acquire);
  uint8_t* const copy = memory_->copies + at;
  if (request.bytes > 0) std::memcpy(copy, request.data, request.bytes);
  request.data = copy;
  request.copied = true;
}

void Sender::on_data_sent(Path& path, uint32_t detail, Owned owned) {
  ownership_.check(owned);
  if (path.metered > 0)  // a queue pair completes its work in order
    count_work(path, path.sizes[(path.completed - 1) % Path::kSendDepth], owned);
  // The newest message with these low bits: messages in flight span far less than 2^24.
  const uint64_t last = sending_.ledger.next() - 1;
  sending_.ledger.completed(last - ((last - (detail >> 8)) & 0xffffff), detail & 0xff);
}

void Sender::count_work(Path& path, uint32_t bytes, Owned owned) {
  ownership_.check(owned);
  const double cost = is_far(path) ? context_.config.far_cost() : 1;
  path.metered -= meter_done(context_.meters[size_t(path.local_nic())], path.link_meter, bytes,
                             uint64_t(cost * bytes), now_ns);
}

void Sender::read_confirmation(Owned owned) {
  ownership_.check(owned);
  const uint64_t received = __atomic_load_n(&memory_->received, __ATOMIC_ACQUIRE);
  sending_.confirmed(received & ~wire::kAckWaitedLong, (received & wire::kAckWaitedLong) != 0, now_ns);
  for (wire::CtsLine line;
       wire::read_line(memory_->lines[lines_read_ % wire::kRingLines], uint32_t(lines_read_) + 1, line);
       ++lines_read_)
    sending_.confirmed_low(line.received, (line.far_nics & wire::kWaitedLong) != 0, now_ns);
}

inline void Sender::drain_all(bool active_too, Owned owned) {
  if (active_too) drain(*active(), owned);
  for (Path* lane : lanes(owned))
    if (lane->posted != lane->completed) drain(*lane, owned);
}

class Sender::Host : public Actions {
 public:
  Host(Sender& sender, Owned owned) : Actions(sender), s_(sender), owned_(owned) {
    sender.ownership_.check(owned);
  }
  void look(bool everywhere) {
    if (everywhere) s_.drain_all(true, owned_);
    s_.read_confirmation(owned_);
  }
  bool under_way(uint32_t id) const {
    const Path& path = *s_.carrying(id);
    return path.posted != path.completed;
  }
  void send_ack_query() { s_.send(wire::Type::kAckQuery, wire::Received{s_.sending_.ledger.confirmed(), 0}); }

 private:
  Sender& s_;
  const Owned owned_;
};

void Sender::waited(bool /*patient*/, Owned owned) {
  Host host(*this, owned);
  sending_.waited(host);
  active()->push_work(owned);
  for (Path* lane : lanes(owned)) lane->push_work(owned);
}

bool Sender::has_to_settle(Owned owned) {
  Host host(*this, owned);
  return sending_.has_to_settle(host);
}

void Sender::look_if_awaited() {
  if (!sending_.awaited()) return;
  const OwnershipGuard owned(ownership_);
  Host host(*this, owned);
  sending_.look_if_awaited(host);
}

bool Sender::misses_a_path(bool wanted) {
  const OwnershipGuard owned(ownership_);
  Host host(*this, owned);
  return sending_.misses_a_path(host, wanted);
}

void Sender::on_ack_query(uint64_t received, Owned owned) {
  Host host(*this, owned);
  sending_.confirmed(received, true, now_ns);  // it waits already for long
  sending_.on_wait(host, received);
}

void Sender::on_received(const wire::Received& received, const Tick& tick) {
  Actions actions(*this, tick, trace::DetectedBy::kWatchdog,
                  "its NIC reported completions of messages that the receiver lacks");
  actions.owning([&] { sending_.confirmed(received.received, true, now_ns); });  // somebody had to ask
  sending_.on_received(actions, Messages{*this}, received.received, received.segments);
}

bool Sender::peer_fenced(const wire::Fenced& fenced, const Tick& tick) {
  Actions actions(*this, tick);
  if (!sending_.on_fenced(actions, fenced.epoch, fenced.path, fenced.stopped != 0, fenced.first_incomplete,
                          fenced.segments))
    return false;
  search_.receiver_has(sending_.reported());
  return true;
}

Result<TestOutcome> Sender::test(Request& request, ProgressThread& thread) {
  const Status before = status();
  if (!ownership_.try_acquire()) return TestOutcome{};
  const OwnershipGuard owned(ownership_, std::adopt_lock);
  const bool strict = waits_for_ack(request);
  if (strict) read_confirmation(owned);  // else what has come is read with the next CTS entry
  if (!sending_.ledger.done(request.message, strict) && before == Status::kReady && active()) {
    drain_all(sending_.looks(active()->posted != active()->completed), owned);
    if (strict) read_confirmation(owned);
  }
  const bool done = sending_.ledger.done(request.message, strict);
  if (!done && status() == Status::kFailed) {
    thread.ended(request);
    return error();
  }
  if (!done) {
    nothing_new(owned);
    return TestOutcome{};
  }
  thread.ended(request);
  give_back(request);
  return TestOutcome{true, request.bytes};
}

bool Sender::lacking(Owned owned) const {
  ownership_.check(owned);
  return std::any_of(requests_.begin(), requests_.end(), [this](const Request& request) {
    return in_use(request) && !sending_.ledger.done(request.message, waits_for_ack(request));
  });
}

uint32_t Sender::standing_still(Owned owned) {
  Host host(*this, owned);
  return sending_.standing_still(host);
}

uint32_t Sender::longest_work(uint32_t path, Owned owned) const {
  ownership_.check(owned);
  return r2ccl::longest_work(sending_.ledger, Messages{*this}, path);
}

Path* Sender::replay_on(const Request& request, Owned owned) const {
  const auto see = [&](const Path& path) {
    CarrierSight seen;
    seen.failed = path.failure.has_value();
    seen.room = path.send_queue_room();
    seen.registered =
        request.bytes == 0 || ((request.copied || request.local_keys[size_t(path.local_nic())] != 0) &&
                               request.remote_keys[size_t(path.remote_nic())] != 0);
    seen.under_way = path.posted - path.completed;
    return seen;
  };
  Path* best = active();
  for (Path* lane : lanes(owned))
    if (is_better(see(*lane), see(*best))) best = lane;
  return best;
}

struct Sender::MessagesToSend : Messages {
  Sender& sender;
  uint64_t again = 0, bytes = 0;
  const Owned owned;
  MessagesToSend(Sender& self, Owned has) : Messages{self}, sender(self), owned(has) {}
  void send_again(uint64_t message, uint32_t segment) {
    Request& request = sender.requests_[message % wire::kRingLines];
    Path* path = sender.replay_on(request, owned);
    request.parts[segment].path = path->id();
    if (!is_sent_now(path->failure.has_value()) || !sender.write(*path, request, segment, owned)) return;
    ++again;
    bytes += request.parts[segment].bytes;
  }
  void cannot_send(uint64_t message) {
    sender.fail(Error{ErrorCode::kNicFailed,
                      "message " + std::to_string(message) + " of channel " +
                          std::to_string(sender.number()) +
                          " was completed before the receiver had it, and cannot be retransmitted: "
                          "R2CC_STRICT_ACK=0 allows this"});
  }
};

void Sender::carries_on(bool /*moved*/, Owned owned) {
  MessagesToSend messages(*this, owned);
  sending_.carries_on(messages);
  if (status() == Status::kFailed) return;
  emit(trace::EventType::kReplayed, active()->local_nic(), messages.again, messages.bytes, active()->id());
  context().failure_log.replayed(this, messages.again);
}

}  // namespace r2ccl
