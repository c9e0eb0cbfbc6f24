// SPDX-License-Identifier: Apache-2.0
// Test support: a NIC that reports successes only. For the rest of its life this process never sees a failed
// completion, so that no flush ever tells when a queue is empty.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "r2ccl/path/process_context.h"

namespace r2ccl::testing_support {

class Mute {
 public:
  // Other threads poll meanwhile: a word at a time, which is all a test needs.
#if defined(__SANITIZE_THREAD__)
  __attribute__((no_sanitize("thread")))
#endif
  explicit Mute(ProcessContext& context) {
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.poll_cq;
      ops.poll_cq = &poll;
    }
  }
  Mute(const Mute&) = delete;
  Mute& operator=(const Mute&) = delete;
  unsigned hidden() const { return hidden_; }

 private:
  static int poll(ibv_cq* queue, int room, ibv_wc* completions) {
    const int count = real_(queue, room, completions);
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      if (completions[i].status == IBV_WC_SUCCESS)
        completions[kept++] = completions[i];
      else
        ++hidden_;
    }
    return count < 0 ? count : kept;
  }
  inline static int (*real_)(ibv_cq*, int, ibv_wc*) = nullptr;
  inline static std::atomic<unsigned> hidden_{0};
};

}  // namespace r2ccl::testing_support
