// SPDX-License-Identifier: Apache-2.0
// What one rank does in a schedule, and on which ends of its transport. Made once for a plan, shared by all
// operations that follow it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "r2ccl/collective/rails.h"
#include "r2ccl/collective/schedule.h"

namespace r2ccl::collective {

/// First element and number of elements of each chunk.
using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

class Program {
 public:
  /// `end_of(peer, sends, ordinal)`: the transport's end for the `ordinal`-th connection of the schedule from
  /// one rank to another, counted for each pair and direction. Both ends of a connection get the same ordinal,
  /// and other schedules of the same group use the same channels again.
  /// `slots`: operations that stand beside each other, each on ends of its own, taken in turn.
  using EndOf = std::function<uint32_t(uint32_t peer, bool sends, uint32_t ordinal)>;
  /// `rails`: for each connection what goes over which rail; empty: alike over all.
  Program(Schedule schedule, uint32_t rank, const EndOf& end_of, std::vector<RailShares> rails = {},
          uint32_t slots = 1);

  /// Without the lanes of other ranks.
  const Schedule& schedule() const { return schedule_; }
  const std::vector<Lane>& lanes() const { return schedule_.lanes[rank_]; }
  const Connection& connection(size_t lane) const { return schedule_.connections[lanes()[lane].connection]; }
  uint32_t slots() const { return slots_; }
  uint32_t end(size_t lane, uint32_t slot) const { return ends_[lane * slots_ + slot]; }
  uint32_t rank() const { return rank_; }
  /// nullptr: alike over all.
  const RailShares* rails(size_t lane) const { return rails_.empty() ? nullptr : &rails_[lanes()[lane].connection]; }
  /// Kept for the sizes that were asked for last.
  std::shared_ptr<const Ranges> ranges(uint64_t elements);

 private:
  Schedule schedule_;
  uint32_t rank_;
  uint32_t slots_;
  std::vector<uint32_t> ends_;     // by lane and slot
  std::vector<RailShares> rails_;  // by connection
  std::map<uint64_t, std::shared_ptr<const Ranges>> ranges_;
};

}  // namespace r2ccl::collective
