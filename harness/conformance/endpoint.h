// SPDX-License-Identifier: Apache-2.0
// Verbs objects for the cases: a device, and one end of a connection on it. Calls that every case needs throw
// Broken; those that a case is about return what the verb returned.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/conformance/observation.h"

namespace r2bench::conformance {

/// No wait of the suite is longer; under emulation on a busy machine seconds are short.
inline constexpr std::chrono::seconds kPatience{60};

class Device {
 public:
  /// Throws Broken when there is no such device or it cannot be opened.
  explicit Device(const std::string& name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context() const { return context_; }
  const ibv_device_attr& limits() const { return limits_; }
  ibv_port_attr port() const;
  ibv_gid gid() const;
  int gid_index() const { return gid_index_; }
  const std::string& name() const { return name_; }

  /// Names of the async events that wait, or come within `patience` until `until` has been seen (empty: those
  /// that wait now). Each is acknowledged.
  std::vector<std::string> events(const std::string& until = "",
                                  std::chrono::milliseconds patience = {}) const;

 private:
  std::string name_;
  ibv_context* context_ = nullptr;
  ibv_device_attr limits_{};
  int gid_index_ = 0;
};

struct EndpointOptions {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t send_depth = 64, recv_depth = 64, sge = 2, inline_bytes = 0;
  int cq_depth = 256;
  size_t bytes = 1 << 20;
  unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  unsigned qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  bool channel = false;
  bool shared_receive = false;
  uint8_t timeout = 17, retry = 3, rnr_retry = 7, min_rnr_timer = 12;
};

/// One request with one scatter element; more by hand.
struct Work {
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  uint64_t id = 0;
  size_t offset = 0, bytes = 0, remote_offset = 0;
  unsigned flags = IBV_SEND_SIGNALED;
  uint32_t imm = 0;
  std::optional<uint32_t> rkey, lkey;  ///< else the right ones
  uint64_t compare_add = 0, swap = 0;
};

class Endpoint {
 public:
  Endpoint(Device& device, const EndpointOptions& options = {});
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// RESET to INIT, to RTR towards `peer`, to RTS. Each returns what ibv_modify_qp returned.
  int to_init();
  int to_rtr(const Endpoint& peer);
  int to_rts();
  int to(ibv_qp_state state);
  ibv_qp_state state() const;

  int post(const Work& work);
  int post_recv(uint64_t id, size_t offset = 0, size_t bytes = 4096);
  /// The next completion; throws Broken when none comes.
  ibv_wc wait();
  /// One that is there within `patience`.
  std::optional<ibv_wc> poll(std::chrono::milliseconds patience = {});
  void destroy_qp();

  Device& device() const { return device_; }
  ibv_qp* qp() const { return qp_; }
  ibv_cq* cq() const { return cq_; }
  ibv_pd* pd() const { return pd_; }
  ibv_mr* mr() const { return mr_; }
  ibv_srq* srq() const { return srq_; }
  ibv_comp_channel* channel() const { return channel_; }
  char* memory() { return memory_.data(); }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(memory_.data()) + offset; }
  /// To whom `post` writes.
  const Endpoint* peer() const { return peer_; }
  void set_peer(const Endpoint* peer) { peer_ = peer; }
  const EndpointOptions& options() const { return options_; }

 private:
  void release();

  Device& device_;
  EndpointOptions options_;
  std::vector<char> memory_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  const Endpoint* peer_ = nullptr;
};

/// Two connected ends. Throws Broken.
struct Pair {
  Pair(Device& a, Device& b, const EndpointOptions& of_a = {}, const EndpointOptions& of_b = {});
  Endpoint a, b;
};

/// Throws Broken with the errno when `ok` is false.
void require(bool ok, const std::string& what);

}  // namespace r2bench::conformance
