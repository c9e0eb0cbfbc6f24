// SPDX-License-Identifier: Apache-2.0
// Framed JSON messages between the runner and its ranks, over a socket pair or a loopback TCP connection.
// Small and rare: set-up, grants of iterations, outcomes. Never on the data path.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace r2bench {

/// Owns a connected stream socket. Not thread-safe, but one thread may send while another receives.
class MessageSocket {
 public:
  MessageSocket() = default;
  explicit MessageSocket(int fd) : fd_(fd) {}
  MessageSocket(MessageSocket&& other) noexcept;
  MessageSocket& operator=(MessageSocket&& other) noexcept;
  ~MessageSocket();

  int fd() const { return fd_; }
  bool closed() const { return closed_; }
  void close();

  /// Blocks while the peer does not read, for at most ten seconds. false: the peer is gone.
  bool send(const nlohmann::json& message);
  /// One message; nullopt when none came within `wait` or when the peer is gone (then closed() is true).
  /// A frame that is no JSON, or is longer than 4 MiB, counts as a peer that is gone.
  std::optional<nlohmann::json> receive(std::chrono::milliseconds wait);

 private:
  int fd_ = -1;
  bool closed_ = false;
  std::string buffer_;
};

}  // namespace r2bench
