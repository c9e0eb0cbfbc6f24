// SPDX-License-Identifier: Apache-2.0
// How connections become channels: they are accepted, greeted, led to the listener that they name, or back to
// the channel that they belong to.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/receiver.h"
#include "r2ccl/service/service.h"

namespace r2ccl {
namespace {

constexpr uint64_t kHelloBoundNs = 10'000 * kNsPerMs;
constexpr size_t kHelloFrameBytes = control::kHeaderBytes + sizeof(wire::Hello);
constexpr size_t kMostPending = 4096;

// What a hello is answered with that cannot be taken. The sender does not know the keys of any channel yet.
void refuse(control::Stream& stream, const control::Token& token, const Error& error) {
  const wire::Sentence words = sentence(error);
  control::Encoder(control::direction_key(token, {}, false))
      .append(uint16_t(wire::Type::kRefuse), std::as_bytes(std::span(&words, 1)), stream.outgoing);
  stream.flush();
}

}  // namespace

void Service::accept_all(uint64_t now) {
  for (;;) {
    int fd;
    {
      const std::lock_guard lock(mutex_);
      fd = accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    if (fd < 0) {
      // The connection stays where it is, and epoll would say so without end.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!std::exchange(scarce_told_, true))
          R2_WARN("NET/R2CCL: a connection cannot be accepted: %s; accept is retried. Raise 'ulimit -n'.",
                  std::strerror(errno));
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listening_.get(), nullptr);
        listen_again_ = now + kListenAgainNs;
      }
      return;
    }
    control::tune(fd, context_.silence());
    if (pending_.size() < kMostPending)
      pending_.push_back({control::Stream(control::Descriptor(fd)), now});
    else
      close(fd);
  }
}

// A connection becomes a channel when its hello is here, names a listener, and was said by somebody who has
// its token.
void Service::greet(uint64_t now) {
  std::erase_if(pending_, [&](Pending& pending) {
    const bool open = pending.stream.fill();
    if (control::Link::asked(pending.stream.incoming)) return resume(pending);
    if (pending.stream.incoming.size() >= kHelloFrameBytes) return meet(pending);
    return !open || now - pending.since > kHelloBoundNs;
  });
}

// Done with it, in any case.
bool Service::meet(Pending& pending) {
  uint64_t id;
  std::memcpy(&id, pending.stream.incoming.data() + control::kHeaderBytes + offsetof(wire::Hello, listener),
              sizeof id);
  std::shared_ptr<Listener> listener;
  {
    const std::lock_guard lock(mutex_);
    for (auto& candidate : listeners_)
      if (candidate->id == id) listener = candidate;
  }
  if (!listener) return true;  // closed long ago, or a stranger
  const auto first = control::Link::first(pending.stream.incoming, listener->token);
  if (!first || first->message.type != uint16_t(wire::Type::kHello)) {
    R2_INFO("NET/R2CCL: a connection without the token of its listener was refused");
    return true;
  }
  const auto hello = first->message.as<wire::Hello>();
  if (!hello) return true;
  const auto found = listener->callers.try_emplace({hello.value().process, hello.value().channel}).first;
  Listener::Caller& caller = found->second;
  const bool is_new = !caller.channel && !caller.refuse;
  if (caller.attempt && first->attempt <= *caller.attempt) return true;  // an old hello changes nothing
  caller.attempt = first->attempt;
  if (is_new && listener->is_closed()) caller.refuse = std::make_unique<Error>(nobody_listens());
  if (caller.refuse) {
    refuse(pending.stream, listener->token, *caller.refuse);
  } else if (!is_new) {
    meet_again(pending, caller);
  } else {
    auto channel =
        std::make_shared<Receiver>(context_, listener->nic, std::move(pending.stream), listener->token);
    entries_.push_back({channel, listener, &caller});
    caller.channel = channel->number();
    with(*channel, [&] { channel->on_socket({now_ns(), alive_}); });
    watch(entries_.back());
  }
  return true;
}

// The sender has not heard the answer to its hello. If it is known to have heard it, nothing changes.
void Service::meet_again(Pending& pending, const Listener::Caller& caller) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& candidate) {
    return candidate.channel->number() == caller.channel;
  });
  if (entry == entries_.end()) return;
  if (entry->channel->reconnected(std::move(pending.stream), {now_ns(), alive_})) watch(*entry);
}

Error Service::nobody_listens() const {
  return Error{ErrorCode::kPeerGone, context_.host + " has closed the listener"};
}

// A peer whose connection broke. A stranger finds nothing changed.
bool Service::resume(Pending& pending) {
  const auto wanted = control::Link::asked(pending.stream.incoming);
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& candidate) {
    return !candidate.channel->is_sender() && candidate.channel->number() == wanted->channel;
  });
  if (wanted->process != context_.process || entry == entries_.end()) return true;
  if (entry->channel->reconnected(std::move(pending.stream), {now_ns(), alive_})) watch(*entry);
  return true;
}

// A receiver that is ready, or never will be, goes to whoever listens; one that nobody takes ends.
void Service::settle(Entry& entry) {
  const std::shared_ptr<Listener> listener = entry.listener;
  Channel& channel = *entry.channel;
  const Status status = channel.status();
  const std::lock_guard lock(listener->mutex);
  if (status == Status::kConnecting && !listener->closed) return;
  if (status == Status::kConnecting) entry.caller->refuse = std::make_unique<Error>(nobody_listens());
  if (status == Status::kFailed) entry.caller->refuse = std::make_unique<Error>(channel.error());
  const bool stranger = status == Status::kFailed && channel.error().code == ErrorCode::kAuthentication;
  if (stranger || listener->closed)
    channel.close_requested.store(true);
  else
    listener->arrived.push_back(entry.channel);
  entry.listener.reset();
}

}  // namespace r2ccl
