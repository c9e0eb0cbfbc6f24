// SPDX-License-Identifier: Apache-2.0
// What is left of a job's NICs at each moment, and what the mode can carry with it at best. Pure.
#pragma once

#include <map>
#include <vector>

#include "harness/judge/strikes.h"
#include "harness/measure/channel_limits.h"
#include "harness/measure/limits.h"
#include "harness/measure/timeline.h"

namespace r2bench {

class NicsLeft {
 public:
  /// `strikes` as strikes_of() tells them. The references must outlive this, but for `record`.
  ///
  /// Which channels there are follows from the scenario for the engine cpu. Other engines open what they
  /// like: there it is the streams of `record` that delivered something before the first strike, each with
  /// the bytes that it delivered; where none did, what the engine cpu would open (one channel per NIC).
  NicsLeft(const Scenario& scenario, const Mode& mode, const std::vector<Firing>& strikes,
           const Record& record);

  /// Fraction of the healthy rate that the mode can carry with what acts at `time_ns`, both ends of a strike
  /// included: t0 acts, the heal does not. A queue pair is lost until a channel of its NIC fails back: for
  /// Baseline and live migration one channel then lacks its home (with `qp: all` or `count: all` all channels
  /// of the NIC), for the other modes the NIC counts as lost.
  double limit_at(uint64_t time_ns) const;

  /// Every moment up to `end_ns` at which some NIC came to carry less or more, with the limit from then on.
  std::vector<LimitPoint> changes(uint64_t end_ns) const;

  /// The first such moment after `time_ns`; UINT64_MAX when there is none.
  uint64_t next_change_ns(uint64_t time_ns) const;

  /// Whether the NICs can carry as much with `strike` as without it, such as a throttle whose rate is not
  /// below the port's, or not below that of another throttle. False if that is not known: a delay states no
  /// rate.
  bool unchanged_by(const Firing& strike) const;

  /// What the recovery from `strike` is held against until `end_ns`. A heal asks for nothing more (failback
  /// takes its time, and `restored` tells of it); a further strike asks for less. When nothing is left at t0,
  /// only a heal can help: then it asks for what it gives.
  std::vector<LimitStep> limits_for(const Firing& strike, uint64_t end_ns) const;

 private:
  using State = std::vector<std::vector<NicState>>;  // node, NIC

  State whole() const;
  void take(State& state, const Firing& strike) const;
  State state_at(uint64_t time_ns) const;
  double compute_limit(const State& state) const;
  double limit_of(const State& state) const;

  const Scenario& scenario_;
  const Mode& mode_;
  std::vector<const Firing*> strikes_;  // of NICs, that took effect
  std::vector<uint64_t> moments_;       // at which `state_at` changes, in order
  NodeLoad load_;
  Wiring wiring_;
  bool by_channel_;  // each channel uses one NIC
  /// Mode AllReduce, and an operation that its schedules can help.
  bool by_schedule_;
  mutable std::map<State, double> known_;
};

}  // namespace r2bench
