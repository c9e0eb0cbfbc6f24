// SPDX-License-Identifier: Apache-2.0
// Which AllReduce schedule takes the least time on nodes of these capacities, and why. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/schedule.h"

namespace r2ccl::collective {

enum class Algorithm : uint8_t {
  kRing,
  kUnequalRing,
  kDoubleTree,
  kR2cclAllReduce,
  kFourStage,
  kMix,
  kDirect
};
/// As on the command line and in JSON: "ring", "unequal_ring", "double_tree", "r2ccl_allreduce",
/// "four_stage", "mix", "direct".
const char* name(Algorithm algorithm);

/// Direct has 2p(p − 1) connections: among more nodes it is not looked at.
inline constexpr size_t kMostDirectNodes = 128;
/// Direct is not taken if its chunks are smaller on average: what a message costs besides its bytes and a
/// latency is not predicted.
inline constexpr uint64_t kLeastDirectChunk = 8 << 10;

/// What is to be planned for.
struct Job {
  std::vector<double> capacities;      ///< of each node, relative; as Balance measures them. More than 0
  uint64_t bytes = 0;                  ///< of each node's data
  double bytes_per_second = 50e9;      ///< of capacity 1, each direction
  double latency_s = 5e-6;             ///< from one node's operation to the next one's, besides the bytes
  double reduce_bytes_per_second = 0;  ///< the engine's additions on each node; 0: faster than any port
  /// Until a sender knows that a message has arrived or has been taken, and at first that there are receives,
  /// besides the latency there. 0 on simulated ports; on channels a latency. Of operations that are alone.
  double back_s = 0;
  uint32_t most_segments = 64;  ///< K, at most; more need more memory for what is under way
  /// Operations of this size in flight: while one fills the pipeline, or empties it, the others use the
  /// ports.
  uint32_t outstanding = 1;
  /// … of which so many stand beside each other, on channels of their own: latency in one of them is the
  /// others' time.
  uint32_t beside = 1;
  /// … as far as the schedule's lanes permit (beside_within()). 0: no limit.
  uint32_t most_ends = 0;
  /// Direct may be taken: a rank's port is shared by weight among the transfers to and from all others at the
  /// same time, which simulated ports do, and the host engine does not (README).
  bool direct = true;
  /// A chunk below it leaves NICs of its node idle: no more segments than leave the smallest chunk as large.
  /// 0: none.
  uint64_t least_chunk_bytes = 0;
  /// View::nics: what the NICs of each node can carry, those of node 0 first. Where nodes have lost different
  /// ones, the busiest NIC counts, not the busiest node. Empty: not known, or all alike.
  std::vector<double> nics;
};

/// How many of `beside` operations stand beside each other, if each needs `lanes` ends of connections on a
/// rank: all, if a rank has no more than twice `most_ends` of them then; else as many as most_ends permits.
/// What is gained by less than all is not worth more ends.
constexpr uint32_t beside_within(uint32_t beside, uint32_t lanes, uint32_t most_ends) {
  if (most_ends == 0 || lanes == 0 || lanes * beside <= 2 * most_ends) return beside;
  return most_ends < lanes ? 1 : most_ends / lanes < beside ? most_ends / lanes : beside;
}

/// One algorithm's prediction: seconds = max(transfer, reduction, steps / beside) + fill / (outstanding ·
/// beside): for one operation the whole fill; in a stream, what the other operations do not hide. `steps` is
/// longer where chunks are too small for all NICs. A stream of double trees, four-stages or mixes takes no
/// less than `queued` (predictor.h), one that is alone what its lanes wait for (alone.h). All as simulated
/// ports show it (executor_time_test, advise_time_test, sim_prediction_test).
struct Candidate {
  Algorithm algorithm = Algorithm::kRing;
  uint32_t segments = 1;  ///< K that is best for it
  uint32_t leaves = 0;    ///< four-stage: how many of the least capacity; of `parts`: the most of one of them
  /// Where nodes have lost different NICs: what four-stage and mix consist of, and the order of a ring.
  /// Empty: as capacities alone say.
  std::vector<MixPart> parts;
  Ranks order;
  double rails = 0;  ///< the busiest NIC's time over that of the busiest node's NICs together; 0: not counted
  /// Of a double tree: a chunk's way up and down takes so many times as long because neighbours lack common
  /// rails, where each hop would take the weakest node's time. At least 1.
  double narrow = 1;
  /// It is compared as if it took so many times as long: orders and mixes that rails suggest are predicted
  /// less exactly.
  double allowance = 1;
  uint32_t lanes = 0;      ///< of the rank that has most of them, at most
  uint32_t beside = 1;     ///< operations that stand beside each other: Job::beside, as far as lanes permit
  double transfer_s = 0;   ///< the busiest port, or the busiest NIC if these are counted
  double reduction_s = 0;  ///< the busiest engine
  double steps_s = 0;      ///< the longest lane when each of its operations waits for a latency
  double fill_s = 0;   ///< until the pipeline is full, and empty; alone: all that lanes wait for each other
  double waits_s = 0;  ///< latencies and additions between a lane's steps in one operation, all together
  double latencies_s = 0;  ///< those on the longest path of one operation
  double in_turn = 1;      ///< a chunk takes so many times as long as if all NICs had their share of it
  double queued_s = 0;     ///< queued_seconds() of a stream
  double least_chunk = 0;  ///< the smallest chunk's part of the data; 0: not looked at
  double seconds = 0;      ///< of each operation of a stream
  /// plan() may take it. Direct only for one operation of nodes of which some are degraded, if Job::direct,
  /// its chunks and Job::most_ends permit it.
  bool eligible = true;
  std::string formula;  ///< transfer and fill in the words of FACTS, for printing

  /// False: NICs are counted, and two nodes that exchange data have no common rail. Then times mean nothing.
  bool has_common_rails() const;
};

struct Plan {
  std::vector<Candidate> candidates;  ///< in the order of Algorithm; direct of kMostDirectNodes at most
  size_t chosen = 0;
  double bound_s = 0;  ///< no AllReduce is faster: allreduce_bound()
  std::string why;     ///< one or two sentences

  const Candidate& choice() const { return candidates[chosen]; }
};

/// kInvalidArgument: fewer than two nodes, or a capacity that is not above 0. The same job gives the same
/// plan on every node.
Result<Plan> plan(const Job& job);

/// The candidate of this algorithm, whether or not it may be taken; nullptr: the plan has none, such as of
/// direct among more than kMostDirectNodes.
const Candidate* candidate_of(const Plan& plan, std::string_view algorithm);

/// The candidate's schedule.
Schedule build(const Job& job, const Candidate& candidate);

}  // namespace r2ccl::collective
