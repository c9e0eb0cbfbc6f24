// SPDX-License-Identifier: Apache-2.0
// Throughput in the JSON that nccl-tests writes with -J (file version 3), so that tools which read that read
// results of r2bench, too.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace r2bench {

inline constexpr int kNcclTestsVersion = 3;

/// One document of the throughput rows of result.json files (checked against the schema): a row for each run
/// whose mode is `mode`, or for every run where that is empty; experiment_name is SCENARIO/MODE. As
/// nccl-tests has it: times in µs, bandwidths in GB/s, truth values and `root` as text, null for in_place,
/// which is not run. A run that completed no operation has no row; `errors` names it. nccl_version is 0: no
/// NCCL was loaded.
nlohmann::ordered_json nccl_tests_json(const std::vector<nlohmann::json>& results, const std::string& mode);

}  // namespace r2bench
