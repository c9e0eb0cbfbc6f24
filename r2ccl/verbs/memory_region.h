// SPDX-License-Identifier: Apache-2.0
// A registered range of memory on one NIC.
#pragma once

#include <memory>

#include "r2ccl/verbs/device.h"

namespace r2ccl::verbs {

class MemoryRegion {
 public:
  MemoryRegion() = default;
  /// Registers [data, data + bytes) for local and remote access, for the NIC to write in the order in which
  /// the writes come. Error kMemoryLock (ENOMEM) or kVerbs.
  static Result<MemoryRegion> create(const Device& device, void* data, size_t bytes);
  /// The same for a message buffer: where Device::relaxed_ordering() says so, its bytes may be written in any
  /// order. (What is polled must not be registered so.)
  static Result<MemoryRegion> create_buffer(const Device& device, void* data, size_t bytes);

  /// The same for [offset, offset + bytes) of a dma-buf, which work requests name from `data` on.
  static Result<MemoryRegion> create_from_dma_buf(const Device& device, int fd, uint64_t offset,
                                                  const void* data, size_t bytes);

  /// Takes the memory from the NIC. False: the driver refuses, and it stays registered.
  bool deregister() noexcept {
    if (region_ && ibv_dereg_mr(region_.get()) != 0) return false;
    region_.release();
    return true;
  }

  uint32_t lkey() const { return region_->lkey; }
  uint32_t rkey() const { return region_->rkey; }
  explicit operator bool() const { return region_ != nullptr; }

 private:
  std::unique_ptr<ibv_mr, Deleter<&ibv_dereg_mr>> region_;
};

}  // namespace r2ccl::verbs
