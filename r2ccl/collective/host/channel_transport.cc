// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/channel_transport.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace r2ccl::collective {
namespace {

constexpr uint64_t kGreetingMagic = 0x6c6c6f4343325220;
constexpr size_t kGreetingBytes = 64;     // a cache line each
constexpr size_t kGreetingsBytes = 4096;  // of one registration
constexpr uint32_t kWatch = UINT32_MAX;   // ordinal of a channel that no schedule uses

}  // namespace

ChannelTransport::ChannelTransport(Net& net, int device, Listener* listener, std::vector<Handle> handles,
                                   uint32_t rank, std::chrono::milliseconds connect_bound)
    : net_(net),
      device_(device),
      listener_(listener),
      handles_(std::move(handles)),
      rank_(rank),
      connect_bound_(connect_bound) {}

ChannelTransport::~ChannelTransport() {
  for (const auto& end : ends_)
    if (end->channel) static_cast<void>(net_.close(end->channel));
  for (const auto& [peer, watch] : watches_)
    if (watch->channel) static_cast<void>(net_.close(watch->channel));
  for (const Guest& guest : guests_) static_cast<void>(net_.close(guest.channel));
  for (const auto& [whose, channel] : arrived_) static_cast<void>(net_.close(channel));
  for (const StagingMemory& memory : memory_) static_cast<void>(net_.dereg(nullptr, memory.registration));
  for (const auto& [data, bytes] : mapped_) munmap(data, bytes);
}

uint32_t ChannelTransport::end(uint32_t peer, bool sends, uint32_t ordinal) {
  const auto [known, fresh] =
      numbers_.try_emplace({peer, sends, ordinal}, static_cast<uint32_t>(ends_.size()));
  if (!fresh) return known->second;
  auto end = std::make_unique<End>();
  end->peer = peer;
  end->ordinal = ordinal;
  end->sends = sends;
  end->handle = handles_[peer];
  end->since = std::chrono::steady_clock::now();
  ends_.push_back(std::move(end));
  ++open_;
  return known->second;
}

Result<bool> ChannelTransport::progress() {
  if (open_ == 0) return false;
  bool moved = false;
  if (auto accepted = accept(); !accepted) {
    return accepted.error();
  } else {
    moved = *accepted;
  }
  for (const auto& end : ends_) {
    if (end->ready) continue;
    if (end->sends) {
      auto connected = connect(*end);
      if (!connected) return connected.error();
      moved |= *connected;
    } else {
      moved |= claim(*end);
    }
    if (end->ready) {
      --open_;
      continue;
    }
    if (end->channel || std::chrono::steady_clock::now() - end->since <= connect_bound_) continue;
    if (end->sends) return unreachable(*end);
    if (auto there = look_after(end->peer); !there) return there.error();
  }
  return moved;
}

Error ChannelTransport::unreachable(const End& end) const {
  return Error{ErrorCode::kPeerGone, "no channel to rank " + std::to_string(end.peer) +
                                         " of the CollNet group within " +
                                         std::to_string(connect_bound_.count()) + " ms (R2CC_CONNECT_MS)"};
}

// Who waits for a peer's channel hears nothing of a peer that is gone. A channel the other way fails with it;
// the peer takes it when it comes to the operation, and leaves it idle.
Result<void> ChannelTransport::look_after(uint32_t peer) {
  auto& watch = watches_[peer];
  if (!watch) {
    watch = std::make_unique<End>();
    watch->peer = peer;
    watch->ordinal = kWatch;
    watch->sends = true;
    watch->handle = handles_[peer];
    watch->since = std::chrono::steady_clock::now();
  }
  if (watch->ready) return {};
  auto connected = connect(*watch);
  if (!connected) return connected.error();
  if (!watch->channel && std::chrono::steady_clock::now() - watch->since > connect_bound_)
    return unreachable(*watch);
  return {};
}

Result<StagingMemory> ChannelTransport::staging(size_t bytes) {
  if (!any_) return Error{ErrorCode::kInvalidArgument, "nothing is connected yet"};
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (data == MAP_FAILED)
    return Error{ErrorCode::kSystem,
                 "no memory for " + std::to_string(bytes) + " bytes: " + std::strerror(errno)};
  mapped_.emplace_back(data, bytes);
  auto registration = net_.reg(any_, data, bytes);
  if (!registration) return registration.error();
  memory_.push_back({static_cast<std::byte*>(data), *registration});
  return memory_.back();
}

