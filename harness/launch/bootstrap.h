// SPDX-License-Identifier: Apache-2.0
// How a rank that we start finds its way back to us: a socket pair it inherits, or a TCP port on the loopback
// where the user wants one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/launch/message_socket.h"

namespace r2bench {

class Bootstrap {
 public:
  /// `port` 0: socket pairs. Throws std::system_error; EADDRINUSE when the port is taken.
  Bootstrap(size_t ranks, uint16_t port);
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  /// The value of R2BENCH_CONTROL for this rank, and the descriptor it must inherit as number 3 (-1: none).
  std::string control(size_t rank) const;
  int inherited_fd(size_t rank) const { return pairs_.empty() ? -1 : pairs_[rank].theirs; }
  /// To be called once all ranks have been started: closes what they have inherited.
  void all_started();
  /// Our end of the connection to `rank`; unconnected (fd() < 0) while it has not called yet.
  MessageSocket take(size_t rank);

 private:
  struct Pair {
    int ours = -1;
    int theirs = -1;
  };
  void accept_callers();

  std::vector<Pair> pairs_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::vector<std::string> tokens_;
  std::vector<MessageSocket> callers_;          ///< connected, token not read yet
  std::map<std::string, MessageSocket> known_;  ///< by token
};

}  // namespace r2bench
