// SPDX-License-Identifier: Apache-2.0
// Test support: the network loses one packet. As on a reliable connection, whoever sends on learns of the gap
// at once: the lost request is carried out when something is posted behind it. With nothing behind it the
// queue pair would send it again after its Local ACK Timeout, which no test waits for.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "r2ccl/path/process_context.h"

namespace r2ccl::testing_support {

/// Loses one send request of this process, for the rest of its life. Of the requests that `is_meant` names,
/// which one thread must post, it is the one of that number, from 1.
class LostPacket {
 public:
#if defined(__SANITIZE_THREAD__)
  __attribute__((no_sanitize("thread")))
#endif
  LostPacket(ProcessContext& context, bool (*is_meant)(const ibv_send_wr&), int number) {
    is_meant_ = is_meant;
    number_ = number;
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.post_send;
      ops.post_send = &post;
    }
  }
  LostPacket(const LostPacket&) = delete;
  LostPacket& operator=(const LostPacket&) = delete;
  bool lost() const { return pair_ != nullptr; }
  bool sent_again() const { return sent_again_; }

  static bool is_probe(const ibv_send_wr& work) {
    return work.opcode == IBV_WR_RDMA_READ && work.sg_list->length == 8;
  }
  static bool is_segment(const ibv_send_wr& work) { return work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM; }

 private:
  static int post(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
    if (is_meant_(*work) && ++seen_ == number_) {
      work_ = *work;
      if (work->num_sge > 0) piece_ = *work->sg_list;
      pair_ = pair;
      return 0;
    }
    if (pair == pair_ && !sent_again_.exchange(true)) {
      work_.sg_list = &piece_;
      if (const int error = real_(pair, &work_, bad); error != 0) return error;
    }
    return real_(pair, work, bad);
  }
  inline static int (*real_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  inline static bool (*is_meant_)(const ibv_send_wr&) = nullptr;
  inline static int number_ = 0;
  inline static std::atomic<int> seen_{0};
  inline static ibv_send_wr work_{};
  inline static ibv_sge piece_{};
  inline static std::atomic<ibv_qp*> pair_{nullptr};
  inline static std::atomic<bool> sent_again_{false};
};

}  // namespace r2ccl::testing_support
