// SPDX-License-Identifier: Apache-2.0
// Test support: a NIC that loses arrivals and says nothing. For the rest of its life every n-th immediate
// that reaches this process is taken away, or the first few of those: the data is in memory and the sender's
// NIC has its acknowledgement.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "r2ccl/path/process_context.h"

namespace r2ccl::testing_support {

class Deaf {
 public:
  // The service thread polls meanwhile: a word at a time, which is all a test needs.
#if defined(__SANITIZE_THREAD__)
  __attribute__((no_sanitize("thread")))
#endif
  Deaf(ProcessContext& context, unsigned one_in, unsigned most = ~0u) {
    one_in_ = one_in;
    most_ = most;
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.poll_cq;
      ops.poll_cq = &poll;
    }
  }
  Deaf(const Deaf&) = delete;
  Deaf& operator=(const Deaf&) = delete;
  unsigned missed() const { return missed_; }

 private:
  static int poll(ibv_cq* queue, int wanted, ibv_wc* completions) {
    const int count = real_(queue, wanted, completions);
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      const bool arrival =
          completions[i].status == IBV_WC_SUCCESS && completions[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM;
      if (arrival && missed_ < most_ && ++arrivals_ % one_in_ == 0)
        ++missed_;
      else
        completions[kept++] = completions[i];
    }
    return count < 0 ? count : kept;
  }
  inline static int (*real_)(ibv_cq*, int, ibv_wc*) = nullptr;
  inline static unsigned one_in_ = 0;
  inline static unsigned most_ = 0;
  inline static std::atomic<unsigned> arrivals_{0};
  inline static std::atomic<unsigned> missed_{0};
};

}  // namespace r2ccl::testing_support
