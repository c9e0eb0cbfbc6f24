// SPDX-License-Identifier: Apache-2.0
// Lets the operations of one sequence begin, on one thread, while the agreement's thread holds them and gives
// them new views. No operation slips through a hold: whoever begins one announces its number and then reads
// the limit; whoever holds lowers the limit and then reads the number.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "r2ccl/collective/host/plan_agreement.h"

namespace r2ccl::collective {

class Gate : public OperationCounter {
 public:
  explicit Gate(ViewPointer first) : admission_(first), current_(std::move(first)) {}

  /// The view of operation `number`, which begins with this; nullptr: it is held, ask again. Numbers in
  /// order, one thread at a time.
  Result<ViewPointer> view_for(uint64_t number) {
    announce(number);
    return announced(number);
  }
  /// First operation that has not begun.
  uint64_t next() const { return begun_.load(std::memory_order_relaxed); }

  std::optional<uint64_t> hold(uint64_t ahead) override;
  void resume(uint64_t from, const ViewPointer& view) override;
  void fail(const Error& error) override;

 protected:
  // The two steps of view_for(), between which the agreement's thread may hold or resume.
  void announce(uint64_t number) { begun_.store(number + 1, std::memory_order_seq_cst); }
  Result<ViewPointer> announced(uint64_t number);

 private:
  Result<ViewPointer> ask(uint64_t number);
  /// Locked. None where the view that was answered last is over.
  uint64_t limit() const { return admission_.oldest() == current_ ? admission_.limit() : 0; }

  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> limit_{kNever};  // operations below it have the view current_
  std::mutex mutex_;
  Admission admission_;         // mutex_
  std::optional<Error> error_;  // mutex_
  ViewPointer current_;         // who begins operations, and writes it under the lock
};

}  // namespace r2ccl::collective
