// SPDX-License-Identifier: Apache-2.0
// One end of an RC connection on a port, for one transfer that proves it: an RDMA WRITE whose bytes are
// compared over there.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace r2bench {

class Endpoint {
 public:
  /// Throws std::runtime_error with the call that failed and why.
  Endpoint(const std::string& device, int port, int gid_index);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;

  /// What the other end has to know.
  nlohmann::json info() const;
  void connect(const nlohmann::json& peer);
  /// Writes bytes that `seed` decides into the peer's memory. Throws with the completion's status, or that
  /// none came.
  void write(uint64_t seed, std::chrono::milliseconds limit);
  /// Are those the bytes that are here?
  bool holds(uint64_t seed) const;
  /// In bytes: of the port now, and at most.
  int active_mtu() const { return 128 << int(port_.active_mtu); }
  int max_mtu() const { return 128 << int(port_.max_mtu); }

 private:
  struct Verbs;
  std::unique_ptr<Verbs> verbs_;
  std::vector<uint8_t> memory_;
  ibv_port_attr port_{};
  ibv_gid gid_{};
  int number_, gid_index_;
  uint64_t peer_address_ = 0;
  uint32_t peer_key_ = 0;
};

}  // namespace r2bench
