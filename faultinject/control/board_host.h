// SPDX-License-Identifier: Apache-2.0
// The creator's side of the fault board: a memfd that lives as long as this object, or any process that has
// it mapped. Faults are armed, fired and healed here while the job runs; what took effect, and where, is read
// here. It never touches a verbs device and never waits for an injected process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "faultinject/control/fault_board.h"

namespace faultinject {

class BoardHost final : public FaultBoard {
 public:
  // nodes: the names that injected processes give in FAULTINJECT_NODE (at most 256 nodes, 64 NICs each,
  // names up to 31 bytes). seed: of every random phase and choice. Throws std::system_error (no memory, no
  // descriptor) or std::invalid_argument (limits).
  static BoardHost create(const std::vector<NodeShape>& nodes, uint64_t seed);

  BoardHost(BoardHost&&) noexcept;
  BoardHost& operator=(BoardHost&&) noexcept;
  ~BoardHost() override;  // heals everything, then lets the board go

  // For FAULTINJECT_BOARD: /proc/<pid>/fd/<n>, valid while this object lives. The descriptor is
  // close-on-exec.
  const std::string& path() const;

  // As in FaultBoard.
  using FaultBoard::arm;
  void restart_clock() override;
  uint32_t arm(const FaultSpec& spec, TimeOrigin origin) override;
  void fire(uint32_t id) override;
  void heal(uint32_t id) override;
  void heal_all() override;
  FaultState state(uint32_t id) const override;
  const FaultSpec& spec(uint32_t id) const override;
  uint32_t armed() const override;
  std::vector<Witness> witnesses() const override;
  std::vector<Witness> witnesses(uint32_t id) const;
  uint64_t witnesses_lost() const override;

  // For faults that no injected process carries out (FaultKind::outside): one took effect on that NIC, or
  // was put back there (Effect::kPutBack, which is a record only), in this round (from 0). Throws
  // std::out_of_range.
  void report(uint32_t id, uint64_t time_ns, uint32_t node, uint32_t nic, Effect effect, uint32_t round = 0);

  // What faultinject_event() does inside a process, from the creator's side.
  void event(const std::string& name, uint64_t value);

  // Live injected processes that have opened a device.
  uint32_t processes() const;

 private:
  struct Impl;
  explicit BoardHost(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultinject
