// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/planner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace r2ccl::collective {
namespace {

constexpr uint32_t kBuilderDepth = 2;  // of the rings' builders

std::string number(double value, const char* format = "%.3g") {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// Where the job's numbers come in: units of data 1 at capacity 1 become seconds.
class Predictor {
 public:
  explicit Predictor(const Job& job)
      : job_(job),
        c_(job.capacities),
        p_(c_.size()),
        unit_(static_cast<double>(job.bytes) / job.bytes_per_second),
        least_(*std::min_element(c_.begin(), c_.end())) {}

  Candidate ring(uint32_t k) const {
    Candidate result = start(Algorithm::kRing, k);
    result.transfer_s = unit_ * ring_volume(p_) / least_;
    result.reduction_s = addition_time(ring_volume(p_) / 2);
    result.steps_s = ring_steps(1, p_, least_, k);
    result.fill_s = ring_fill(1, p_, k);
    result.least_chunk = ring_chunk(1, p_, k);
    result.lanes = 2;
    result.formula = "a/c_min, a = 2(p-1)/p";
    return sum(result);
  }

  Candidate unequal_ring(uint32_t k) const {
    Candidate result = start(Algorithm::kUnequalRing, k);
    const UnequalRingShares best = collective::unequal_ring(c_);
    const double extra = *std::max_element(best.shares.extra.begin(), best.shares.extra.end());
    result.transfer_s = unit_ * best.seconds;
    result.reduction_s = addition_time(1);
    result.steps_s = best.shares.equal > 0 ? ring_steps(best.shares.equal, p_, least_, k) : 0;
    const double hops = extra > 0 ? 2 * (static_cast<double>(p_) - 1) : 0;
    result.fill_s = extra > 0 ? hops * (unit_ * extra / k + job_.latency_s) : ring_fill(1, p_, k);
    if (best.shares.equal > 0) result.least_chunk = ring_chunk(best.shares.equal, p_, k);
    for (const double share : best.shares.extra)
      if (share > 0) result.least_chunk = smaller(result.least_chunk, share / k);
    result.lanes = best.shares.equal > 0 ? 2 : 0;
    for (const double share : best.shares.extra)
      if (share > 0) result.lanes += 4;
    // Its chains have few messages under way, which the next operation's follow.
    if (extra > 0 && job_.outstanding > 1) result.steps_s = std::max(result.steps_s, result.fill_s);
    result.formula = "max over nodes of (2 - 2u - extra)/c, + 2(p-1) extra/K";
    return sum(result);
  }

  Candidate tree(uint32_t k) const {
    Candidate result = start(Algorithm::kDoubleTree, k);
    const Schedule shape = double_tree_allreduce(static_cast<uint32_t>(p_), 1);
    for (const auto& of_rank : shape.lanes)
      result.lanes = std::max(result.lanes, static_cast<uint32_t>(of_rank.size()));
    const double depth = std::ceil(std::log2(static_cast<double>(p_)));
    result.transfer_s = unit_ * busiest_port(shape, c_);
    result.reduction_s = addition_time(1);
    result.fill_s = 2 * depth * (unit_ * 0.5 / k / least_ + job_.latency_s + addition_time(0.5 / k));
    result.formula = "max over nodes of (data in, data out)/c, + log2(p)/(K c_min)";
    return sum(result);
  }

  Candidate r2ccl(uint32_t k) const {
    Candidate result = start(Algorithm::kR2cclAllReduce, k);
    const R2cclRings rings = r2ccl_rings(c_, k);
    result.transfer_s = unit_ * (rings.stage1 + rings.tail);
    double added = 0, outside = 0;
    for (const PartialRing& ring : rings.rings) {
      const double members = static_cast<double>(ring.order.size());
      result.steps_s = std::max(result.steps_s,
                                ring_steps(ring.fraction, ring.order.size(), least_, segments_of(ring, k)));
      result.least_chunk =
          smaller(result.least_chunk, ring.fraction / tail_pieces(uint32_t(ring.order.size()), k));
      const size_t others = p_ - ring.order.size();
      result.lanes += 2 + (others > 0 ? static_cast<uint32_t>(std::max<size_t>(2, 1 + others)) : 0);
      added += ring.fraction * (members - 1) / members;
      outside += ring.fraction * (static_cast<double>(p_) - members);
    }
    result.reduction_s = addition_time(added + outside);
    result.fill_s = unit_ * rings.fill + (static_cast<double>(p_) + 2) * job_.latency_s + ring_fill(1, p_, k);
    result.formula = "max(a(1-Y)/c, a(1-Y)+bY) + Y/c + (Y/K)(1/c+m-1), best Y, for each level of capacity";
    return sum(result);
  }

  Candidate four_stage(uint32_t k, uint32_t leaves) const {
    Candidate result = start(Algorithm::kFourStage, k);
    const double owners = static_cast<double>(p_ - leaves);
    result.leaves = leaves;
    result.lanes =
        std::max(four_stage_lanes(p_ - leaves, leaves, false), four_stage_lanes(p_ - leaves, leaves, true));
    result.transfer_s = unit_ * four_stage_time(c_, leaves);
    result.reduction_s = addition_time((owners - 1 + leaves) / owners);
    result.steps_s = four_stage_steps(1, p_ - leaves, k);
    result.least_chunk = 1 / (owners * k);
    result.fill_s = pipeline_fill(result, k);
    result.steps_s = std::max(result.steps_s, in_turn(1, result.transfer_s));
    result.formula = "max(1/c_leaf, (2+(s-2)/(p-s))/c_owner)(1+1/K)";
    return sum(result);
  }

  Candidate mix(uint32_t k) const {
    Candidate result = start(Algorithm::kMix, k);
    const MixFractions best = mix_fractions(c_);
    result.transfer_s = unit_ * best.seconds;
    double added = 0;
    bool leafy = false;
    std::vector<uint32_t> lanes(p_);
    for (const MixPart& part : best.parts) {
      const double owners = static_cast<double>(part.owners.size());
      const bool ring = part.leaves.empty();
      for (const uint32_t rank : part.owners)
        lanes[rank] += ring ? 2 : four_stage_lanes(part.owners.size(), part.leaves.size(), false);
      for (const uint32_t rank : part.leaves)
        lanes[rank] += four_stage_lanes(part.owners.size(), part.leaves.size(), true);
      added += part.fraction * (owners - 1 + static_cast<double>(part.leaves.size())) / owners;
      leafy |= !part.leaves.empty();
      if (!part.leaves.empty())
        result.least_chunk = smaller(result.least_chunk, part.fraction / (owners * k));
      result.steps_s = std::max(
          result.steps_s, part.leaves.empty()
                              ? ring_steps(part.fraction, p_, least_, mix_ring_segments(part.fraction, k))
                              : four_stage_steps(part.fraction, part.owners.size(), k));
      if (!part.leaves.empty())
        result.leaves = std::max(result.leaves, static_cast<uint32_t>(part.leaves.size()));
    }
    result.lanes = *std::max_element(lanes.begin(), lanes.end());
    result.reduction_s = addition_time(added);
    result.fill_s = leafy ? pipeline_fill(result, k) : ring_fill(1, p_, k);
    if (leafy) result.steps_s = std::max(result.steps_s, in_turn(2, result.transfer_s));
    result.formula = "max(max 1/c, 2(p-1)/sum c)(1+1/K)";
    return sum(result);
  }

 private:
  Candidate start(Algorithm algorithm, uint32_t k) const {
    Candidate result;
    result.algorithm = algorithm;
    result.segments = k;
    return result;
  }
  Candidate sum(Candidate candidate) const {
    candidate.beside = beside_of(candidate);
    candidate.steps_s /= candidate.beside;
    if (const double longer = idle_nics(candidate); longer > 1)
      candidate.steps_s = std::max(candidate.steps_s, candidate.transfer_s * longer);
    candidate.seconds =
        std::max({candidate.transfer_s, candidate.reduction_s, candidate.steps_s}) +
        candidate.fill_s / (static_cast<double>(std::max(1u, job_.outstanding)) * candidate.beside);
    return candidate;
  }
  uint32_t beside_of(const Candidate& candidate) const {
    uint32_t beside = std::max(1u, job_.beside);
    if (job_.most_ends > 0 && candidate.lanes > 0)
      beside = std::clamp(job_.most_ends / candidate.lanes, 1u, beside);
    return beside;
  }
  /// How many times as long the lanes take as the ports do, because small chunks leave NICs idle, as far as
  /// operations beside each other do not use them (the factor is what executor_time_test's ports show). The
  /// chunks of a ring are alike, and use the NICs in turn.
  double idle_nics(const Candidate& candidate) const {
    constexpr double kIdle = 2.5;
    const double chunk = candidate.least_chunk * static_cast<double>(job_.bytes);
    if (candidate.algorithm == Algorithm::kRing || chunk <= 0 || job_.least_chunk_bytes == 0) return 1;
    const double part = std::min(1.0, chunk / static_cast<double>(job_.least_chunk_bytes));
    return 1 + kIdle * (1 - part) / candidate.beside;
  }
  /// An owner has four lanes along the ring of owners and two for each leaf, a leaf two for each owner.
  static uint32_t four_stage_lanes(size_t owners, size_t leaves, bool leaf) {
    return static_cast<uint32_t>(leaf ? 2 * owners : (owners > 1 ? 4 : 0) + 2 * leaves);
  }
  static double smaller(double known, double chunk) { return known > 0 ? std::min(known, chunk) : chunk; }
  static double ring_chunk(double fraction, size_t members, uint32_t k) {
    return fraction / (static_cast<double>(members) * kBuilderDepth * k);
  }
  double addition_time(double fraction) const {
    return job_.reduce_bytes_per_second > 0
               ? fraction * static_cast<double>(job_.bytes) / job_.reduce_bytes_per_second
               : 0;
  }
  static uint32_t segments_of(const PartialRing& ring, uint32_t pieces) {
    const auto members = static_cast<uint32_t>(ring.order.size());
    return tail_pieces(members, pieces) / (members * kBuilderDepth);
  }

  /// A ring's lanes run 2(p−1)K steps of `kBuilderDepth` chunks; a step takes no less than one chunk and its
  /// latency.
  double ring_steps(double fraction, size_t members, double capacity, uint32_t k) const {
    const double n = static_cast<double>(members);
    const double chunk = fraction / (n * kBuilderDepth * k);
    const double alone = unit_ * chunk / capacity + job_.latency_s + addition_time(chunk);
    const double step = unit_ * chunk * kBuilderDepth / capacity;
    return k * ((2 * (n - 1) - 1) * std::max(alone, step) + step);
  }
  double ring_fill(double fraction, size_t members, uint32_t k) const {
    const double chunk = fraction / (static_cast<double>(members) * kBuilderDepth * k);
    return job_.latency_s + addition_time(chunk);
  }
  double four_stage_steps(double fraction, size_t owners, uint32_t k) const {
    const double m = static_cast<double>(owners), chunk = fraction / (m * k);
    return k * (m - 1) * (unit_ * chunk + job_.latency_s + addition_time(chunk));
  }
  /// What an operation of a stream takes on its channels before the next one gets them, if the data goes over
  /// the ports in so many turns, one after the other: the ring and the leaves of a mix wait for each other,
  /// those of a four-stage do not. As simulated ports show it (advise_time_test).
  double in_turn(double turns, double transfer_s) const {
    return job_.outstanding > 1 ? turns * (transfer_s + static_cast<double>(p_) * job_.latency_s) : 0;
  }
  /// The first segment goes through reduce-scatter before anything comes back, the last one through the way
  /// back alone.
  double pipeline_fill(const Candidate& candidate, uint32_t k) const {
    return std::max({candidate.transfer_s, candidate.reduction_s, candidate.steps_s}) / k +
           (static_cast<double>(p_) + 2) * job_.latency_s;
  }

  const Job& job_;
  const std::vector<double>& c_;
  const size_t p_;
  const double unit_, least_;
};

std::string nodes_in_words(const Job& job) {
  const double best = *std::max_element(job.capacities.begin(), job.capacities.end());
  std::string text;
  size_t degraded = 0;
  for (size_t i = 0; i < job.capacities.size(); ++i) {
    if (job.capacities[i] >= best * 0.99) continue;
    if (++degraded <= 4) {
      text += (text.empty() ? "node " : ", node ") + std::to_string(i) + " at " +
              number(100 * job.capacities[i] / best) + " %";
    }
  }
  if (degraded > 4) text += " and " + std::to_string(degraded - 4) + " more";
  return degraded == 0 ? "all nodes of the same capacity" : text;
}

std::string reason(const Job& job, const Plan& plan) {
  const Candidate& best = plan.choice();
  const Candidate& ring = plan.candidates[0];
  std::string text = "With " + nodes_in_words(job) + ", " + name(best.algorithm);
  if (best.algorithm == Algorithm::kRing) {
    text += best.steps_s > best.transfer_s
                ? " has the fewest latencies on its critical path"
                : " is as fast as its slowest port, and no other schedule is faster";
  } else {
    text += " takes " + number(100 * (1 - best.seconds / ring.seconds)) + " % less time than the ring (" +
            number(ring.seconds / best.seconds, "%.2f") + " ×)";
    if (best.algorithm == Algorithm::kDoubleTree)
      text += ": " + std::string("latency decides, and a tree is log2(p) deep");
    if (best.algorithm == Algorithm::kMix || best.algorithm == Algorithm::kFourStage) {
      text += ": its leaves (the weakest nodes) send and receive the data once, a ring's nodes " +
              number(ring_volume(job.capacities.size())) + " times";
    }
  }
  const char* limit = best.reduction_s > std::max(best.transfer_s, best.steps_s) ? "the additions"
                      : best.steps_s > best.transfer_s && job.outstanding > 1
                          ? "latency, or by operations that wait for each other"
                      : best.steps_s > best.transfer_s ? "latency"
                                                       : "the busiest port";
  return text + ". It is limited by " + limit + ", and takes " + number(best.seconds / plan.bound_s, "%.3f") +
         " × the lower bound.";
}

/// The fastest of an algorithm's candidates: each number of segments that is a power of two below the most,
/// each number of leaves.
Candidate best_of(Algorithm algorithm, const Job& job, const Predictor& predict) {
  const auto nodes = static_cast<uint32_t>(job.capacities.size());
  Candidate best;
  const auto consider = [&](const Candidate& candidate) {
    const double chunk = candidate.least_chunk * static_cast<double>(job.bytes);
    if (candidate.segments > 1 && chunk > 0 && chunk < static_cast<double>(job.least_chunk_bytes)) return;
    if (best.seconds == 0 || candidate.seconds < best.seconds * (1 - 1e-9)) best = candidate;
  };
  for (uint32_t k = job.most_segments;; k /= 2) {
    switch (algorithm) {
      case Algorithm::kRing:
        consider(predict.ring(k));
        break;
      case Algorithm::kUnequalRing:
        consider(predict.unequal_ring(k));
        break;
      case Algorithm::kDoubleTree:
        consider(predict.tree(k));
        break;
      case Algorithm::kR2cclAllReduce:
        consider(predict.r2ccl(k));
        break;
      case Algorithm::kFourStage: {
        const double most = *std::max_element(job.capacities.begin(), job.capacities.end());
        std::vector<double> sorted = job.capacities;
        std::sort(sorted.begin(), sorted.end());
        for (uint32_t leaves = 1; leaves < nodes; ++leaves) {
          // Only between nodes that differ: else which is a leaf would be chance.
          if (sorted[leaves] > sorted[leaves - 1] || (leaves == 1 && sorted[0] >= most))
            consider(predict.four_stage(k, leaves));
        }
        break;
      }
      case Algorithm::kMix:
        consider(predict.mix(k));
        break;
    }
    if (k == 1) break;
  }
  return best;
}

/// What a less simple algorithm must gain. In a stream each further lane costs something that is not
/// predicted: messages of its own, and turns of the thread that sends them.
double gain_of(const Job& job) { return job.outstanding > 1 ? 1e-2 : 1e-3; }

}  // namespace

const char* name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kUnequalRing:
      return "unequal_ring";
    case Algorithm::kDoubleTree:
      return "double_tree";
    case Algorithm::kR2cclAllReduce:
      return "r2ccl_allreduce";
    case Algorithm::kFourStage:
      return "four_stage";
    case Algorithm::kMix:
      return "mix";
  }
  return "";
}

