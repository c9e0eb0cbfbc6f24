// SPDX-License-Identifier: Apache-2.0
// How far the tuners of one communicator have come on one node, whichever processes they are in, and which
// view each of their operations has. Memory that all of them share: a tuner writes down its number and then
// reads the hold; who holds writes the hold and then reads the numbers, so nothing slips through. It counts
// only when all tuners of the node are known to share it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "r2ccl/base/result.h"
#include "r2ccl/collective/agreement.h"
#include "r2ccl/control/shared_page.h"

namespace r2ccl::collective {

/// One tuner's end of it. An agreement's thread may hold and resume while the tuner's thread counts.
class NodeCounter {
 public:
  struct Answer {
    uint64_t epoch = 0;             ///< of the view; 0: none has been agreed on since the beginning
    uint64_t least_bytes = kNever;  ///< operations of this size and more go over CollNet
  };

  static constexpr int kMostTuners = 64;  ///< on a node

  /// `name`: what the node's tuners of this communicator have in common, and nobody else. `tuners`: how many
  /// they are; one needs no company. Errors: kSystem.
  static Result<std::shared_ptr<NodeCounter>> make(const std::string& name, int tuners);
  ~NodeCounter();
  NodeCounter(const NodeCounter&) = delete;
  NodeCounter& operator=(const NodeCounter&) = delete;

  /// What holds for operation `number` of this tuner, which begins with this; numbers in order. Sleeps while
  /// it is held. kPeerGone after `at_most`, or when the agreement has failed.
  Result<Answer> wait_for(uint64_t number, std::chrono::milliseconds at_most);
  /// Looks for the node's other tuners. True: all are here (and stay).
  bool complete();
  /// The first to ask on this node gets true, again and again. Of several groups of a communicator that one's
  /// rank 0 decides for the tuners. `who` is not 0.
  bool lead(uint64_t who);

  /// The engine of group `who` has this pace. Returns that of the slowest engine of the node's groups.
  CapacityCode engine_pace(uint64_t who, CapacityCode own);
  /// Group `who` is gone.
  void forget_engine(uint64_t who);

  // As OperationCounter, for the group that leads.
  std::optional<uint64_t> hold(uint64_t ahead);
  /// `answer` holds from operation `from` on; nullopt or kNever: the old one goes on.
  void resume(uint64_t from, const std::optional<Answer>& answer);
  void fail(const Error& error);

 private:
  struct Table;
  NodeCounter() = default;
  Table& table() const;
  int claim(uint64_t number);
  Answer answer_of(uint64_t number) const;

  std::mutex mutex_;  // which memory it is, and the slot
  std::unique_ptr<Table> own_;
  std::optional<control::SharedPage> page_;
  int tuners_ = 1;
  int slot_ = -1;
  bool complete_ = false;
  uint64_t next_ = 0;
  std::optional<Error> error_;
};

}  // namespace r2ccl::collective
