// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/predictor.h"

#include <algorithm>
#include <cmath>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/alone.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/step_times.h"

namespace r2ccl::collective {
namespace {

/// Candidate::in_turn of each leaf of a mix with a ring but one, if there are many owners, as simulated ports
/// show it: the owners add a leaf's data behind that of the leaves before it, and the ring waits with them.
constexpr double kPerLeaf = 0.35;
constexpr uint32_t kMostLeaves = 3;  // of those that were simulated: more are taken for as many

/// The candidates of a job, one algorithm each, from the times of its steps.
class Predictor : StepTimes {
 public:
  Predictor(const Job& job, const Candidate& shape, bool least)
      : StepTimes(job),
        shape_(shape),
        least_only_(least),
        c_(job.capacities),
        least_(*std::min_element(c_.begin(), c_.end())) {}

  Candidate ring(uint32_t k) const {
    Candidate result = start(Algorithm::kRing, k);
    result.transfer_s = unit_ * ring_volume(p_) / least_;
    result.reduction_s = addition_time(ring_volume(p_) / 2);
    const Ranks order = shape_.order.empty() ? natural_order(static_cast<uint32_t>(p_)) : shape_.order;
    result.steps_s = alone() ? alone_ring_seconds(job_, order, 1, k) : ring_steps(1, p_, least_, k);
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
    if (extra > 0)
      result.steps_s = std::max(result.steps_s, alone() ? credit_steps(k, extra / k) : result.fill_s);
    result.formula = "max over nodes of (2 - 2u - extra)/c, + 2(p-1) extra/K";
    return sum(result);
  }

  Candidate tree(uint32_t k) const {
    Candidate result = start(Algorithm::kDoubleTree, k);
    const Schedule shape = double_tree_allreduce(static_cast<uint32_t>(p_), 1);
    for (const auto& of_rank : shape.lanes)
      result.lanes = std::max(result.lanes, static_cast<uint32_t>(of_rank.size()));
    const double depth = std::floor(std::log2(static_cast<double>(p_)));
    result.transfer_s = unit_ * busiest_port(shape, c_);
    result.reduction_s = addition_time(1);
    // Up and down. On channels the first send waits for a receive, and the last one to be known to have
    // arrived; at the top a rank receives the sum only when what it has sent there is known to have arrived.
    const double channels = job_.outstanding > 1 ? 4 * job_.latency_s : 0;
    result.fill_s =
        2 * depth * (unit_ * 0.5 / k / least_ * shape_.narrow + job_.latency_s + addition_time(0.5 / k)) +
        channels;
    result.latencies_s = result.fill_s;
    if (alone()) set_alone(result, credit_steps(k, 0.5 / k), [&] { return alone_tree_seconds(job_, k); });
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
    double hops = static_cast<double>(p_) + 2;
    if (alone()) {
      result.steps_s = r2ccl_steps(rings, k, added, outside);
      // To the first member, along the ring, and back; the rings' last latency.
      hops = rings.rings.size() > 1 ? static_cast<double>(rings.rings[1].order.size()) + 1 : 0;
    }
    result.fill_s = unit_ * rings.fill + hops * job_.latency_s + ring_fill(1, p_, k);
    result.formula = "max(a(1-Y)/c, a(1-Y)+bY) + Y/c + (Y/K)(1/c+m-1), best Y, for each level of capacity";
    return sum(result);
  }

  Candidate four_stage(uint32_t k) const {
    Candidate result = start(Algorithm::kFourStage, k);
    const uint32_t leaves = shape_.leaves;
    const double owners = static_cast<double>(p_ - leaves);
    result.leaves = leaves;
    result.lanes =
        std::max(four_stage_lanes(p_ - leaves, leaves, false), four_stage_lanes(p_ - leaves, leaves, true));
    result.transfer_s =
        unit_ * (shape_.parts.empty() ? four_stage_time(c_, leaves) : mix_time(c_, shape_.parts));
    result.reduction_s = addition_time((owners - 1 + leaves) / owners);
    result.steps_s = four_stage_steps(1, p_ - leaves, k);
    result.least_chunk = 1 / (owners * k);
    result.fill_s = pipeline_fill(result, k);
    // Of a stream the owners' ports are never idle: they have the next operation's data to reduce.
    if (job_.outstanding > 1)
      result.fill_s -= std::max(0.0, std::max(result.transfer_s, result.reduction_s) - unit_ / least_) / k;
    result.latencies_s = four_stage_latencies(p_ - leaves, k) * job_.latency_s;
    result.waits_s = four_stage_waits(1, p_ - leaves, k);
    result.in_turn = messages_in_turn(job_, result.least_chunk);
    if (alone()) {
      const Ranks order = by_capacity(c_);
      const MixPart only{1, Ranks(order.begin() + leaves, order.end()),
                         Ranks(order.begin(), order.begin() + leaves)};
      set_alone(result, four_stage_least(1, p_ - leaves, k), [&] {
        return alone_seconds(job_, {&only, 1}, k);
      });
    }
    result.formula = "max(1/c_leaf, (2+(s-2)/(p-s))/c_owner)(1+1/K)";
    return sum(result);
  }