Result<Plan> plan(const Job& job) {
  if (job.capacities.size() < 2) return Error{ErrorCode::kInvalidArgument, "a plan needs at least two nodes"};
  for (const double capacity : job.capacities) {
    if (!(capacity > 0) || !std::isfinite(capacity)) {
      return Error{ErrorCode::kInvalidArgument,
                   "every capacity must be above 0: leave out nodes that carry no traffic"};
    }
  }
  if (!(job.bytes_per_second > 0) || job.most_segments == 0) {
    return Error{ErrorCode::kInvalidArgument, "the rate and the number of segments must be above 0"};
  }
  const Predictor predict(job);
  Plan plan;
  plan.bound_s = allreduce_bound(job.capacities) * static_cast<double>(job.bytes) / job.bytes_per_second;
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kUnequalRing, Algorithm::kDoubleTree,
                                    Algorithm::kR2cclAllReduce, Algorithm::kFourStage, Algorithm::kMix})
    plan.candidates.push_back(best_of(algorithm, job, predict));
  for (size_t i = 1; i < plan.candidates.size(); ++i) {
    // What comes first in the list is the simpler one and stays where another gains nothing.
    if (plan.candidates[i].seconds < plan.candidates[plan.chosen].seconds * (1 - gain_of(job)))
      plan.chosen = i;
  }
  plan.why = reason(job, plan);
  return plan;
}

