// SPDX-License-Identifier: Apache-2.0
// All AllReduce algorithms side by side on the same nodes: formula, simulation, bound, and what the planner
// takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/sim/flow_simulator.h"
#include "r2ccl/base/result.h"
#include "r2ccl/collective/planner.h"

namespace r2bench {

struct ComparedAlgorithm {
  std::string name;
  std::string formula;
  uint32_t segments = 0;
  bool eligible = false;  ///< Candidate::eligible; not upstream's
  double formula_s = 0;   ///< infinite: as simulated_s, if the planner counts NICs
  /// Infinite: two nodes that exchange data have no common rail. A job's Balance finds a path, and which one
  /// is not simulated.
  double simulated_s = 0;
  uint64_t transfers = 0, memory_bytes = 0;
  double cpu_s = 0;  ///< that the simulation took
};

struct AllReduceComparison {
  double bound_s = 0;
  double fault_free_ring_s = 0;  ///< T0: the ring if every node were as the best one
  std::string chosen, why;
  bool nics_counted = false;  ///< the choice counts the job's NICs: Candidate::rails
  std::vector<ComparedAlgorithm>
      algorithms;  ///< the planner's, then "upstream" where exactly one node is degraded
  /// What the planner would take by capacities alone, on the same NICs: nothing if it takes the same.
  std::optional<ComparedAlgorithm> by_capacities;

  const ComparedAlgorithm& choice() const;
};

struct ComparisonOptions {
  Sharing sharing = Sharing::kMaxMin;
  bool only_chosen = false;  ///< simulate nothing else
  bool exactly = false;      ///< each algorithm with Job::most_segments, not with what is best for it
  /// Simulate a stream of so many operations of Job::bytes: Job::outstanding in flight, of which as many
  /// stand beside each other as the algorithm's lanes permit. Times are those of the stream. Without
  /// upstream's schedule, which knows no stream.
  uint32_t pieces = 1;
  uint32_t upstream_pieces = 16;  ///< as many as its code allows
};

/// Plans the job and simulates every candidate, on a port for each node; if Job::nics has the NICs, on a port
/// for each NIC (upstream's schedule on upstream_ports()). Errors are the planner's and the simulator's.
r2ccl::Result<AllReduceComparison> compare_allreduce(const r2ccl::collective::Job& job,
                                                     const ComparisonOptions& options = {});

/// A port for each node, or for each NIC if Job::nics has them.
Ports ports_of(const r2ccl::collective::Job& job);

/// The plan by capacities alone, if its choice has another schedule than that of `plan`, which counts the
/// job's NICs.
std::optional<r2ccl::collective::Plan> other_plan_by_capacities(const r2ccl::collective::Job& job,
                                                                const r2ccl::collective::Plan& plan);

/// The ports of upstream's schedule: a part `lost` of node 0's NICs is gone, and its AllReduce of all ranks
/// uses on every node the NICs that node 0 still has, the one of the healthy ranks the others.
/// `bytes_per_second` of a whole node.
Ports upstream_ports(uint32_t nodes, uint32_t per_node, double lost, double bytes_per_second);

}  // namespace r2bench
