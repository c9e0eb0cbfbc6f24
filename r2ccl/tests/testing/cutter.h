// SPDX-License-Identifier: Apache-2.0
// Test support: breaks the TCP connections of this process, as a middlebox would that has forgotten them.
#pragma once

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace r2ccl::testing_support {

using namespace std::chrono_literals;

/// Calls `what` with every TCP connection of this process that stands. Returns how often it said true.
inline int for_connections(const std::function<bool(int)>& what) {
  int count = 0;
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_storage peer;
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) continue;
    count += what(fd);
  }
  return count;
}

/// Breaks every TCP connection of this process that stands, as a middlebox would. Returns how many.
inline int cut_connections() {
  return for_connections([](int fd) { return shutdown(fd, SHUT_RDWR) == 0; });
}

/// From now on nothing comes in over them, not even acknowledgements, and nobody says so; new ones work.
inline int swallow_connections() {
  return for_connections([](int fd) {
    sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{1, &nothing};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
  });
}

/// Cuts again and again while it lives; each pause is `growth` times as long as the one before. A pause ends
/// when `now` begins to hold: in the middle of a migration, say.
class Cutter {
 public:
  explicit Cutter(
      std::chrono::milliseconds pause, int growth = 1, std::function<bool()> now = [] { return false; })
      : thread_([this, pause, growth, now = std::move(now)]() mutable {
          for (bool held = false; !stopping_; pause *= growth) {
            bool begins = false;
            for (auto slept = 0us; slept < pause && !stopping_ && !begins; slept += 100us) {
              std::this_thread::sleep_for(100us);
              begins = !std::exchange(held, now()) && held;
            }
            const int cut = cut_connections();
            cut_ += cut;
            if (held) cut_then_ += cut;
          }
        }) {}
  ~Cutter() { stop(); }
  int stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return cut_;
  }
  int cut_then() const { return cut_then_; }  ///< while `now` held

 private:
  std::atomic<bool> stopping_{false};
  std::atomic<int> cut_{0}, cut_then_{0};
  std::thread thread_;
};

}  // namespace r2ccl::testing_support
