// SPDX-License-Identifier: Apache-2.0
// How the traffic of a schedule is spread over rails, so that no NIC is asked for more than its share of it,
// whichever nodes have degraded NICs. Rail i joins the i-th NICs of the nodes; a message travels on one of them,
// so a NIC that is lost on one node leaves the NICs of its rail on the others with less to do, unless what these
// say to each other makes up for it. Pure: equal inputs give equal shares on all ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/schedule.h"

namespace r2ccl::collective {

/// Parts of a connection's traffic, by rail, of kWhole together. Integers, so that both ends of a connection
/// count alike.
using RailShares = std::array<uint32_t, kMostNics>;
inline constexpr uint32_t kWhole = 1 << 16;
/// Smaller messages cost more than they even out.
inline constexpr size_t kLeastMessage = 16 << 10;
/// Job::least_chunk_bytes has so many tenths of such a message for each NIC: one, as nearly as the planner's
/// powers of two allow.
inline constexpr size_t kLeastChunkTenths = 9;
/// Of rails 0 … rails − 1, as even as kWhole can be divided.
RailShares even_shares(size_t rails);

/// Traffic from one node to another, in any unit.
struct Flow {
  uint32_t from = 0, to = 0;
  double amount = 0;
};
/// Shares of each flow. `weights`: what the NICs can carry in each direction, those of node 0 first, `rails` of
/// each node. The busiest NIC, relative to its weight, is done as early as can be, to about 1 %; of all ways to
/// do so the most even one (iterative scaling). Two nodes without a common rail that works get even shares:
/// Balance finds them a way.
std::vector<RailShares> spread_flows(std::span<const Flow> flows, std::span<const double> weights, size_t rails);
/// The load of the busiest NIC over its weight, when flows are spread so.
double busiest_nic(std::span<const Flow> flows, std::span<const RailShares> shares, std::span<const double> weights,
                   size_t rails);

/// For each connection of a schedule. `nics`: View::nics. Empty: all alike over `rails` rails, because all NICs
/// are, or nothing is known of them.
std::vector<RailShares> rail_shares(const Schedule& schedule, std::span<const double> nics, size_t rails);

/// How many times as long as nodes need by all their NICs together the busiest NIC needs, if the schedule's traffic
/// is spread so: above 1 where nodes have lost NICs of different rails, and what they say to each other does not
/// find enough common ones. Infinite: two nodes have no common rail, and which way Balance finds is not known.
double rails_need(const Schedule& schedule, std::span<const double> nics, size_t rails);
/// Among more nodes that takes too long to be found out for each size of an operation.
inline constexpr size_t kMostNodesByRails = 16;

/// How the chunks of a connection are cut into messages, and which rail each takes: every chunk is spread over the
/// rails by their shares, and what is too small for that is made up for by the next ones. Both ends of a
/// connection ask for the same chunks in the same order, and get the same answers.
class RailTurns {
 public:
  /// `first`: the rail that goes first where several are alike.
  explicit RailTurns(size_t rails = 1, size_t first = 0) : rails_(rails), first_(first % rails), shares_(even_shares(rails)) {}

  void set(const RailShares& shares);
  struct Message {
    size_t rail = 0, bytes = 0;
  };
  /// The next message of a chunk, of which `posted` bytes have gone; `most`: of a message. Asked again it says the
  /// same until the message has gone.
  const Message& next(size_t chunk, size_t posted, size_t most);
  void took();

 private:
  size_t rails_, first_;
  RailShares shares_;
  std::array<int64_t, kMostNics> credit_{};  // bytes · kWhole that a rail is behind its share
  Message message_;                          // the next one; without bytes: not cut yet
};

}  // namespace r2ccl::collective
