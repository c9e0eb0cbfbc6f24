// SPDX-License-Identifier: Apache-2.0
// What NCCL's tuner answers: NCCL's own choice without CollNet while all nodes are healthy, CollNet (and with
// it the host engine) once a node is degraded and the operation is large enough. All ranks of a communicator
// answer alike for the same operation: each counts the AllReduces that it is asked about, and the group's
// agreement says from which number on a view holds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "r2ccl/base/config.h"
#include "r2ccl/base/result.h"
#include "r2ccl/collective/host/least_size.h"
#include "r2ccl/collective/host/plan_agreement.h"

namespace r2ccl::collective {

class NodeCounter;

/// What is to be done with NCCL's table of costs.
enum class Choice : uint8_t {
  kAsIs,            ///< nothing: CollNet cannot be chosen, or nothing else can (NCCL_ALGO)
  kWithoutCollNet,  ///< CollNet's entries are taken out, and NVLS's, which goes over CollNet between nodes
  kCollNet,         ///< a CollNet entry gets the least cost
};

/// What one rank's tuner of one communicator decides. One thread at a time.
class Selection {
 public:
  struct Setting {
    uint64_t communicator = 0;  ///< NCCL's number of it (commId); 0: not known (tuners before v5)
    uint64_t ranks = 0, nodes = 0;
    std::string node;  ///< what the processes of this node have in common
    /// A decision that stays away longer is an error.
    std::chrono::milliseconds at_most{30000};

    static Setting from(const Config& config);
  };

  explicit Selection(Setting setting);
  ~Selection();
  Selection(const Selection&) = delete;
  Selection& operator=(const Selection&) = delete;

  /// The next operation. `collnet`, `others`: does NCCL's table have CollNet, and anything else? May sleep
  /// for a control round trip while a new view is agreed on, which needs no progress of NCCL anywhere. An
  /// error ends the collective: rank 0 of the group cannot be reached.
  Result<Choice> choose(bool all_reduce, uint64_t bytes, bool collnet, bool others);

 private:
  friend class GroupOffer;
  friend struct Registry;
  void say(Choice choice, uint64_t epoch, uint64_t bytes);

  const Setting setting_;
  std::shared_ptr<NodeCounter> counter_;  // nullptr: never anything but NCCL's own choice
  uint64_t next_ = 0;
  bool counted_ = false;  // the node's tuners are complete, and the groups of this process know
  bool said_incomplete_ = false;
  uint64_t said_[2] = {};  // by answer: the last epoch that it was logged for
};

/// A group's offer to decide for the tuners of its communicator on this node, as long as it exists.
class GroupOffer {
 public:
  /// `agreement` outlives it. `ranks`: of the group, that is, nodes. `capacity`: what the node can carry;
  /// asked at each AllReduce, so that a failure is noticed while NCCL's rings carry everything. `advise` is
  /// called by the agreement's thread.
  GroupOffer(uint64_t communicator, uint64_t ranks, PlanAgreement& agreement,
             std::function<NodeCapacity()> capacity, Advise advise);
  ~GroupOffer();
  GroupOffer(const GroupOffer&) = delete;
  GroupOffer& operator=(const GroupOffer&) = delete;

 private:
  friend class Selection;
  friend struct Registry;
  const uint64_t communicator_, ranks_, id_;
  PlanAgreement& agreement_;
  const std::function<NodeCapacity()> capacity_;
  const Advise advise_;
  Selection* selection_ = nullptr;  // whose counter its agreement has
};

}  // namespace r2ccl::collective
