// SPDX-License-Identifier: Apache-2.0
// The serving end: takes connections of the same user, hands each request to one function and sends back what
// it answers. Has no thread; whoever owns it calls serve() from his own loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/control/control_socket.h"
#include "harness/launch/message_socket.h"

namespace r2bench {

class ControlServer {
 public:
  /// Answers one request. What it throws becomes {"error": text}.
  using Answer =
      std::function<nlohmann::json(uint64_t connection, const Peer& peer, const nlohmann::json& request)>;
  /// The other end is gone, whatever way.
  using Gone = std::function<void(uint64_t connection)>;

  /// Takes over `listener`, from listen_at(). Both functions are called within serve() only.
  ControlServer(int listener, Answer answer, Gone gone = {});
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  /// Takes over a socket that is connected already. Returns the connection's number.
  uint64_t adopt(int fd);

  /// Waits up to `wait` (negative: without end; a signal ends it) until somebody says something or leaves,
  /// and serves all that is there. 0: only looks. A client that does not read its answer is waited for ten
  /// seconds and no longer.
  void serve(std::chrono::milliseconds wait);

 private:
  struct Connection {
    MessageSocket socket;
    Peer peer;
  };
  void accept_callers();
  void serve_one(uint64_t number, Connection& connection);

  int listener_;
  Answer answer_;
  Gone gone_;
  uint64_t next_ = 1;
  std::map<uint64_t, Connection> connections_;
};

}  // namespace r2bench
