// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/gate.h"

#include <algorithm>

namespace r2ccl::collective {

Result<ViewPointer> Gate::announced(uint64_t number) {
  if (number < limit_.load(std::memory_order_seq_cst)) return current_;
  const std::lock_guard lock(mutex_);
  return ask(number);
}

// Locked. If it is held after all, begun_ was one too large until here: a hold point may be larger than it
// need be.
Result<ViewPointer> Gate::ask(uint64_t number) {
  admission_.begun_until(number);
  const ViewPointer view = admission_.admit(number);
  if (!view) {
    begun_.store(number, std::memory_order_seq_cst);
    if (error_) return *error_;
    return ViewPointer{};
  }
  begun_.store(number + 1, std::memory_order_seq_cst);
  current_ = view;
  limit_.store(limit(), std::memory_order_seq_cst);
  return view;
}

// An operation that is announced counts as begun. But it may have to ask yet which view it has (announced()),
// so the limit stays at the first operation of a view that nobody has asked for.
std::optional<uint64_t> Gate::hold(uint64_t ahead) {
  const std::lock_guard lock(mutex_);
  limit_.store(0, std::memory_order_seq_cst);
  const uint64_t begun = std::max(begun_.load(std::memory_order_seq_cst), admission_.next());
  const uint64_t point = admission_.hold(begun - admission_.next() + ahead);
  limit_.store(limit(), std::memory_order_seq_cst);
  return point;
}

void Gate::resume(uint64_t from, const ViewPointer& view) {
  const std::lock_guard lock(mutex_);
  admission_.resume(from, view);
  error_.reset();
  limit_.store(limit(), std::memory_order_seq_cst);
}

void Gate::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  error_ = error;
}

}  // namespace r2ccl::collective
