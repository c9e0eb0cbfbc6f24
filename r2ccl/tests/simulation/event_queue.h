// SPDX-License-Identifier: Apache-2.0
// What is to happen, by time; at the same time, in the order in which it was entered. A heap in which each
// entry has four below it: it is flatter than std::priority_queue's, so an entry moves less often.
#pragma once

#include <cstddef>
#include <vector>

namespace r2ccl::simulation {

/// `Event` has operator<: what comes first.
template <class Event>
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  const Event& top() const { return heap_.front(); }
  void push(const Event& event) {
    size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0) {
      const size_t above = (at - 1) / kBelow;
      if (!(event < heap_[above])) break;
      heap_[at] = heap_[above];
      at = above;
    }
    heap_[at] = event;
  }
  Event pop() {
    const Event first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return first;
  }

 private:
  static constexpr size_t kBelow = 4;

  /// From the top down to its place.
  void sink(const Event& event) {
    const size_t count = heap_.size();
    size_t at = 0;
    for (size_t below = 1; below < count; below = kBelow * at + 1) {
      size_t first = below;
      for (size_t other = below + 1; other < below + kBelow && other < count; ++other)
        if (heap_[other] < heap_[first]) first = other;
      if (!(heap_[first] < event)) break;
      heap_[at] = heap_[first];
      at = first;
    }
    heap_[at] = event;
  }

  std::vector<Event> heap_;
};

}  // namespace r2ccl::simulation
