// SPDX-License-Identifier: Apache-2.0
// What is left of a job's NICs at each moment, and what the mode can carry with it at best. Pure.
#pragma once

#include <map>
#include <vector>

#include "harness/judge/strikes.h"
#include "harness/measure/limits.h"
#include "harness/measure/timeline.h"

namespace r2bench {

class NicsLeft {
 public:
  /// `strikes` as strikes_of() tells them. The references must outlive this.
  NicsLeft(const Scenario& scenario, const Mode& mode, const std::vector<Firing>& strikes);

  /// Fraction of the healthy rate that the mode can carry with what acts at `time_ns`, both ends of a strike
  /// included: t0 acts, the heal does not. A NIC that lost a queue pair counts as lost: its channel lives on
  /// the backup until it fails back.
  double limit_at(uint64_t time_ns) const;

  /// Every moment up to `end_ns` at which some NIC came to carry less or more, with the limit from then on.
  std::vector<LimitPoint> changes(uint64_t end_ns) const;

  /// The first such moment after `time_ns`; UINT64_MAX when there is none.
  uint64_t next_change_ns(uint64_t time_ns) const;

  /// What the recovery from `strike` is held against until `end_ns`. A heal asks for nothing more (failback
  /// takes its time, and `restored` tells of it); a further strike asks for less. When nothing is left at t0,
  /// only a heal can help: then it asks for what it gives.
  std::vector<LimitStep> limits_for(const Firing& strike, uint64_t end_ns) const;

  /// What the ports deliver at best without a fault, in Gbit/s over all receivers; 0: their rate is no limit.
  double ports_gbps() const;

 private:
  using Capacity = std::vector<std::vector<double>>;  // node, NIC

  Capacity whole() const;
  void take(Capacity& capacity, const Firing& strike) const;
  Capacity capacity_at(uint64_t time_ns) const;
  double limit_of(const Capacity& capacity) const;

  const Scenario& scenario_;
  const Mode& mode_;
  std::vector<const Firing*> strikes_;  // of NICs, that took effect
  std::vector<uint64_t> moments_;       // at which `capacity_at` changes, in order
  NodeLoad load_;
  /// Mode AllReduce, and an operation that its schedules can help.
  bool by_schedule_;
  mutable std::map<Capacity, double> known_;
};

}  // namespace r2bench
