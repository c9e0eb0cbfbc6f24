// SPDX-License-Identifier: Apache-2.0
// Test support: a middlebox on the way from connecting ends to an acceptor. It passes bytes on, and cuts or
// swallows connections at the bytes it was told to. It counts what it did and keeps what connecting ends
// said.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "r2ccl/control/socket.h"

namespace r2ccl::testing_support {

inline sockaddr_in address_of(const control::Endpoint& where) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = where.port;
  std::memcpy(&address.sin_addr, where.address, sizeof address.sin_addr);
  return address;
}

/// A blocking connection over IPv4; empty when nobody listens there.
inline control::Descriptor connection_to(const control::Endpoint& where) {
  control::Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of(where);
  const bool connected = connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return connected ? std::move(fd) : control::Descriptor();
}

enum class Action : uint8_t {
  kPass,   ///< everything passes
  kClose,  ///< both sides are closed in order
  kReset,  ///< both sides are reset
  kHalve,  ///< the connecting end's side is closed, the acceptor's stands and carries nothing
  kHang,   ///< both sides stand and carry nothing
};
/// What happens to one connection when `bytes` have passed in one direction.
struct Plan {
  Action action = Action::kPass;
  bool to_acceptor = true;
  size_t bytes = 0;
};

class Proxy {
 public:
  /// Has an address where connections are refused until open() is called. To be made behind the last fork.
  Proxy() {
    door_ = control::Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (bind(door_.get(), plain, length) != 0 || getsockname(door_.get(), plain, &length) != 0)
      throw std::runtime_error("no port for the middle man");
    where_.family = AF_INET;
    where_.port = address.sin_port;
    std::memcpy(where_.address, &address.sin_addr, sizeof address.sin_addr);
  }
  void open() {
    if (listen(door_.get(), SOMAXCONN) != 0) throw std::runtime_error("the middle man cannot listen");
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  const control::Endpoint& where() const { return where_; }

  /// From now on connections lead there; the next ones are treated as `plans` say, one each, all further ones
  /// as `rest` says.
  void lead_to(const control::Endpoint& acceptor, std::deque<Plan> plans, Plan rest = {}) {
    const std::lock_guard lock(mutex_);
    acceptor_ = acceptor;
    plans_ = std::move(plans);
    rest_ = rest;
    actions_ = 0;
    heard_.clear();
  }
  /// Actions done since lead_to().
  int actions() const { return actions_; }
  /// What connecting ends have said since lead_to(), one entry per connection.
  std::vector<std::vector<std::byte>> heard() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<std::byte>> all;
    for (const auto& bytes : heard_) all.push_back(*bytes);
    return all;
  }
  /// Nobody listens there any more, and every connection is reset.
  void shut() {
    shut_ = true;
    while (!is_shut_) std::this_thread::yield();
  }

 private:
  struct Passage {
    control::Descriptor near, far;  // the connecting end's side, the acceptor's
    Plan plan;
    std::shared_ptr<std::vector<std::byte>> heard;
    size_t passed = 0;  // bytes in the plan's direction
    bool done = false;
  };

  void run() {
    while (!stopping_) {
      if (shut_ && !is_shut_) {
        for (Passage& passage : passages_) reset(passage);
        passages_.clear();
        door_ = control::Descriptor();
        is_shut_ = true;
      }
      std::vector<pollfd> fds;
      if (door_) fds.push_back({door_.get(), POLLIN, 0});
      for (const Passage& passage : passages_)
        for (const auto* fd : {&passage.near, &passage.far})
          if (*fd && !(passage.done && passage.plan.action == Action::kHang))
            fds.push_back({fd->get(), POLLIN, 0});
      if (poll(fds.data(), fds.size(), 5) <= 0) continue;
      for (Passage& passage : passages_) {
        pass(passage, true);
        pass(passage, false);
      }
      std::erase_if(passages_, [](const Passage& passage) { return !passage.near && !passage.far; });
      if (door_) admit();
    }
  }

  void admit() {
    for (;;) {
      control::Descriptor near(accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!near) return;
      control::tune(near.get());
      const std::lock_guard lock(mutex_);
      auto far = connection_to(acceptor_);
      if (far) control::tune(far.get());
      Plan plan = rest_;
      if (!plans_.empty()) {
        plan = plans_.front();
        plans_.pop_front();
      }
      heard_.push_back(std::make_shared<std::vector<std::byte>>());
      passages_.push_back({std::move(near), std::move(far), plan, heard_.back()});
      if (!passages_.back().far) reset(passages_.back());
    }
  }

  void pass(Passage& passage, bool to_acceptor) {
    const control::Descriptor& from = to_acceptor ? passage.near : passage.far;
    if (!from) return;
    if (passage.done && passage.plan.action == Action::kHang) return;
    std::byte bytes[4096];
    const ssize_t got = recv(from.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      passage.near = control::Descriptor();
      passage.far = control::Descriptor();
      return;
    }
    if (to_acceptor) {
      const std::lock_guard lock(mutex_);
      passage.heard->insert(passage.heard->end(), bytes, bytes + got);
    }
    const control::Descriptor& to = to_acceptor ? passage.far : passage.near;
    if (passage.done || !to) return;  // kHalve: it comes to nothing
    size_t most = size_t(got);
    const bool counts = passage.plan.action != Action::kPass && to_acceptor == passage.plan.to_acceptor;
    if (counts) most = std::min(most, passage.plan.bytes - passage.passed);
    // Should that side have ended, it shows when it is read.
    if (most > 0) [[maybe_unused]]
      const ssize_t sent = send(to.get(), bytes, most, MSG_NOSIGNAL);
    if (!counts) return;
    passage.passed += most;
    if (passage.passed == passage.plan.bytes) act(passage);
  }

  void act(Passage& passage) {
    passage.done = true;
    switch (passage.plan.action) {
      case Action::kPass:
        return;
      case Action::kClose:
        passage.near = control::Descriptor();
        passage.far = control::Descriptor();
        break;
      case Action::kReset:
        reset(passage);
        break;
      case Action::kHalve:
        passage.near = control::Descriptor();
        break;
      case Action::kHang:
        break;
    }
    ++actions_;
  }

  static void reset(Passage& passage) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    for (auto* fd : {&passage.near, &passage.far}) {
      if (*fd) setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      *fd = control::Descriptor();
    }
  }

  control::Endpoint where_;
  control::Descriptor door_;
  std::list<Passage> passages_;  // the thread's
  std::atomic<bool> stopping_{false}, shut_{false}, is_shut_{false};
  std::atomic<int> actions_{0};
  mutable std::mutex mutex_;  // guards the following
  control::Endpoint acceptor_;
  std::deque<Plan> plans_;
  Plan rest_;
  std::vector<std::shared_ptr<std::vector<std::byte>>> heard_;
  std::thread thread_;
};

}  // namespace r2ccl::testing_support
