// SPDX-License-Identifier: Apache-2.0
// A completion queue, polled, never waited for.
#pragma once

#include <memory>
#include <span>

#include "r2ccl/verbs/device.h"

namespace r2ccl::verbs {

class CompletionQueue {
 public:
  CompletionQueue() = default;
  static Result<CompletionQueue> create(const Device& device, int entries);

  /// How many entries of `out` were filled; negative when the device itself fails.
  int poll(std::span<ibv_wc> out) noexcept { return ibv_poll_cq(queue_.get(), int(out.size()), out.data()); }
  ibv_cq* get() const { return queue_.get(); }
  explicit operator bool() const { return queue_ != nullptr; }

 private:
  std::unique_ptr<ibv_cq, Deleter<&ibv_destroy_cq>> queue_;
};

/// "RETRY_EXC_ERR (12): transport retry counter exceeded" for logs.
std::string describe(ibv_wc_status status);

}  // namespace r2ccl::verbs
