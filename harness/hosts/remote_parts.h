// SPDX-License-Identifier: Apache-2.0
// The fault board and the ranks of a remote host, as the runner sees them. For remote_host.cc and
// remote_parts.cc only.
#pragma once

#include "harness/hosts/remote_host.h"

namespace r2bench {

/// What is armed is told to the agent; states are what the agent said last, some ms ago.
class RemoteHost::Board final : public faultinject::FaultBoard {
 public:
  explicit Board(RemoteHost& host) : host_(host) {}
  using FaultBoard::arm;
  void restart_clock() override;
  uint32_t arm(const faultinject::FaultSpec& spec, faultinject::TimeOrigin origin) override;
  void fire(uint32_t id) override;
  void heal(uint32_t id) override;
  void heal_all() override;
  faultinject::FaultState state(uint32_t id) const override;
  const faultinject::FaultSpec& spec(uint32_t id) const override { return specs_.at(id - 1); }
  uint32_t armed() const override { return uint32_t(specs_.size()); }
  /// Asks the agent; none when it does not answer.
  std::vector<faultinject::Witness> witnesses() const override;
  uint64_t witnesses_lost() const override { return witnesses_lost_; }

 private:
  RemoteHost& host_;
  std::deque<faultinject::FaultSpec> specs_;  ///< a deque: spec() hands out references
  mutable uint64_t witnesses_lost_ = 0;       ///< as of the last witnesses()
};

class RemoteHost::Port final : public RankPort {
 public:
  Port(RemoteHost& host, int rank) : host_(host), rank_(rank) {}
  bool send(const nlohmann::json& message) override;
  std::optional<nlohmann::json> receive() override;
  pid_t pid() const override;
  /// A rank whose host is gone counts as killed: the agent takes its ranks with it.
  std::optional<int> ended() override;
  uint64_t signal(int number) override;

 private:
  RemoteHost& host_;
  int rank_;
};

}  // namespace r2bench
