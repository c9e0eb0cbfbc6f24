// SPDX-License-Identifier: Apache-2.0
// How long the steps of a schedule's lanes take, one behind the other, and what a pipeline needs to fill: the
// closed forms that predictor.cc puts together. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/alone.h"
#include "r2ccl/collective/cost.h"
#include "r2ccl/collective/predictor.h"

namespace r2ccl::collective {

/// Seconds. `fraction`: of the data; `k`: segments.
class StepTimes {
 public:
  explicit StepTimes(const Job& job)
      : job_(job), p_(job.capacities.size()), unit_(static_cast<double>(job.bytes) / job.bytes_per_second) {}

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
  /// Before a chunk is sent, the one that was sent kCredits before has arrived.
  double credit_steps(double chunks, double chunk) const {
    return std::floor((chunks - 1) / ScheduleBuilder::kCredits) *
           (unit_ * chunk + job_.latency_s + job_.back_s);
  }
  /// R2CCL-AllReduce's rings beside each other, and then the tail.
  double r2ccl_steps(const R2cclRings& rings, uint32_t k, double added, double outside) const {
    double around = 0, pieces = 0;
    for (size_t i = 0; i < rings.rings.size(); ++i) {
      const PartialRing& ring = rings.rings[i];
      around = std::max(around, alone_ring_seconds(job_, ring.order, ring.fraction, segments_of(ring, k)));
      const uint32_t count = tail_pieces(static_cast<uint32_t>(ring.order.size()), k);
      if (i > 0) pieces = std::max(pieces, credit_steps(count, ring.fraction / count));
    }
    return std::max({unit_ * rings.stage1, around, addition_time(added)}) +
           std::max({unit_ * rings.tail, addition_time(outside), pieces});
  }
  /// Four-stage's reduce-scatter, whose lane begins each segment without a wait, and the last chunk's way
  /// back.
  double four_stage_least(double fraction, size_t owners, uint32_t k) const {
    const double m = static_cast<double>(owners), chunk = fraction / (m * k),
                 step = unit_ * chunk + job_.latency_s;
    const double scatter = owners > 1 ? k * ((m - 1) * step - job_.latency_s) + job_.latency_s : 0;
    return scatter + std::max(1.0, m - 1) * step;
  }
  double ring_fill(double fraction, size_t members, uint32_t k) const {
    const double chunk = fraction / (static_cast<double>(members) * kBuilderDepth * k);
    return job_.latency_s + addition_time(chunk);
  }
  double four_stage_steps(double fraction, size_t owners, uint32_t k) const {
    const double m = static_cast<double>(owners), chunk = fraction / (m * k);
    return k * (m - 1) * (unit_ * chunk + job_.latency_s + addition_time(chunk));
  }
  /// What a lane waits for besides its bytes, from one operation of a stream to the next one's on the same
  /// channels: a latency and an addition between each two of its steps.
  double four_stage_waits(double fraction, size_t owners, uint32_t k) const {
    const double m = static_cast<double>(owners);
    return std::max(0.0, k * (m - 1) - 1) * (job_.latency_s + addition_time(fraction / (m * k)));
  }
  double ring_waits(double fraction, uint32_t k) const {
    const double n = static_cast<double>(p_);
    return (2 * (n - 1) * k - 1) * (job_.latency_s + addition_time(ring_chunk(fraction, p_, k)));
  }
  /// Latencies of one operation alone, on its longest path: around the owners twice, or once and to a leaf
  /// and back.
  static double four_stage_latencies(size_t owners, uint32_t k) {
    const double m = static_cast<double>(owners);
    return std::max(2 * m, m + 4) + (k - 1) * (m - 1);
  }
  /// The first segment goes through reduce-scatter before anything comes back, the last one through the way
  /// back alone.
  double pipeline_fill(const Candidate& candidate, uint32_t k) const {
    return std::max(candidate.transfer_s, candidate.reduction_s) / k +
           (static_cast<double>(p_) + 2) * job_.latency_s;
  }

 protected:
  const Job& job_;
  const size_t p_;
  const double unit_;  ///< of data 1 at capacity 1
};

}  // namespace r2ccl::collective
