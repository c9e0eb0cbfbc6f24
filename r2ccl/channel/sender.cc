#include "r2ccl/channel/sender.h"

#include <algorithm>
#include <cstring>

#include "r2ccl/base/log.h"

namespace r2ccl {
namespace {

// A message number's low bits and a segment number share the lower half of a work request's id.
uint32_t detail_of(uint64_t message, uint32_t segment) { return uint32_t(message & 0xffffff) << 8 | segment; }

/// Copies a line that a NIC may be writing: word by word, so that the check decides whether it is whole.
bool read_line(const wire::CtsLine& line, uint32_t wanted, wire::CtsLine& out) {
  const auto* from = reinterpret_cast<const uint64_t*>(&line);
  uint64_t words[8];
  words[0] = __atomic_load_n(from, __ATOMIC_ACQUIRE);
  if (uint32_t(words[0]) != wanted) return false;
  for (int i = 1; i < 8; ++i) words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
  std::memcpy(&out, words, sizeof out);
  return out.tail == wanted && out.check == wire::cts_check(out);
}

}  // namespace

Result<std::shared_ptr<Sender>> Sender::start(Core& core, int nic, const wire::Handle& handle) {
  if (handle.magic != wire::kHandleMagic)
    return Error{ErrorCode::kBadHandle, "the connect handle was not made by this plugin"};
  if (handle.version != wire::kWireVersion)
    return Error{ErrorCode::kVersionMismatch, "the listening rank speaks wire version " +
                                                  std::to_string(handle.version) + ", this one speaks " +
                                                  std::to_string(wire::kWireVersion)};
  auto fd = control::start_connect(handle.where);
  if (!fd) return fd.error();
  return std::shared_ptr<Sender>(new Sender(core, nic, control::Stream(std::move(*fd)), handle));
}

Sender::Sender(Core& core, int nic, control::Stream stream, const wire::Handle& handle)
    : Channel(core, true, nic, std::move(stream), handle.token) {
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
  if (auto agreed = check_hello(*welcome); !agreed) return refuse(agreed.error());
  greeted(*welcome);
  link_.rekey(welcome->nonce);
}

bool Sender::write(Path& path, const Request& request) {
  const uint32_t immediate = wire::encode({uint32_t(request.message), 0, 1});
  const int error = path.data.post_write_imm(
      Path::work(Path::kWorkData, detail_of(request.message, 0)), request.data, request.bytes,
      request.local_keys[size_t(path.local_nic())], request.remote_address,
      request.remote_keys[size_t(path.remote_nic())], immediate);
  if (error == 0) {
    ++path.posted;
    return true;
  }
  suspect_post(path, error);
  return false;
}

Result<Request*> Sender::post(void* data, size_t bytes, Registration* registration) {
  if (status() == Status::kFailed) return error();
  if (status() == Status::kMigrating) wanted_.store(true, std::memory_order_relaxed);
  if (status() != Status::kReady || !turn_.try_take()) return nullptr;
  const TurnGuard guard(turn_);
  Path* path = active();
  const uint64_t message = ledger_.next();
  Request* request = free_request(message);
  if (!path || !request || status() != Status::kReady || !path->send_queue_room()) return nullptr;
  wire::CtsLine line;
  if (!read_line(memory_->lines[message % wire::kRingLines], uint32_t(message) + 1, line)) {
    // The line may be missing because this end's QP is dead, and with nothing open nobody else looks.
    if (++empty_posts_ % kEmptyPostsPerLook == 0) drain(*path);
    return nullptr;
  }
  if (lines_read_ <= message) {
    lines_read_ = message + 1;
    ledger_.confirmed_low(line.received);
  }
  const auto lacks_key = [&](int nic) { return registration && bytes > 0 && registration->lkey(nic) == 0; };
  if (lacks_key(path->local_nic())) {  // the channel is about to leave this NIC
    wanted_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  request->channel = this;
  request->message = message;
  request->in_use = true;
  request->data = static_cast<uint8_t*>(data);
  request->bytes = uint32_t(std::min<size_t>(bytes, line.bytes));
  for (int nic = 0; nic < int(core_.devices.size()); ++nic)
    request->local_keys[size_t(nic)] = registration ? registration->lkey(nic) : 0;
  request->remote_address = line.address;
  std::copy(std::begin(line.keys), std::end(line.keys), request->remote_keys.begin());
  ledger_.open(1);
  opened_request();
  write(*path, *request);  // when it fails the message is replayed after the migration
  return request;
}

void Sender::on_data_sent(uint32_t detail) {
  // The newest message with these low bits: messages in flight span far less than 2^24.
  const uint64_t last = ledger_.next() - 1;
  const uint64_t message = last - ((last - (detail >> 8)) & 0xffffff);
  ledger_.completed(message, detail & 0xff);
}

void Sender::read_confirmation() {
  ledger_.confirmed(__atomic_load_n(&memory_->received, __ATOMIC_ACQUIRE));
  for (wire::CtsLine line;
       read_line(memory_->lines[lines_read_ % wire::kRingLines], uint32_t(lines_read_) + 1, line);
       ++lines_read_)
    ledger_.confirmed_low(line.received);
}

void Sender::poke(Path& /*path*/) {
  if (core_.strict_ack() && reminder_.ask(ledger_.reported()))
    send(wire::Type::kRemind, wire::Received{ledger_.confirmed()});
}

bool Sender::told_received(uint64_t up_to) {
  ledger_.confirmed(up_to);
  return reminder_.answered(up_to);
}

Result<TestOutcome> Sender::test(Request& request) {
  const Status before = status();
  if (!turn_.try_take()) return TestOutcome{};
  const TurnGuard guard(turn_);
  const bool strict = core_.strict_ack();
  read_confirmation();
  if (!ledger_.done(request.message, strict) && before == Status::kReady && active()) {
    drain(*active());
    read_confirmation();
  }
  if (!ledger_.done(request.message, strict)) {
    if (status() == Status::kFailed) return error();
    nothing_new();
    return TestOutcome{};
  }
  request.in_use = false;
  finished_request();
  return TestOutcome{true, request.bytes};
}

bool Sender::lacking() const {
  return std::any_of(requests_.begin(), requests_.end(), [this](const Request& request) {
    return request.in_use && !ledger_.done(request.message, core_.strict_ack());
  });
}

bool Sender::work_requests_open() const { return active() && active()->posted != active()->completed; }

void Sender::resume(const wire::Fenced& ledger) {
  // Behind the fence the NIC touches no buffer any more: what the receiver has is done, whatever was
  // reported.
  ledger_.take_report(ledger.first_incomplete, ledger.segments);
  reminder_.moved();
  uint64_t segments = 0, bytes = 0;
  for (uint64_t message = ledger.first_incomplete; message < ledger_.next(); ++message) {
    if (ledger_.missing(message) == 0) continue;
    const Request& request = requests_[message % wire::kRingLines];
    if (!request.in_use || request.message != message) {
      fail(Error{ErrorCode::kNicFailed,
                 "message " + std::to_string(message) + " of channel " + std::to_string(number()) +
                     " was given back before the receiver had it, and cannot be sent again: "
                     "R2CC_STRICT_ACK=0 allows this"});
      return;
    }
    if (!write(*active(), request)) break;  // the next migration sends it
    ++segments;
    bytes += request.bytes;
  }
  // Messages that the receiver has in full but out of order are confirmed by its own word later.
  emit(trace::EventType::kReplayed, active()->local_nic(), segments, bytes, active()->id());
}

}  // namespace r2ccl
