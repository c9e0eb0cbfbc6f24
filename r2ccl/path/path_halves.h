// SPDX-License-Identifier: Apache-2.0
// One end's halves of paths, from the first driver call until they can be used: the NIC's worker reads the
// port anew, makes the queue pairs, and connects them when the other half is known. The service thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "r2ccl/path/nic_workers.h"
#include "r2ccl/path/path.h"
#include "r2ccl/path/process_context.h"

namespace r2ccl {

struct PathHalf {
  uint32_t path = 0;
  int local = 0, remote = 0;              ///< NICs
  std::optional<wire::PathEnd> peer_end;  ///< receiver: to be connected at once
  bool unwanted = false;
  uint32_t device_fatals = 0;  ///< ProcessContext::device_fatals when it was begun
  JobPtr job;
  // the worker's, until the job is done
  Result<std::unique_ptr<Path>> made{std::unique_ptr<Path>()};
  int speed_mbps = 0;  ///< of the port; 0: not known
  wire::PathEnd end{};
};

class PathHalves {
 public:
  PathHalves(ProcessContext& context, std::shared_ptr<ChannelMemory> memory, bool sends)
      : context_(context), memory_(std::move(memory)), sends_(sends) {}

  /// Begins a half of `path` over these NICs. `flushes`: what it brings is flushed to a GPU's memory.
  void make(uint32_t path, int local, int remote, bool flushes, std::optional<wire::PathEnd> peer_end = {});
  /// Is it being made, and wanted?
  bool makes(uint32_t path) const;
  /// nullptr: it is not being made.
  const PathHalf* find(uint32_t path) const;
  size_t under_way() const { return halves_.size(); }
  /// What is made of it will be destroyed.
  void unwant(uint32_t path);
  void unwant_all();
  /// Those whose NIC's driver does not answer are not wanted any more; `tell` is called for each, once.
  void unwant_stuck(const std::function<void(const PathHalf&)>& tell);
  /// One whose job is done, the oldest; nullptr: none. It stays until remove().
  std::shared_ptr<PathHalf> done() const;
  void remove(const PathHalf& half);

 private:
  ProcessContext& context_;
  const std::shared_ptr<ChannelMemory> memory_;
  const bool sends_;
  std::vector<std::shared_ptr<PathHalf>> halves_;
};

}  // namespace r2ccl
