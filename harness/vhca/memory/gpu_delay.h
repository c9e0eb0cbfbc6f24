// SPDX-License-Identifier: Apache-2.0
// Delayed visibility (VHCA_DELAY_VISIBILITY): what NICs write into GPU memory is completed at once, and seen
// by the GPU later. It stands for the way of posted writes over PCI Express: they become visible when the NIC
// that made them reads the GPU's memory, or in their own time. So a program that forgets to flush, or flushes
// one NIC of two, finds old bytes. Nothing of this exists where the variable is not set.
//
// An initiator writes into a shadow of the region, in host memory of its owner, and leaves a note in shared
// memory. The owner makes the bytes visible: when a READ through that NIC asks for it, or when their time has
// come, by a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/memory/memory_move.h"

namespace vhca {

// The owner's side. The setting: nothing when it is not set; 0 (after a line on stderr) when it is no number
// of milliseconds from 1 to 60000.
std::optional<std::uint64_t> visibility_delay_ms();
// Gives the region in `slot`, of NIC `nic`, a shadow. False: there is no memory.
bool delay_region(Fabric& fabric, ProcessId self, std::size_t slot, std::size_t bytes, std::uint32_t nic,
                  GpuRegion& region);
// Makes visible what still waits, and gives the shadow back. Nobody writes to it any more.
void end_delay(std::size_t slot);

// An initiator's write of [offset, offset + bytes) of a delayed region: claimed before the bytes go into the
// shadow, and published when they are there. Not published, it is given up.
class DelayedWrite {
 public:
  DelayedWrite(Fabric& fabric, const GpuRegion& region, ProcessId self, std::uint64_t offset,
               std::uint64_t bytes);
  ~DelayedWrite();
  DelayedWrite(const DelayedWrite&) = delete;
  DelayedWrite& operator=(const DelayedWrite&) = delete;
  // False: too many wait already; try again later.
  bool claimed() const { return note_ != nullptr; }
  void publish();

 private:
  PendingWrite* note_;
};

// Returns when all that the region's NIC has written into GPU memory of `owner` before is visible; kGone when
// the owner has died, or does not answer within two seconds.
MoveStatus flush_delayed(Fabric& fabric, const GpuRegion& region, ProcessId self, ProcessId owner);

}  // namespace vhca
