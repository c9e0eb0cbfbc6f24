// SPDX-License-Identifier: Apache-2.0
// What traffic has its home on which NIC of the node, of all its processes: each writes down its own, and
// reads the others'. NICs are told apart by GUID, so processes may see different ones, in different orders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "r2ccl/balance/shares.h"
#include "r2ccl/control/shared_page.h"

namespace r2ccl {

/// Service thread only.
class NodeDemand {
 public:
  /// `guids`: of this process's NICs, in their order. `scope`: processes with the same one are on one node.
  NodeDemand(const std::string& scope, uint64_t process, std::vector<uint64_t> guids);

  /// Writes down what this process has, and returns what all have, itself included, at time `now`.
  balance::Demand exchange(const balance::Demand& own, uint64_t now);
  /// Are the others seen? Else they may be there all the same.
  bool sees_others() const { return page_ && page_->joined(); }
  /// Processes that were seen at the last exchange, itself included.
  int processes() const { return processes_; }
  /// Lets other processes in.
  void tend();

 private:
  struct Slot;
  struct Table;
  Slot* own_slot(uint64_t now);

  uint64_t process_;
  std::vector<uint64_t> guids_;
  std::optional<control::SharedPage> page_;
  int slot_ = -1;
  int processes_ = 1;
};

}  // namespace r2ccl
