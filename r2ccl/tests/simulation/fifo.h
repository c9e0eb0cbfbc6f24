// SPDX-License-Identifier: Apache-2.0
// A queue in one piece of memory, which grows only. (std::deque takes and gives back 512 bytes every few
// entries.)
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace r2ccl::simulation {

template <class T>
class Fifo {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  T& front() { return slots_[first_]; }
  /// From the oldest on.
  T& operator[](size_t i) { return slots_[place(i)]; }
  const T& operator[](size_t i) const { return slots_[place(i)]; }
  /// The new last entry, as an earlier one has left it.
  T& grow() {
    if (count_ == slots_.size()) widen();
    return slots_[place(count_++)];
  }
  void push_back(const T& entry) { grow() = entry; }
  void pop_front() {
    first_ = place(1);
    --count_;
  }
  void clear() { first_ = count_ = 0; }
  template <class Predicate>
  void erase_if(Predicate&& unwanted) {
    size_t kept = 0;
    for (size_t i = 0; i < count_; ++i)
      if (!unwanted((*this)[i])) (*this)[kept++] = (*this)[i];
    count_ = kept;
  }

 private:
  static constexpr size_t kFirstSlots = 8;

  size_t place(size_t i) const { return (first_ + i) & (slots_.size() - 1); }
  void widen() {
    std::vector<T> wider(slots_.empty() ? kFirstSlots : 2 * slots_.size());
    for (size_t i = 0; i < count_; ++i) wider[i] = std::move((*this)[i]);
    slots_ = std::move(wider);
    first_ = 0;
  }

  std::vector<T> slots_;  // a power of two
  size_t first_ = 0, count_ = 0;
};

}  // namespace r2ccl::simulation