  Candidate mix(uint32_t k) const {
    Candidate result = start(Algorithm::kMix, k);
    const MixFractions best =
        shape_.parts.empty() ? mix_fractions(c_) : MixFractions{shape_.parts, mix_time(c_, shape_.parts)};
    result.transfer_s = unit_ * best.seconds;
    double added = 0, latencies = 0, least = 0, in_turn = 0;
    bool leafy = false;
    std::vector<uint32_t> lanes(p_);
    for (const MixPart& part : best.parts) {
      const double owners = static_cast<double>(part.owners.size());
      const bool ring = part.leaves.empty();
      const uint32_t segments = ring ? mix_ring_segments(part.fraction, k) : k;
      for (const uint32_t rank : part.owners)
        lanes[rank] += ring ? 2 : four_stage_lanes(part.owners.size(), part.leaves.size(), false);
      for (const uint32_t rank : part.leaves)
        lanes[rank] += four_stage_lanes(part.owners.size(), part.leaves.size(), true);
      added += part.fraction * (owners - 1 + static_cast<double>(part.leaves.size())) / owners;
      if (ring) {
        const double chunks = ring_chunk(part.fraction, p_, segments) * kBuilderDepth;  // side by side
        in_turn += part.fraction * messages_in_turn(job_, chunks);
        result.in_turn = std::max(result.in_turn, messages_in_turn(job_, chunks));
        result.steps_s = std::max(result.steps_s, ring_steps(part.fraction, p_, least_, segments));
        result.waits_s = std::max(result.waits_s, ring_waits(part.fraction, segments));
        latencies = std::max(latencies, 2.0 * static_cast<double>(p_) * segments);
      } else {
        leafy = true;
        const double chunk = part.fraction / (owners * k);
        result.least_chunk = smaller(result.least_chunk, chunk);
        in_turn += part.fraction * messages_in_turn(job_, chunk);
        result.in_turn = std::max(result.in_turn, messages_in_turn(job_, chunk));
        result.steps_s = std::max(result.steps_s, four_stage_steps(part.fraction, part.owners.size(), k));
        result.waits_s = std::max(result.waits_s, four_stage_waits(part.fraction, part.owners.size(), k));
        latencies = std::max(latencies, four_stage_latencies(part.owners.size(), k));
        least = std::max(least, four_stage_least(part.fraction, part.owners.size(), k));
        result.leaves = std::max(result.leaves, static_cast<uint32_t>(part.leaves.size()));
      }
    }
    // Parts beside each other use the NICs that one of them leaves idle, though not all (simulated ports).
    result.in_turn = (result.in_turn + std::max(1.0, in_turn)) / 2;
    if (job_.outstanding > 1 && best.parts[0].leaves.empty() && result.leaves > 1)
      result.in_turn += kPerLeaf * (std::min(result.leaves, kMostLeaves) - 1) *
                        std::max(0.0, 1 - 2 / static_cast<double>(p_ - result.leaves));
    result.lanes = *std::max_element(lanes.begin(), lanes.end());
    result.reduction_s = addition_time(added);
    result.fill_s = leafy ? pipeline_fill(result, k) : ring_fill(1, p_, k);
    result.latencies_s = latencies * job_.latency_s;
    if (alone()) set_alone(result, least, [&] { return alone_seconds(job_, best.parts, k); });
    result.formula = "max(max 1/c, 2(p-1)/sum c)(1+1/K)";
    return sum(result);
  }

  Candidate direct(uint32_t k) const {
    Candidate result = start(Algorithm::kDirect, k);
    auto [shares, busiest] = direct_shares(c_);
    result.lanes = static_cast<uint32_t>(4 * (p_ - 1) - 2 * std::erase(shares, 0.0));
    const auto [least, most] = std::ranges::minmax(shares);
    result.least_chunk = least / (k * kBuilderDepth);
    result.transfer_s = unit_ * busiest;
    result.reduction_s = addition_time(most * (static_cast<double>(p_) - 1));
    result.latencies_s = 2 * job_.latency_s;
    result.fill_s = result.latencies_s + result.transfer_s / (k * kBuilderDepth);
    result.in_turn = messages_in_turn(job_, result.least_chunk);
    if (alone()) set_alone(result, 0, [&] { return alone_direct_seconds(job_, k); });
    result.formula = "max(max 1/c, 2(p-1)/sum c)(1+1/2K)";
    return sum(result);
  }

