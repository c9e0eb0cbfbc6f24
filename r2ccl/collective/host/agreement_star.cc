// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/agreement_star.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "r2ccl/base/clock.h"

namespace r2ccl::collective {
namespace {

enum MessageType : uint16_t { kHello = 0x701, kWelcome, kHere, kAgreement, kLeaving };

constexpr uint64_t kSoonest = 10 * kNsPerMs, kLatest = 1000 * kNsPerMs;  // between attempts to connect
constexpr uint64_t kPatience = 5000 * kNsPerMs;  // with a connection that does not come to anything
constexpr uint64_t kNoRoom = 100 * kNsPerMs;     // before it accepts more
constexpr size_t kStrangers = 64;                // … and how many of those at once, beyond the ranks

}  // namespace

struct Star::Hello {
  uint32_t version;
  uint32_t rank;
  uint32_t ranks;
  uint32_t reserved;
};

struct Star::Peer {
  enum class State : uint8_t { kNew, kGreeted, kUp };

  Peer(control::Stream stream, const control::Token& token, bool connector, uint64_t now)
      : link(std::move(stream), token, connector), since(now) {}

  control::Link link;
  State state = State::kNew;
  int rank = 0;
  uint64_t since;
  bool readable = true;
  bool broken = false;
};

Star::Star() = default;
Star::Star(Star&&) noexcept = default;
Star::~Star() = default;

Result<Star> Star::make(control::Descriptor listener, const StarAddress& hub, int rank, int ranks) {
  Star star;
  star.rank_ = rank;
  star.ranks_ = ranks;
  star.hub_ = hub;
  star.listener_ = std::move(listener);
  star.peers_.resize(rank == 0 ? size_t(ranks) : 1);
  star.wake_ = control::Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!star.wake_) return Error{ErrorCode::kSystem, std::string("eventfd: ") + std::strerror(errno)};
  if (star.listener_) star.listener_.close_in_child();
  if (rank != 0) star.lost_since_ = now_ns();
  return star;
}

void Star::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);  // full: it is awake
}

void Star::wait(uint64_t due) {
  std::vector<pollfd> look{{wake_.get(), POLLIN, 0}};
  std::vector<Peer*> of{nullptr};
  const uint64_t now = now_ns();
  if (listener_ && now >= no_room_until_) look.push_back({listener_.get(), POLLIN, 0});
  if (connecting_) look.push_back({connecting_.get(), POLLOUT, 0});
  of.resize(look.size());
  for (auto* all : {&peers_, &arrivals_})
    for (const auto& peer : *all) {
      if (!peer) continue;
      look.push_back({peer->link.fd(), short(POLLIN | (peer->link.wants_to_write() ? POLLOUT : 0)), 0});
      of.push_back(peer.get());
    }
  const uint64_t ns = due <= now ? 0 : due - now;
  const timespec time{time_t(ns / 1'000'000'000), long(ns % 1'000'000'000)};
  if (ppoll(look.data(), look.size(), due == ~uint64_t{0} ? nullptr : &time, nullptr) <= 0) return;
  for (size_t i = 0; i < look.size(); ++i)
    if (of[i] && look[i].revents != 0) of[i]->readable = true;
  if (look[0].revents != 0) {
    uint64_t count;
    [[maybe_unused]] const auto got = read(wake_.get(), &count, sizeof count);
  }
}

uint64_t Star::tend(uint64_t now) {
  uint64_t next = ~uint64_t{0};
  if (listener_) {
    next = let_in(now);
    greet(now);
    for (const auto& peer : arrivals_) next = std::min(next, peer->since + kPatience);
  } else if (rank_ != 0 && !ended_) {
    next = reach_hub(now);
  }
  for (auto& peer : peers_)
    if (peer) hear(peer, now);
  // It may have broken just now, when something was said: nothing else would wake this rank to connect again.
  if (rank_ != 0 && !ended_ && !peers_[0] && !connecting_) next = std::max(try_at_, now);
  return events_.empty() ? next : now;
}

