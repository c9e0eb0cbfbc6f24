// SPDX-License-Identifier: Apache-2.0
// What must hold in every history, whatever the plan (README.md), except for what the log says
// (log_claims.h).
#pragma once

#include "r2ccl/tests/simulation/faults.h"
#include "r2ccl/tests/simulation/migrations.h"

namespace r2ccl::simulation {

class Properties final : public MemoryWatch {
 public:
  Properties(const Plan& plan, Fabric& fabric, Job& job, const Faults& faults, Findings& findings)
      : plan_(plan), fabric_(fabric), job_(job), faults_(faults), findings_(findings) {}

  // --- MemoryWatch
  void written(const Nic& nic, const uint8_t* at, size_t bytes) override;
  void read(const Nic& nic, const uint8_t* at, size_t bytes) override;
  void broken(const std::string& what) override { findings_.violate(what); }

  /// A channel's end has reported an error.
  void failed(const End& end, const Error& error);
  /// What the core's trace says; `migrations` has heard of it.
  void event(const trace::Event& event, const Migrations& migrations);
  /// Looks at the paths now and then, from now on.
  void look_at_paths();
  /// When the history is over (`ended`), or was given up.
  void at_end(bool ended);

 private:
  bool error_is_due(const End& end, const Error& error) const;
  bool copies_are_lost(const End& end) const;
  bool home_is_well(const Plan::Line& line) const;
  void look_at_paths_of(const End& sender, const End& receiver);
  Time allowed_gap() const;

  const Plan& plan_;
  Fabric& fabric_;
  Job& job_;
  const Faults& faults_;
  Findings& findings_;
  int last_nic_[2] = {-1, -1};  // that has read a buffer of channels 0 and 1
};

}  // namespace r2ccl::simulation
