// SPDX-License-Identifier: Apache-2.0
// What is to happen, by time; at the same time, in the order in which it was entered. A heap of small entries
// in which each has four below it: all four lie in one line of the cache, and which of them comes first is
// found without branches, which nobody could predict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace r2ccl::simulation {

class EventQueue {
 public:
  struct Event {
    uint64_t when;
    uint32_t sequence;
    uint32_t what;
  };

  bool empty() const { return heap_.empty(); }
  uint64_t first() const { return uint64_t(heap_.front() >> 64); }
  void push(const Event& event) {
    const Entry entry = Entry(event.when) << 64 | Entry(event.sequence) << 32 | event.what;
    size_t at = heap_.size();
    heap_.push_back(entry);
    while (at > 0) {
      const size_t above = (at - 1) / kBelow;
      if (entry >= heap_[above]) break;
      heap_[at] = heap_[above];
      at = above;
    }
    heap_[at] = entry;
  }
  Event pop() {
    const Entry first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return {uint64_t(first >> 64), uint32_t(first >> 32), uint32_t(first)};
  }

 private:
  using Entry = unsigned __int128;  // when, sequence, what
  static constexpr size_t kBelow = 4;

  size_t earlier(size_t a, size_t b) const { return heap_[b] < heap_[a] ? b : a; }
  /// From the top down to its place.
  void sink(Entry entry) {
    const size_t count = heap_.size();
    size_t at = 0;
    for (size_t below = 1; below < count; below = kBelow * at + 1) {
      size_t first = below;
      if (below + kBelow <= count)
        first = earlier(earlier(below, below + 1), earlier(below + 2, below + 3));
      else
        for (size_t other = below + 1; other < count; ++other) first = earlier(first, other);
      if (heap_[first] >= entry) break;
      heap_[at] = heap_[first];
      at = first;
    }
    heap_[at] = entry;
  }

  std::vector<Entry> heap_;
};

}  // namespace r2ccl::simulation
