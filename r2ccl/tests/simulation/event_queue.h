// SPDX-License-Identifier: Apache-2.0
// What is to happen, by time; at the same time, in the order in which it was entered. The next event is the
// last of a sorted array, so that it is taken in constant time. Few events wait at once, and most new ones
// are among the next to come, so that few are moved for one that is entered.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace r2ccl::simulation {

class EventQueue {
 public:
  struct Event {
    uint64_t when;
    uint32_t sequence;  ///< increases from one that is entered to the next
    uint32_t what;
  };

  bool empty() const { return waiting_.empty(); }
  uint64_t first() const { return waiting_.back().when; }
  void push(const Event& event) {
    size_t at = waiting_.size();
    waiting_.push_back(event);
    for (const size_t least = at - std::min(at, kNear); at > least; --at) {
      if (waiting_[at - 1].when > event.when) break;
      waiting_[at] = waiting_[at - 1];
    }
    if (at > 0 && waiting_[at - 1].when <= event.when) at = make_room(at, event.when);
    waiting_[at] = event;
  }
  Event pop() {
    const Event event = waiting_.back();
    waiting_.pop_back();
    return event;
  }

 private:
  static constexpr size_t kNear = 16;  // events that are looked at one after the other

  /// Among those before `end`; the place of `end` is free.
  size_t make_room(size_t end, uint64_t when) {
    const auto last = waiting_.begin() + std::ptrdiff_t(end);
    const auto place = std::partition_point(waiting_.begin(), last,
                                            [when](const Event& event) { return event.when > when; });
    std::move_backward(place, last, last + 1);
    return size_t(place - waiting_.begin());
  }

  std::vector<Event> waiting_;  // the latest first
};

}  // namespace r2ccl::simulation
