// SPDX-License-Identifier: Apache-2.0
// The machines of a run, where it has several, as a job sees them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/hosts/host.h"

namespace r2bench {

class Cluster {
 public:
  Cluster() = default;
  virtual ~Cluster() = default;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// In the launcher's order: the first nodes live on the first. `log_folder`: where their ranks' output
  /// goes, <folder>/<RankPlan::log>.
  virtual std::vector<Host*> hosts(const std::string& log_folder) = 0;
  /// The launcher has ended before its time: how.
  virtual std::optional<std::string> failure() = 0;
  /// Where the other hosts reach the first one: MASTER_ADDR of a job's commands.
  virtual std::string master_address() = 0;
};

}  // namespace r2bench
