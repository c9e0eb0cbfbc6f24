// SPDX-License-Identifier: Apache-2.0
// Test support: the network loses one packet of a probe. As on a reliable connection, whoever sends on learns
// of the gap at once: the lost read is carried out when something is posted behind it. With nothing behind it
// the queue pair would send it again after its Local ACK timeout, which no test waits for.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <optional>

#include "r2ccl/path/process_context.h"

namespace r2ccl::testing_support {

/// Loses the first read of 8 bytes that this process posts; the service thread alone probes.
class LostProbe {
 public:
#if defined(__SANITIZE_THREAD__)
  __attribute__((no_sanitize("thread")))
#endif
  explicit LostProbe(ProcessContext& context) {
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.post_send;
      ops.post_send = &post;
    }
  }
  LostProbe(const LostProbe&) = delete;
  LostProbe& operator=(const LostProbe&) = delete;
  int lost() const { return lost_; }
  int sent_again() const { return sent_again_; }

 private:
  struct Held {
    ibv_qp* pair;
    ibv_send_wr work;
    ibv_sge piece;
  };
  static int post(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
    if (work->opcode == IBV_WR_RDMA_READ && work->sg_list->length == 8 && lost_.exchange(1) == 0) {
      held_ = {pair, *work, *work->sg_list};
      return 0;
    }
    if (pair == held_.pair && lost_ == 1 && sent_again_.exchange(1) == 0) {
      held_.work.sg_list = &held_.piece;
      if (const int error = real_(pair, &held_.work, bad); error != 0) return error;
    }
    return real_(pair, work, bad);
  }
  inline static int (*real_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  inline static Held held_{};
  inline static std::atomic<int> lost_{0}, sent_again_{0};
};

}  // namespace r2ccl::testing_support
