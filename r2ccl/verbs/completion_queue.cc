// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/verbs/completion_queue.h"

#include <cerrno>
#include <cstring>

namespace r2ccl::verbs {

Result<CompletionQueue> CompletionQueue::create(const Device& device, int entries) {
  CompletionQueue queue;
  queue.queue_.reset(ibv_create_cq(device.context(), entries, nullptr, nullptr, 0));
  if (queue.queue_) return queue;
  return Error{ErrorCode::kOutOfResources,
               "ibv_create_cq of " + std::to_string(entries) + " entries on " + device.name() + ": " +
                   std::strerror(errno) + " (limits: " + std::to_string(device.limits().max_cq) + " CQs, " +
                   std::to_string(device.limits().max_cqe) + " entries)"};
}

std::string describe(ibv_wc_status status) {
  return std::string(ibv_wc_status_str(status)) + " (" + std::to_string(int(status)) + ")";
}

}  // namespace r2ccl::verbs
