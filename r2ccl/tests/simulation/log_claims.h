// SPDX-License-Identifier: Apache-2.0
// What the core's log says must be true: of NICs, of channels, of times.
#pragma once

#include <string>

#include "r2ccl/tests/simulation/faults.h"
#include "r2ccl/tests/simulation/migrations.h"

namespace r2ccl::simulation {

class LogClaims {
 public:
  LogClaims(const Plan& plan, const Faults& faults, const Migrations& migrations, Findings& findings)
      : plan_(plan), faults_(faults), migrations_(migrations), findings_(findings) {}

  /// A line of the log of that process.
  void line(const std::string& text, int process);

 private:
  void check_loss(const std::string& text);
  void check_ended(const std::string& text, int process);
  void check_migration_time(const std::string& text);
  void check_nics(const std::string& text, int process);
  int nic_before(const std::string& text, size_t at, int process) const;

  const Plan& plan_;
  const Faults& faults_;
  const Migrations& migrations_;
  Findings& findings_;
  int told_ended_[2] = {0, 0};  // channels of which the log has said that they ended between two paths
};

}  // namespace r2ccl::simulation
