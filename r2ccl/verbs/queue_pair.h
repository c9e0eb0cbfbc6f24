// SPDX-License-Identifier: Apache-2.0
// An RC queue pair and the few work requests that the core posts.
#pragma once

#include <memory>

#include "r2ccl/verbs/completion_queue.h"
#include "r2ccl/verbs/device.h"

namespace r2ccl::verbs {

struct QueuePairLimits {
  uint32_t send_work_requests = 128;
  uint32_t receive_work_requests = 1;
  uint32_t inline_bytes = 0;
};

/// The other end of a connection.
struct RemoteQueuePair {
  PortAddress address;
  uint32_t number = 0;
  uint32_t first_psn = 0;
};

class QueuePair {
 public:
  QueuePair() = default;
  /// Creates an RC QP. Both directions complete into `queue`.
  static Result<QueuePair> create(const Device& device, const CompletionQueue& queue,
                                  const QueuePairLimits& limits);

  /// RESET → INIT, with remote read and write allowed.
  Result<void> to_init(const Device& device);
  /// INIT → RTR.
  Result<void> to_rtr(const Device& device, const RemoteQueuePair& remote, const Config& config);
  /// RTR → RTS. `our_psn` is what the other end was told.
  Result<void> to_rts(const Device& device, uint32_t our_psn, const Config& config);
  /// Any state → ERR. When it returns, the NIC begins to flush what is posted; when it has, it places nothing
  /// more through this QP. Error kDeviceGone on EIO.
  Result<void> to_error() noexcept;
  /// When it returns, the NIC places nothing more through this QP, and what it had not reported is never
  /// reported. On an error (kDeviceGone on EIO) the QP is as it was; else it is gone, and only operator bool
  /// may be called. A device that has failed as a whole may say so without doing it: see
  /// DeviceSight (fence.h).
  Result<void> destroy() noexcept;

  /// Each returns 0 or an errno; the QP is left as it was.
  int post_write_imm(uint64_t id, const void* data, uint32_t bytes, uint32_t lkey, uint64_t remote,
                     uint32_t rkey, uint32_t immediate) noexcept;
  int post_write(uint64_t id, const void* data, uint32_t bytes, uint32_t lkey, uint64_t remote, uint32_t rkey,
                 bool signaled) noexcept;
  /// Writes nothing; signaled. 0 or an errno.
  int post_empty_write(uint64_t id, uint64_t remote, uint32_t rkey) noexcept;
  int post_read(uint64_t id, void* data, uint32_t bytes, uint32_t lkey, uint64_t remote,
                uint32_t rkey) noexcept;
  /// Receives without a buffer, each of which takes an immediate: up to kReceiveBatch, with the same id.
  static constexpr uint32_t kReceiveBatch = 16;
  int post_receives(uint64_t id, uint32_t count) noexcept;
  int post_receive(uint64_t id) noexcept { return post_receives(id, 1); }

  uint32_t number() const { return pair_->qp_num; }
  /// Is this the object that an asynchronous event names?
  bool is(const ibv_qp* pair) const { return pair && pair_.get() == pair; }
  uint32_t inline_bytes() const { return inline_bytes_; }
  explicit operator bool() const { return pair_ != nullptr; }

 private:
  int post(uint64_t id, ibv_wr_opcode opcode, unsigned flags, ibv_sge piece, uint64_t remote, uint32_t rkey,
           uint32_t immediate = 0) noexcept;
  std::unique_ptr<ibv_qp, Deleter<&ibv_destroy_qp>> pair_;
  uint32_t inline_bytes_ = 0;
};

}  // namespace r2ccl::verbs