Schedule build(const Job& job, const Candidate& candidate) {
  const auto nodes = static_cast<uint32_t>(job.capacities.size());
  switch (candidate.algorithm) {
    case Algorithm::kRing:
      break;
    case Algorithm::kUnequalRing:
      return unequal_ring_allreduce(natural_order(nodes), unequal_ring(job.capacities).shares,
                                    candidate.segments);
    case Algorithm::kDoubleTree:
      return double_tree_allreduce(nodes, candidate.segments);
    case Algorithm::kR2cclAllReduce:
      return r2ccl_allreduce(nodes, r2ccl_rings(job.capacities, candidate.segments).rings,
                             candidate.segments);
    case Algorithm::kFourStage: {
      const Ranks order = by_capacity(job.capacities);
      Ranks owners(order.begin() + candidate.leaves, order.end());
      std::sort(owners.begin(), owners.end());
      return four_stage_allreduce(owners, Ranks(order.begin(), order.begin() + candidate.leaves),
                                  candidate.segments);
    }
    case Algorithm::kMix:
      return mix_allreduce(nodes, mix_fractions(job.capacities).parts, candidate.segments);
  }
  return ring_allreduce(natural_order(nodes), candidate.segments, kBuilderDepth);
}

}  // namespace r2ccl::collective