 private:
  bool alone() const { return job_.outstanding < 2; }
  Candidate start(Algorithm algorithm, uint32_t k) const {
    Candidate result;
    result.algorithm = algorithm;
    result.segments = k;
    result.parts = shape_.parts;
    result.order = shape_.order;
    result.rails = shape_.rails;
    result.allowance = shape_.allowance;
    result.narrow = shape_.narrow;
    return result;
  }
  /// An operation that is alone: `steps` of its longest lane, and what all its lanes take that wait for each
  /// other, if that is asked for.
  template <typename F>
  void set_alone(Candidate& candidate, double steps, F alone_seconds) const {
    const double least = std::max({candidate.transfer_s, candidate.reduction_s, steps});
    candidate.steps_s = steps;
    candidate.fill_s = least_only_ ? 0 : std::max(0.0, alone_seconds() - least);
  }
  Candidate sum(Candidate candidate) const {
    if (candidate.rails > 1) candidate.transfer_s *= candidate.rails;
    candidate.beside = beside_of(candidate);
    candidate.steps_s /= candidate.beside;
    if (const double longer = idle_nics(candidate); longer > 1)
      candidate.steps_s = std::max(candidate.steps_s, candidate.transfer_s * longer);
    const uint32_t in_flight = std::max(1u, job_.outstanding);
    if (queues(candidate.algorithm) && in_flight > 1) {
      candidate.queued_s = queued_seconds(candidate, in_flight, candidate.beside).most();
    }
    if (alone() && !queues(candidate.algorithm)) candidate.fill_s += 2 * job_.back_s;
    const double fill = candidate.fill_s / (static_cast<double>(in_flight) * candidate.beside);
    candidate.seconds = std::max(candidate.transfer_s, candidate.reduction_s) + fill;
    candidate.seconds = queues(candidate.algorithm) && in_flight > 1
                            ? std::max({candidate.seconds, candidate.steps_s, candidate.queued_s})
                            : std::max(candidate.seconds, candidate.steps_s + fill);
    return candidate;
  }
  uint32_t beside_of(const Candidate& candidate) const {
    return beside_within(std::max(1u, job_.beside), candidate.lanes, job_.most_ends);
  }
  /// How many times as long the lanes take as the ports do, because small chunks leave NICs idle, as far as
  /// operations beside each other do not use them (the factor is what executor_time_test's ports show). The
  /// chunks of a ring are alike, and use the NICs in turn.
  double idle_nics(const Candidate& candidate) const {
    constexpr double kIdle = 2.5;
    const double chunk = candidate.least_chunk * static_cast<double>(job_.bytes);
    if (candidate.algorithm == Algorithm::kRing || chunk <= 0 || job_.least_chunk_bytes == 0) return 1;
    if (queues(candidate.algorithm)) return 1;  // in queued_seconds(), or in what lanes wait for
    const double part = std::min(1.0, chunk / static_cast<double>(job_.least_chunk_bytes));
    return 1 + kIdle * (1 - part) / candidate.beside;
  }
  /// An owner has four lanes along the ring of owners and two for each leaf, a leaf two for each owner.
  static uint32_t four_stage_lanes(size_t owners, size_t leaves, bool leaf) {
    return static_cast<uint32_t>(leaf ? 2 * owners : (owners > 1 ? 4 : 0) + 2 * leaves);
  }
  static double smaller(double known, double chunk) { return known > 0 ? std::min(known, chunk) : chunk; }
  const Candidate& shape_;
  const bool least_only_;
  const std::vector<double>& c_;
  const double least_;
};

}  // namespace

bool queues(Algorithm algorithm) {
  return algorithm == Algorithm::kDoubleTree || algorithm == Algorithm::kFourStage ||
         algorithm == Algorithm::kMix || algorithm == Algorithm::kDirect;
}

Candidate predict(const Job& job, Algorithm algorithm, uint32_t segments, uint32_t leaves, bool least) {
  Candidate shape;
  shape.algorithm = algorithm;
  shape.leaves = leaves;
  return predict(job, shape, segments, least);
}

Candidate predict(const Job& job, const Candidate& shape, uint32_t segments, bool least) {
  if (shape.rails > 1 && job.outstanding < 2) {
    // Lanes wait for each other, as if all ports were slower.
    Job slower = job;
    slower.bytes_per_second /= shape.rails;
    Candidate counted = shape;
    counted.rails = 1;
    Candidate result = predict(slower, counted, segments, least);
    result.rails = shape.rails;
    return result;
  }
  const Predictor predictor(job, shape, least);
  switch (shape.algorithm) {
    case Algorithm::kRing:
      break;
    case Algorithm::kUnequalRing:
      return predictor.unequal_ring(segments);
    case Algorithm::kDoubleTree:
      return predictor.tree(segments);
    case Algorithm::kR2cclAllReduce:
      return predictor.r2ccl(segments);
    case Algorithm::kFourStage:
      return predictor.four_stage(segments);
    case Algorithm::kMix:
      return predictor.mix(segments);
    case Algorithm::kDirect:
      return predictor.direct(segments);
  }
  return predictor.ring(segments);
}

}  // namespace r2ccl::collective
