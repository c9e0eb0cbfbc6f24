// SPDX-License-Identifier: Apache-2.0
// The fabric's shared memory as a test sees it: who holds what at this moment.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/vhca/fabric/fabric_host.h"
#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {

class FabricView {
 public:
  explicit FabricView(const FabricHost& fabric) {
    const int fd = ::open(fabric.path().c_str(), O_RDWR | O_CLOEXEC);
    void* memory = ::mmap(nullptr, kFabricBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    ::close(fd);
    if (memory == MAP_FAILED) throw Failure("mmap of the fabric");
    fabric_ = static_cast<Fabric*>(memory);
  }
  ~FabricView() { ::munmap(fabric_, kFabricBytes); }
  FabricView(const FabricView&) = delete;
  FabricView& operator=(const FabricView&) = delete;

  Fabric& operator*() const { return *fabric_; }
  Fabric* operator->() const { return fabric_; }
  QpSlot& queue_pair(std::uint32_t number) const {
    return fabric_->queue_pairs[number & (kMaxQueuePairs - 1)];
  }
  bool is_held(std::uint32_t number) const {
    return static_cast<ProcessId>(queue_pair(number).responder.load()) != 0;
  }

 private:
  Fabric* fabric_;
};

}  // namespace vhca::test
