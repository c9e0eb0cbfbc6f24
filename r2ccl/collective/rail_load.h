// SPDX-License-Identifier: Apache-2.0
// How long the busiest NIC of a schedule takes at least, however its traffic is divided among the rails.
// Pure.
//
// Two nodes can use the rails on which both have a NIC. So what a node sends to others with which it has only
// the rails S in common goes over its NICs on S: for each S this is a limit that is linear in the traffic.
// The greatest of all limits is the least time over rails, but for rare cases in which limits of several
// nodes meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {

/// What each node sends to each other one, in parts of the data: row `from`, column `to`.
class Traffic {
 public:
  explicit Traffic(size_t nodes) : nodes_(nodes), amount_(nodes * nodes) {}
  size_t nodes() const { return nodes_; }
  double operator()(size_t from, size_t to) const { return amount_[from * nodes_ + to]; }
  void add(uint32_t from, uint32_t to, double amount) { amount_[from * nodes_ + to] += amount; }
  /// A ring AllReduce of this part of the data.
  void add_ring(const Ranks& order, double fraction);
  /// A part of a mix: four-stage, or a ring if it has no leaves.
  void add_part(const MixPart& part);
  /// unequal_ring_allreduce(), r2ccl_allreduce(), and any schedule.
  void add_unequal_ring(const Ranks& order, const UnequalRing& shares);
  void add_r2ccl(std::span<const PartialRing> rings);
  void add_schedule(const Schedule& schedule);

 private:
  size_t nodes_;
  std::vector<double> amount_;
};

/// Have at least two nodes lost capacity on different NICs? `nics`: View::nics; false if empty.
bool rails_differ(std::span<const double> nics, size_t nodes);

class RailLimits {
 public:
  /// over_ports() if two nodes that have traffic have no common rail: Balance finds a way, but which is not
  /// known.
  static constexpr double kNoCommonRail = 1e3;

  /// `nics`: View::nics, the same number for each node, at most kMostNics.
  RailLimits(std::span<const double> nics, size_t nodes);
  /// The time that each limit demands, for data of size 1 at a node with all its NICs. Linear in the traffic.
  std::vector<double> times(const Traffic& traffic) const;
  /// The greatest of them, and that over what the busiest node needs with all its NICs together: at least 1.
  double busiest(const Traffic& traffic) const;
  double over_ports(const Traffic& traffic) const;
  /// How much longer, for data of size 1, the way from node to node in one of the trees of a schedule takes, up
  /// and down, because two nodes that are neighbours there lack common rails: of the way that loses most.
  /// Each group of connections of `trees` is a tree.
  double lost_on_the_way(const Schedule& trees) const;
  /// The same of the hop that loses most.
  double lost_on_a_hop(const Schedule& trees) const;
  /// The time of the weakest node with all its NICs.
  double slowest_node() const;
  /// Rails that work, of each node.
  const std::vector<uint64_t>& working() const { return working_; }

 private:
  struct Limit {
    uint32_t node = 0;
    bool out = false;
    std::vector<uint32_t> peers;  ///< to which or from which traffic counts
    double weight = 0;            ///< of the NICs that it may use
  };
  double time(const Limit& limit, const Traffic& traffic) const;

  std::vector<Limit> ports_;  // of whole nodes
  std::vector<Limit> rails_;  // of fewer NICs
  std::vector<uint64_t> working_;
  std::vector<double> hops_;  // by pair: time over their common rails, less that over all NICs of the slower one
  double slowest_ = 0;
};

}  // namespace r2ccl::collective
