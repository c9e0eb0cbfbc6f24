// SPDX-License-Identifier: Apache-2.0
// What the core asks of the operating system, answered by the simulation: threads, locks, clocks, epoll,
// event descriptors and TCP. The linker leads the core's calls here (--wrap: see CMakeLists.txt); whatever is
// not the simulation's goes to the real one.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "r2ccl/tests/simulation/scheduler.h"

namespace r2ccl::simulation {

/// What the core's clocks show when the history begins.
constexpr Time kBoot = 3600 * kSecond;

/// A simulated descriptor.
struct File {
  enum class Kind { kEvent, kEpoll, kListener, kStream, kFlag };
  Kind kind = Kind::kEvent;
  int process = -1;
  int fd = -1;
  uint64_t count = 0;  ///< kEvent; kFlag: what is to be read
  bool error = false;  ///< kFlag: POLLERR
  // kEpoll
  std::vector<std::pair<int, epoll_event>> watched;  ///< by descriptor
  epoll_event* watches(int other) {
    for (auto& [fd, event] : watched)
      if (fd == other) return &event;
    return nullptr;
  }
  void watch(int other, const epoll_event& event) {
    const auto above = [other](const auto& it) { return it.first > other; };
    watched.insert(std::find_if(watched.begin(), watched.end(), above), {other, event});
  }
  void forget(int other) {
    std::erase_if(watched, [other](const auto& it) { return it.first == other; });
  }
  Fiber* waiting = nullptr;
  bool look = false;  ///< something that it watches has changed since it was found to have nothing
  // kListener
  uint16_t port = 0;
  std::deque<int> accepted;  ///< streams whose connection stands
  // kStream
  int peer = -1;  ///< the other end's descriptor; −1: none any more
  bool connecting = false, connected = false, hung_up = false, ended = false;
  int failure = 0;  ///< errno of the next call
  std::string arrived;
  Time last_arrival = 0;   ///< bytes come in order
  bool swallowed = false;  ///< nothing gets through in either direction, and nobody says so
  // Socket options as the core sets them (tcp(7)).
  Time user_timeout = 0, keep_idle = 7200 * kSecond, keep_interval = 75 * kSecond;
  int keep_count = 9;
  /// Until the kernel gives up a connection over which nothing comes, and nothing was sent. (Linux,
  /// tcp_keepalive_timer: with TCP_USER_TIMEOUT the count is not looked at.)
  Time idle_bound() const {
    if (user_timeout == 0) return keep_idle + Time(keep_count) * keep_interval;
    Time probe = keep_idle + keep_interval;
    while (probe < user_timeout) probe += keep_interval;
    return probe;
  }
};

/// How TCP behaves between two processes.
struct TcpWeather {
  Time latency = 30 * kMicrosecond;
  Time held_until = 0;   ///< what is sent before then arrives after it
  bool drops = false;    ///< nothing gets through, and nobody is told
  bool mutes = false;    ///< connections are made, and then nothing gets through
  bool refuses = false;  ///< connections are answered by a reset
};

class System {
 public:
  File* find(int fd);
  int make(File::Kind kind);
  void close(int fd);
  /// Something about `fd` has changed: whoever waits for it looks.
  void changed(int fd);
  uint32_t readiness(const File& file) const;
  int open_files(int process) const;

  // --- faults ---
  TcpWeather weather;
  /// The epoll set of this process takes every second connection only (ENOSPC).
  int scarce = -1;
  int asked_for_room = 0;
  /// Connections between processes end. `told`: 3: both ends hear of it; 1 or 2: one end alone does.
  void cut_connections(Random& random, int told);
  /// Connections between processes carry nothing any more, for good; new ones do.
  void swallow_connections(Random& random);
  /// A flag's descriptor (a NIC's): makes it readable, or polls as POLLERR.
  void set_flag(int fd, uint64_t readable, bool error);

  /// When each process closed the end of a connection.
  std::vector<Time> closed_at[2];

  void deliver(int to, std::string bytes);
  void swallow(File& file);
  void gives_up(int fd, Time after, int error);
  void alone(int fd, Time after);
  std::map<int, std::unique_ptr<File>> files;
  static constexpr int kFirst = 1 << 20;  ///< of the descriptors

 private:
  int next_fd_ = kFirst;
  std::vector<File*> by_number_;
  std::vector<int> epolls_;
};

extern System g_kernel;
inline System& kernel() { return g_kernel; }

}  // namespace r2ccl::simulation
