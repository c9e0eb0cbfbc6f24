// SPDX-License-Identifier: Apache-2.0
// The machines of `r2bench run --launcher …`.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "harness/cli/commands.h"
#include "harness/hosts/launched_cluster.h"

namespace r2bench {

/// Throws UsageError where hosts_of_run() would, before it starts anything.
void check_hosts(const RunArguments& arguments, const std::vector<Scenario>& scenarios);

/// The hosts on which the scenarios are to run; nullptr: this machine alone. Throws UsageError and
/// LauncherError.
std::unique_ptr<Cluster> hosts_of_run(const RunArguments& arguments, const std::vector<Scenario>& scenarios,
                                      const std::atomic<bool>& cancel);

/// Under --launcher env every process is the same command. The exit status of one that is not the runner:
/// the first of its host serves the runner, others have nothing to do. nullopt: this one is the runner.
std::optional<int> serve_instead(const RunArguments& arguments, const Console& console);

}  // namespace r2bench
