// SPDX-License-Identifier: Apache-2.0
// Test support: a NIC that keeps the completions of one queue pair's writes to itself, as a lost
// acknowledgement does, until they are released. What arrives, and all other queue pairs, is as ever.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <deque>
#include <mutex>

#include "r2ccl/path/process_context.h"

namespace r2ccl::testing_support {

class Withheld {
 public:
  /// From now on, of the first queue pair of `context`'s devices of which a write completes.
  explicit Withheld(ProcessContext& context) {
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.poll_cq;
      ops.poll_cq = &poll;
    }
  }
  Withheld(const Withheld&) = delete;
  Withheld& operator=(const Withheld&) = delete;
  static unsigned count() { return count_; }
  /// They come with the next polls, in order.
  static void release() { released_ = true; }

 private:
  static int poll(ibv_cq* queue, int room, ibv_wc* completions) {
    int kept = 0;
    const std::lock_guard lock(mutex_);
    while (released_ && queue == queue_ && !held_.empty() && kept < room) {
      completions[kept++] = held_.front();
      held_.pop_front();
    }
    if (kept > 0) return kept;
    const int count = real_(queue, room, completions);
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = completions[i];
      const bool write = one.status == IBV_WC_SUCCESS && one.opcode == IBV_WC_RDMA_WRITE;
      if (write && !queue_) queue_ = queue, pair_ = one.qp_num;
      if (write && !released_ && queue == queue_ && one.qp_num == pair_) {
        held_.push_back(one);
        ++count_;
      } else {
        completions[kept++] = one;
      }
    }
    return count < 0 ? count : kept;
  }
  inline static int (*real_)(ibv_cq*, int, ibv_wc*) = nullptr;
  inline static std::mutex mutex_;
  inline static std::deque<ibv_wc> held_;
  inline static ibv_cq* queue_ = nullptr;
  inline static uint32_t pair_ = 0;
  inline static std::atomic<unsigned> count_{0};
  inline static std::atomic<bool> released_{false};
};

}  // namespace r2ccl::testing_support
