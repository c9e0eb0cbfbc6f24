// SPDX-License-Identifier: Apache-2.0
// The trace rings of the ranks that run on this machine.
#pragma once

#include <string>
#include <vector>

#include "r2ccl/trace/ring.h"

namespace r2bench {

class TraceRings {
 public:
  /// `count` rings of `events` events each (a power of two). Throws std::system_error.
  TraceRings(size_t count, size_t events) {
    for (size_t i = 0; i < count; ++i) readers_.push_back(r2ccl::trace::Reader::create(events));
  }
  /// For R2CC_TRACE of that rank.
  const std::string& path(size_t rank) const { return readers_[rank].path(); }
  /// As Collector::Drain.
  uint64_t drain(size_t rank, std::vector<r2ccl::trace::Event>& out) { return readers_[rank].drain(out); }
  /// As Collector::Decline.
  void decline(r2ccl::trace::EventType type) {
    for (r2ccl::trace::Reader& reader : readers_) reader.decline(type);
  }

 private:
  std::vector<r2ccl::trace::Reader> readers_;
};

}  // namespace r2bench
