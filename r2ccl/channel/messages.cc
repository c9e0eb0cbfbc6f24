// SPDX-License-Identifier: Apache-2.0
// The control connection: what comes, whom it is for, and what two ends tell each other of themselves first.
#include <cstring>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"
#include "r2ccl/protocol/hearing.h"

namespace r2ccl {
namespace {

// Calls `take` with the payload as a T; one of another size is ignored (and was authenticated: a bug).
template <typename T, typename Take>
void with(const control::Message& message, Take&& take) {
  if (auto payload = message.as<T>()) take(*payload);
}

}  // namespace

void Channel::on_socket(const Tick& tick) {
  if (!link_.open()) return;
  const size_t had = link_.waiting();
  const bool alive = link_.fill();
  if (link_.waiting() != had) set_up_.heard(tick.alive);
  control::Message message;
  for (;;) {
    Result<bool> next = link_.next(message);
    if (!next) {
      if (set_up_.is_news(greeted_))
        R2_WARN("NET/R2CCL: channel %u: %s; the connection is closed", number_, next.error().message.c_str());
      if (is_break(context_.resilient(), sender_, greeted_)) return connection_broke(tick);
      link_.close();
      return fail(next.error());
    }
    if (!*next) break;
    handle(message, tick);
    if (!link_.open()) return;
  }
  if (outage_.is_over(greeted_, link_.up())) connection_restored();
  if (!alive || !link_.flush()) connection_broke(tick);
}

wire::Hello Channel::hello() const {
  wire::Hello hello{};
  hello.magic = wire::kHandleMagic;
  hello.version = wire::kWireVersion;
  hello.mode = uint8_t(context_.config.mode);
  hello.strict_ack = context_.strict_ack();
  hello.process = context_.process;
  hello.requests = kMaxRequests;
  hello.ring_lines = wire::kRingLines;
  hello.nics = uint8_t(context_.devices.size());
  hello.home_nic = uint8_t(home_nic_);
  hello.copied_bytes = uint16_t(context_.copied_bytes());
  hello.channel = number_;
  if (auto where = context_.endpoint(); where) hello.where = *where;
  std::strncpy(hello.host, context_.host.c_str(), sizeof hello.host - 1);
  for (size_t i = 0; i < context_.devices.size(); ++i)
    std::strncpy(hello.nic_names[i], context_.devices[i].name().c_str(), sizeof hello.nic_names[i] - 1);
  return hello;
}

void Channel::greeted(const wire::Hello& peer) {
  peer_.greeted(peer);
  peer_rails_ = context_.rails_to(peer.process, bounds_);
  greeted_ = true;
}

void Channel::refuse(const Error& error) {
  send(wire::Type::kRefuse, sentence(error));
  closing_.has_told();
  fail(error);
}

// It has refused the connection, or failed.
void Channel::peer_failed(const control::Message& message) {
  auto words = message.as<wire::Sentence>();
  if (!words) return;
  words->text[sizeof words->text - 1] = '\0';
  closing_.has_told();  // nothing to tell a peer that told us
  const bool known = words->code > uint32_t(ErrorCode::kOk) && words->code <= uint32_t(ErrorCode::kAfterFork);
  fail(Error{known ? ErrorCode(words->code) : ErrorCode::kSystem,
             (wire::Type(message.type) == wire::Type::kRefuse ? "the connection was refused: "
                                                              : "reported by " + peer_.name() + ": ") +
                 std::string(words->text)});
  emit(trace::EventType::kChannelFailed, home_nic_, words->code);
}

void Channel::handle(const control::Message& message, const Tick& tick) {
  const auto type = wire::Type(message.type);
  const Word word = word_of(type);
  const HearingSight seen{greeted_, closing_.begun(), status() == Status::kFailed};
  if (answers(word, seen)) {
    closing_.heard();
    context_.unanswered.heard(peer_.process());
  }
  switch (hearing(word, seen)) {
    case Hearing::kFail:
      return peer_failed(message);
    case Hearing::kGreet:
      return handle_greeting(type, message, tick);
    case Hearing::kPeerClosed:
      return on_close(message);
    case Hearing::kNoteClosed:
      return closing_.peer_has_closed();
    case Hearing::kTakeIn:
      return take_in(message, tick);
    case Hearing::kIgnore:
      return;
  }
}

void Channel::take_in(const control::Message& message, const Tick& tick) {
  using wire::PathMessage;
  const auto type = wire::Type(message.type);
  switch (type) {
    case wire::Type::kOpen:
      return with<wire::Open>(message, [&](const auto& m) { on_open(m); });
    case wire::Type::kOpened:
      return with<wire::Opened>(message, [&](const auto& m) { on_opened(m, tick); });
    case wire::Type::kProve:
      return with<PathMessage>(message, [&](const auto& m) { on_prove(m.path, tick); });
    case wire::Type::kProved:
      return with<PathMessage>(message, [&](const auto& m) { on_proved(m.path, tick); });
    case wire::Type::kDrop:
      return with<PathMessage>(message, [&](const auto& m) { on_drop(m.path, tick); });
    case wire::Type::kMigrate:
      return with<wire::Migrate>(message, [&](const auto& m) { on_migrate(m, tick); });
    case wire::Type::kFenced:
      return with<wire::Fenced>(message, [&](const auto& m) { on_fenced(m, tick); });
    case wire::Type::kUse:
      return with<wire::Use>(message, [&](const auto& m) { on_use(m, tick); });
    case wire::Type::kNic:
      return with<wire::Nic>(message, [&](const auto& m) { on_peer_nic(m, tick); });
    case wire::Type::kLane:
      return with<PathMessage>(message, [&](const auto& m) { on_lane(m.path); });
    case wire::Type::kRest:
      return with<PathMessage>(message, [&](const auto& m) { on_rest(m.path); });
    case wire::Type::kAckQuery:
      return with<wire::Received>(message, [&](const auto& m) {
        const OwnershipGuard owned(ownership_);
        on_ack_query(m.received, owned);
      });
    case wire::Type::kReceived:
      return with<wire::Received>(message, [&](const auto& m) { on_received(m, tick); });
    default:
      R2_WARN("NET/R2CCL: channel %u: unexpected control message %u", number_, unsigned(message.type));
  }
}

void Channel::on_close(const control::Message& message) {
  const OwnershipGuard owned(ownership_);
  with<wire::Close>(message, [&](const auto& m) {
    closing_.peer_has_closed();
    peer_closed(m, owned);
  });
}

}  // namespace r2ccl
