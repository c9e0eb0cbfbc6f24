// SPDX-License-Identifier: Apache-2.0
// Runs the conformance program on one fabric: all cases, and what a program sees of each fault, injected and
// (where the fabric has a network that can be broken) real.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace r2bench::conformance {

struct SuiteOptions {
  std::string fabric;              ///< vhca, rxe (where its devices may be made) or verbs
  std::string bin_dir, lib_dir;    ///< of the build
  std::vector<std::string> cases;  ///< prefixes of names; empty: all
  bool faults = true;
  std::function<void(const std::string&)> progress;  ///< one line
};

/// What is wrong with `prefixes` of names of cases, when `cases` are those that have run; empty: nothing.
std::string why_not_run(const nlohmann::json& cases, const std::vector<std::string>& prefixes);

/// {"fabric", "environment", "cases": […], "faults": [{"fault", "source", "seen"}]}. Throws FabricError,
/// std::system_error.
nlohmann::json run_suite(const SuiteOptions& options, const std::atomic<bool>& cancel);

/// What two NICs of one node carry on that fabric right now, both ways, in bits of payload per second; takes
/// some seconds. `cases` and `faults` do not matter. Throws FabricError, std::system_error.
double measure_carried(const SuiteOptions& options, const std::atomic<bool>& cancel);

}  // namespace r2bench::conformance
