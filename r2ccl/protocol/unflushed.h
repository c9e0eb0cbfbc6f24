// SPDX-License-Identifier: Apache-2.0
// What NICs have written into a GPU's memory and the GPU may not see yet: segments that have arrived over a
// path and whose NIC has not been flushed since. A flush is a READ of that memory by the same NIC: PCI
// Express puts its answer behind what the NIC wrote before. Pure: no verbs, no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace r2ccl {

class Unflushed {
 public:
  struct Segment {
    uint64_t message;
    uint32_t segment;
    uint32_t bytes;
    uint32_t path;
    uint64_t order;  ///< of its arrival in the channel, from 1
  };

  /// Room for so many, so that the data path allocates nothing.
  void reserve(size_t segments) { segments_.reserve(segments); }
  bool empty() const { return segments_.empty(); }

  void arrived(uint64_t message, uint32_t segment, uint32_t bytes, uint32_t path) {
    segments_.push_back({message, segment, bytes, path, ++orders_});
  }
  /// The one that came last over `path`; nullptr: none waits. Valid until the next change.
  const Segment* newest(uint32_t path) const {
    const auto it = std::find_if(segments_.rbegin(), segments_.rend(),
                                 [=](const Segment& segment) { return segment.path == path; });
    return it == segments_.rend() ? nullptr : &*it;
  }
  /// Takes those out that came over `path`, up to the one with that order, and hands each to `f`.
  template <typename F>
  void take(uint32_t path, uint64_t up_to, F&& f) {
    std::erase_if(segments_, [&](const Segment& segment) {
      if (segment.path != path || segment.order > up_to) return false;
      f(segment);
      return true;
    });
  }
  /// All of `path`.
  template <typename F>
  void take(uint32_t path, F&& f) {
    take(path, orders_, f);
  }

 private:
  std::vector<Segment> segments_;  // in the order of their arrival
  uint64_t orders_ = 0;
};

}  // namespace r2ccl
