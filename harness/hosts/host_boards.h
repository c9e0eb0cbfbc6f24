// SPDX-License-Identifier: Apache-2.0
// The fault boards of several hosts as one. Every fault is armed on every board, because anybody's event may
// trigger it; it strikes on the boards of the hosts where its target lives. As soon as one board says that a
// fault has fired, it is fired on those.
#pragma once

#include <vector>

#include "faultinject/control/board_host.h"
#include "harness/fabric/device_fabric.h"

namespace r2bench {

class HostBoards final : public faultinject::FaultBoard {
 public:
  struct Part {
    faultinject::FaultBoard* board;
    NodesHere nodes;
  };
  /// The boards must outlive it, and nobody else may arm faults on them. `nodes` of the whole job.
  HostBoards(std::vector<Part> parts, const std::vector<faultinject::NodeShape>& nodes, uint64_t seed);

  /// Fires where its target lives what has fired elsewhere. Once per tick.
  void forward();

  void restart_clock() override;
  uint32_t arm(const faultinject::FaultSpec& spec, faultinject::TimeOrigin origin) override;
  void fire(uint32_t id) override;
  void heal(uint32_t id) override;
  void heal_all() override;
  /// Of the boards where the target lives: the earliest times, but healed only when all of them are.
  faultinject::FaultState state(uint32_t id) const override;
  const faultinject::FaultSpec& spec(uint32_t id) const override { return checked_.spec(id); }
  uint32_t armed() const override { return checked_.armed(); }
  std::vector<faultinject::Witness> witnesses() const override;
  uint64_t witnesses_lost() const override;

 private:
  bool strikes_at(const faultinject::FaultSpec& spec, const Part& part) const;

  std::vector<Part> parts_;
  faultinject::BoardHost checked_;  ///< no process maps it: it checks, counts and keeps what is armed
};

}  // namespace r2bench
