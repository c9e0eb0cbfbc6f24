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
#include "r2ccl/collective/agreement_message.h"
#include "r2ccl/collective/host/plan_agreement.h"
#include "r2ccl/control/shared_page.h"

namespace r2ccl::collective {

/// One tuner's end of it. An agreement's thread may hold and resume while the tuner's thread counts.
class NodeCounter final : public OperationCounter {
 public:
  static constexpr int kMostTuners = 64;  ///< on a node

  /// `name`: what the node's tuners of this communicator have in common, and nobody else. `tuners`: how many
  /// they are; one needs no company. Errors: kSystem.
  static Result<std::shared_ptr<NodeCounter>> make(const std::string& name, int tuners);
  ~NodeCounter() override;

  /// The view of operation `number` of this tuner, which begins with this; numbers in order. nullptr: none
  /// has been agreed on since the beginning. Sleeps while it is held. kPeerGone after `at_most`, or when the
  /// agreement has failed.
  Result<ViewPointer> wait_for(uint64_t number, std::chrono::milliseconds at_most);
  /// Looks for the node's other tuners. True: all are here (and stay).
  bool complete();
  /// The first to ask on this node gets true, again and again. Of several groups of a communicator that one's
  /// rank 0 decides for the tuners. `who` is not 0.
  bool lead(uint64_t who);

  std::optional<uint64_t> hold(uint64_t ahead) override;
  void resume(uint64_t from, const ViewPointer& view) override;
  void fail(const Error& error) override;

 private:
  struct Table;
  NodeCounter() = default;
  Table& table() const;
  int claim(uint64_t number);
  ViewPointer view_of(uint64_t number);

  std::mutex mutex_;  // which memory it is, and the slot
  std::unique_ptr<Table> own_;
  std::optional<control::SharedPage> page_;
  int tuners_ = 1;
  int slot_ = -1;
  bool complete_ = false;
  uint64_t next_ = 0;
  ViewPointer view_;
  std::optional<Error> error_;
};

}  // namespace r2ccl::collective
