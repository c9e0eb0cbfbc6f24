// SPDX-License-Identifier: Apache-2.0
// Test support: counts the ACKs and the CTS entries that this process posts.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

#include "r2ccl/path/process_context.h"
#include "r2ccl/protocol/wire.h"

namespace r2ccl::testing_support {

class Written {
 public:
  /// On any device of `context`, from now on. Of a process one object at most.
  explicit Written(ProcessContext& context) {
    for (const verbs::Device& device : context.devices) {
      ibv_context_ops& ops = device.context()->ops;
      real_ = ops.post_send;
      ops.post_send = &post;
    }
  }
  static unsigned acks() { return acks_; }
  static unsigned cts() { return cts_; }

 private:
  static int post(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
    if (work->opcode == IBV_WR_RDMA_WRITE && work->num_sge == 1) {
      acks_ += work->sg_list->length == sizeof(ChannelMemory::received);
      cts_ += work->sg_list->length == sizeof(wire::CtsLine);
    }
    return real_(pair, work, bad);
  }
  inline static int (*real_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  inline static std::atomic<unsigned> acks_{0}, cts_{0};
};

}  // namespace r2ccl::testing_support