uint64_t Star::let_in(uint64_t now) {
  while (now >= no_room_until_) {
    control::Descriptor fd;
    if (arrivals_.size() < size_t(ranks_) + kStrangers)
      fd = control::Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd && arrivals_.size() < size_t(ranks_) + kStrangers &&
        (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
      return ~uint64_t{0};
    if (!fd) {  // no room, or no descriptors
      no_room_until_ = now + kNoRoom;
      break;
    }
    control::tune(fd.get());
    arrivals_.push_back(std::make_unique<Peer>(control::Stream(std::move(fd)), hub_.token, false, now));
  }
  return no_room_until_;
}

// A connection replaces the one before only after its other end has shown that it has the nonce: what
// somebody has recorded of an old connection is worth nothing.
void Star::greet(uint64_t now) {
  for (auto& peer : arrivals_) {
    if (!std::exchange(peer->readable, false)) {
      if (peer->link.wants_to_write()) peer->broken = !peer->link.flush();
      continue;
    }
    const bool open = peer->link.fill();
    control::Message message;
    while (peer->state != Peer::State::kUp && !peer->broken) {
      auto got = peer->link.next(message);
      if (!got) peer->broken = true;
      if (!got || !*got) break;
      if (peer->state == Peer::State::kNew) {
        const auto hello = message.as<Hello>();
        if (message.type != kHello || !hello || hello.value().version != kStarVersion ||
            hello.value().ranks != uint32_t(ranks_) || hello.value().rank == 0 ||
            hello.value().rank >= uint32_t(ranks_)) {
          peer->broken = true;
          break;
        }
        peer->rank = int(hello.value().rank);
        const control::Token nonce = control::random_token();
        peer->link.say(kWelcome, std::as_bytes(std::span(nonce)));
        peer->link.rekey(nonce);
        peer->state = Peer::State::kGreeted;
      } else if (message.type == kHere) {
        peer->state = Peer::State::kUp;
      } else {
        peer->broken = true;
      }
    }
    if (!open && peer->state != Peer::State::kUp) peer->broken = true;
  }
  for (auto& peer : arrivals_) {
    if (peer->state != Peer::State::kUp || peer->broken) continue;
    events_.push_back({peer->rank, true, {}});
    peer->readable = true;  // what came behind its word
    peers_[size_t(peer->rank)] = std::move(peer);
  }
  std::erase_if(arrivals_,
                [now](const auto& peer) { return !peer || peer->broken || now >= peer->since + kPatience; });
}

uint64_t Star::reach_hub(uint64_t now) {
  if (peers_[0]) {
    if (peers_[0]->state == Peer::State::kUp) return ~uint64_t{0};
    if (now < peers_[0]->since + kPatience) return peers_[0]->since + kPatience;
    lost(now);
  }
  if (!connecting_) {
    if (now < try_at_) return try_at_;
    backoff_ = std::clamp(backoff_ * 2, kSoonest, kLatest);
    try_at_ = now + backoff_;
    connecting_since_ = now;
    auto fd = control::start_connect(hub_.endpoint);
    if (!fd) return try_at_;
    connecting_ = std::move(*fd);
  }
  switch (control::reach(connecting_)) {
    case control::Reach::kPending:
      if (now < connecting_since_ + kPatience) return connecting_since_ + kPatience;
      [[fallthrough]];
    case control::Reach::kRefused:
    case control::Reach::kBroken:
      connecting_ = control::Descriptor();
      return std::max(try_at_, now);
    case control::Reach::kReached:
      break;
  }
  peers_[0] = std::make_unique<Peer>(control::Stream(std::move(connecting_)), hub_.token, true, now);
  connecting_ = control::Descriptor();
  const Hello hello{kStarVersion, uint32_t(rank_), uint32_t(ranks_), 0};
  peers_[0]->link.say(kHello, std::as_bytes(std::span(&hello, 1)));
  return now + kPatience;
}

void Star::lost(uint64_t now) {
  peers_[0].reset();
  if (!lost_since_) lost_since_ = now;
}

void Star::hear(std::unique_ptr<Peer>& peer, uint64_t now) {
  if (peer->link.wants_to_write() && !peer->link.flush()) peer->broken = true;
  if (std::exchange(peer->readable, false) && !peer->link.fill()) peer->broken = true;
  control::Message message;
  for (;;) {  // also what arrived before it broke
    auto got = peer->link.next(message);
    if (!got) peer->broken = true;
    if (!got || !*got) break;
    if (message.type == kAgreement && peer->state == Peer::State::kUp) {
      events_.push_back({peer->rank, false, std::move(message.payload)});
    } else if (message.type == kLeaving && rank_ != 0) {
      ended_ = true;
    } else if (message.type == kWelcome && rank_ != 0 && peer->state == Peer::State::kNew) {
      const auto nonce = message.as<control::Token>();
      if (!nonce) {
        peer->broken = true;
        break;
      }
      peer->link.rekey(nonce.value());
      peer->link.say(kHere, {});
      peer->state = Peer::State::kUp;
      lost_since_.reset();
      backoff_ = 0;
      events_.push_back({0, true, {}});
    } else {
      peer->broken = true;
      break;
    }
  }
  if (!peer->broken) return;
  if (rank_ == 0) {
    peer.reset();
  } else {
    lost(now);
  }
}

bool Star::next(Event& event) {
  if (events_.empty()) return false;
  event = std::move(events_.front());
  events_.pop_front();
  return true;
}

void Star::send(int rank, std::span<const std::byte> bytes) {
  const size_t index = rank_ == 0 ? size_t(rank) : 0;
  if (peers_[index] && peers_[index]->state == Peer::State::kUp) peers_[index]->link.say(kAgreement, bytes);
}

void Star::drop(int rank) {
  const size_t index = rank_ == 0 ? size_t(rank) : 0;
  if (peers_[index]) peers_[index]->broken = true;
  std::erase_if(events_, [rank](const Event& event) { return event.rank == rank; });
}

void Star::leave() {
  if (rank_ == 0)
    for (const auto& peer : peers_)
      if (peer) peer->link.say(kLeaving, {});
  for (auto& peer : peers_) peer.reset();
  arrivals_.clear();
  listener_ = control::Descriptor();
}

bool Star::complete() const {
  return std::all_of(peers_.begin() + 1, peers_.end(),
                     [](const auto& peer) { return peer && peer->state == Peer::State::kUp; });
}

}  // namespace r2ccl::collective
