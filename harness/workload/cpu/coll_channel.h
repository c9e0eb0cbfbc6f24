// SPDX-License-Identifier: Apache-2.0
// One NIC's part of an AllReduce through CollNet, as NCCL's proxy does it: the data goes through registered
// slots in pieces of whole chunks, padded with what happens to be there, up to eight of them outstanding.
// Advanced by the proxy's progress thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/workload/cpu/channel.h"
#include "harness/workload/cpu/coll_plugin.h"
#include "harness/workload/cpu/memory.h"
#include "harness/workload/cpu/polled.h"

namespace r2bench {

/// Elements of one piece: what NCCL's CollNetChain takes for `bytes` of a NIC's part on up to eight channels
/// with steps of `step_bytes`, one GPU a node.
size_t coll_piece_bytes(size_t bytes, size_t step_bytes);

class CollChannel final : public Polled {
 public:
  CollChannel(CollPlugin& plugin, const RankConfig& config, int device, const std::string& device_name,
              Part part);

  // Set-up and tear-down; on the service thread. Each throws ChannelError.
  void listen(void* handle);
  /// Blocks until all ranks are there. false: the plugin does not want to, and NCCL goes on without CollNet.
  bool connect(std::vector<std::vector<unsigned char>>& handles);
  void register_memory();
  void close() noexcept;

  void start(const UserBuffers& user);
  bool progress() override;
  bool finished() const override { return stored_ == pieces_; }
  bool computes() const override { return true; }  ///< test() sends, receives and reduces

 private:
  static constexpr size_t kOutstanding = 8;  // NCCL_STEPS

  [[noreturn]] void fail(const char* call, NetPlugin::Status status) const;
  Part piece(size_t index) const;
  char* slot(const Memory& memory, size_t index) const {
    return memory.data() + index % kOutstanding * piece_bytes_;
  }

  CollPlugin& plugin_;
  const RankConfig& config_;
  int device_;
  std::string device_name_;
  Part part_;
  size_t piece_bytes_, pieces_;
  void *listener_ = nullptr, *group_ = nullptr;
  Memory send_, receive_;
  void *send_registration_ = nullptr, *receive_registration_ = nullptr;

  UserBuffers user_;
  size_t filled_ = 0, begun_ = 0, stored_ = 0;  ///< pieces of the open operation
  void* requests_[kOutstanding] = {};
};

}  // namespace r2bench