Result<ChannelTransport::Greeting*> ChannelTransport::greeting_memory(Channel* channel) {
  if (!any_) any_ = channel;
  if (!greetings_.data || greetings_used_ + kGreetingBytes > kGreetingsBytes) {
    auto memory = staging(kGreetingsBytes);
    if (!memory) return memory.error();
    greetings_ = *memory;
    greetings_used_ = 0;
  }
  auto* const greeting = reinterpret_cast<Greeting*>(greetings_.data + greetings_used_);
  greetings_used_ += kGreetingBytes;
  return greeting;
}

/// A sender: connects, then says whose channel it is. What follows may be posted behind that.
void ChannelTransport::follow(GroupPlan& plan) {
  plan_ = &plan;
  for (const auto& end : ends_)
    if (end->sends && end->channel) plan.is_followed_by(end->channel);
}

Result<bool> ChannelTransport::connect(End& end) {
  if (!end.channel) {
    auto channel = net_.connect(device_, end.handle.data());
    if (!channel) return channel.error();
    if (!*channel) return false;
    end.channel = *channel;
    if (plan_) plan_->is_followed_by(end.channel);
    auto memory = greeting_memory(end.channel);
    if (!memory) return memory.error();
    end.greeting = *memory;
    end.registration = greetings_.registration;
    *end.greeting = {kGreetingMagic, rank_, end.ordinal};
  }
  if (!end.request) {
    auto request = net_.isend(end.channel, end.greeting, sizeof(Greeting), end.registration);
    if (!request) return request.error();
    end.request = *request;
    return end.request != nullptr;
  }
  auto outcome = net_.test(end.request);
  if (!outcome) return outcome.error();
  end.ready = outcome->done;
  return outcome->done;
}

/// Channels are taken only while some are lacking: others stay with the listener.
Result<bool> ChannelTransport::accept() {
  bool lacking = false, moved = false;
  for (const auto& end : ends_) lacking |= !end->sends && !end->ready;
  while (lacking) {
    auto channel = net_.accept(listener_);
    if (!channel) return channel.error();
    if (!*channel) break;
    guests_.push_back({*channel, nullptr, nullptr, nullptr});
    moved = true;
  }
  for (size_t i = 0; i < guests_.size();) {
    auto greeted = greet(guests_[i]);
    if (!greeted) return greeted.error();
    if (!*greeted) {
      ++i;
      continue;
    }
    const Guest guest = guests_[i];
    if (guest.greeting->magic != kGreetingMagic || guest.greeting->rank >= handles_.size())
      return Error{ErrorCode::kBadHandle,
                   "a channel of the CollNet group began with something other than a greeting"};
    guests_.erase(guests_.begin() + static_cast<long>(i));
    const std::pair whose{guest.greeting->rank, guest.greeting->ordinal};
    if (!arrived_.emplace(whose, guest.channel).second) {
      static_cast<void>(net_.close(guest.channel));
      return Error{ErrorCode::kBadHandle, "rank " + std::to_string(whose.first) + " connected twice"};
    }
    moved = true;
  }
  return moved;
}

/// True: it has said whose it is.
Result<bool> ChannelTransport::greet(Guest& guest) {
  if (!guest.greeting) {
    auto memory = greeting_memory(guest.channel);
    if (!memory) return memory.error();
    guest.greeting = *memory;
    guest.registration = greetings_.registration;
  }
  if (!guest.request) {
    auto request = net_.irecv(guest.channel, guest.greeting, sizeof(Greeting), guest.registration);
    if (!request) return request.error();
    guest.request = *request;
    if (!guest.request) return false;
  }
  auto outcome = net_.test(guest.request);
  if (!outcome) return outcome.error();
  if (outcome->done && outcome->bytes != sizeof(Greeting)) guest.greeting->magic = 0;
  return outcome->done;
}

bool ChannelTransport::claim(End& end) {
  const auto it = arrived_.find({end.peer, end.ordinal});
  if (it == arrived_.end()) return false;
  end.channel = it->second;
  end.ready = true;
  arrived_.erase(it);
  return true;
}

Result<void*> ChannelTransport::isend(uint32_t number, const void* data, size_t bytes,
                                      Registration* registration) {
  const End& end = *ends_[number];
  if (!end.ready) return static_cast<void*>(nullptr);
  auto request = net_.isend(end.channel, data, bytes, registration);
  if (!request) return request.error();
  return static_cast<void*>(*request);
}

Result<void*> ChannelTransport::irecv(uint32_t number, void* data, size_t bytes, Registration* registration) {
  const End& end = *ends_[number];
  if (!end.ready) return static_cast<void*>(nullptr);
  auto request = net_.irecv(end.channel, data, bytes, registration);
  if (!request) return request.error();
  return static_cast<void*>(*request);
}

Result<TestOutcome> ChannelTransport::test(void* message) {
  return net_.test(static_cast<Request*>(message));
}

}  // namespace r2ccl::collective
