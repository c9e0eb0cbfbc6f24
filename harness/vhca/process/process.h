// SPDX-License-Identifier: Apache-2.0
// This process as one of the fabric's: the mapping, its node, its slot, and its way into other processes'
// memory. It knows of no queues.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/memory/memory_move.h"

namespace vhca {

class Process {
 public:
  struct Place {
    Fabric* fabric;
    std::uint32_t node;
    std::uint32_t memory_node;
  };

  // The place that VHCA_FABRIC, VHCA_NODE and VHCA_MEMORY_NODE name, the fabric mapped. Nothing, and a line
  // on stderr, when they name no usable one; silently nothing when VHCA_FABRIC is not set.
  static std::optional<Place> find_place();

  explicit Process(const Place& place) : place_(place) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Fabric& fabric() { return *place_.fabric; }
  const Node& node() const { return place_.fabric->nodes[place_.node]; }
  // NUMA node of this process's memory (VHCA_MEMORY_NODE), or kNoMemoryNode.
  std::uint32_t memory_node() const { return place_.memory_node; }
  ProcessId self() const { return self_; }
  MemoryMover& mover() { return *mover_; }
  // True in a forked child for everything that its parent made: the fabric knows the parent only.
  bool is_forked_copy() const { return forked_.load(std::memory_order_relaxed); }

 protected:
  ~Process() = default;

  // Takes a slot of the fabric, gives it back. 0 or an errno.
  int join();
  void leave();
  void mark_as_forked_copy() { forked_.store(true); }

 private:
  Place place_;
  ProcessId self_ = 0;
  std::unique_ptr<MemoryMover> mover_;
  std::atomic<bool> forked_{false};
  std::uint64_t beacon_ = 0;
};

}  // namespace vhca
