// SPDX-License-Identifier: Apache-2.0
// Test support: a NIC that loses small writes and says nothing. For the rest of its life every n-th
// unsignaled RDMA WRITE of this process is accepted and never carried out.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <random>

#include "r2ccl/path/process_context.h"

namespace r2ccl::testing_support {

class Swallow {
 public:
  // The service thread posts meanwhile: a word at a time, which is all a test needs.
#if defined(__SANITIZE_THREAD__)
  __attribute__((no_sanitize("thread")))
#endif
  /// Of the writes without immediate and completion, one in `one_in` is lost, on every device of `context`.
  Swallow(ProcessContext& context, unsigned one_in) {
    one_in_ = one_in;
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.post_send;
      ops.post_send = &post;
    }
  }
  Swallow(const Swallow&) = delete;
  Swallow& operator=(const Swallow&) = delete;
  unsigned swallowed() const { return swallowed_; }

 private:
  static int post(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
    thread_local std::minstd_rand random(1);
    const bool small_write =
        work->opcode == IBV_WR_RDMA_WRITE && !(work->send_flags & IBV_SEND_SIGNALED) && !work->next;
    if (small_write && random() % one_in_ == 0) {
      ++swallowed_;
      return 0;
    }
    return real_(pair, work, bad);
  }
  inline static int (*real_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  inline static unsigned one_in_ = 0;
  inline static std::atomic<unsigned> swallowed_{0};
};

}  // namespace r2ccl::testing_support
