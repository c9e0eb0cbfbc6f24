// SPDX-License-Identifier: Apache-2.0
// A run read back from its folder, for the commands that show or convert it. What is not a whole result of
// this version is refused with a sentence that names the file and says what to do.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/report/result_file.h"

namespace r2bench {

struct StoredRun {
  std::filesystem::path file;          ///< result.json
  nlohmann::json result;               ///< fits the schema
  nlohmann::json timeline;             ///< null when there is no timeline.json beside it
  std::vector<nlohmann::json> events;  ///< in the file's order; without the lines that say what was left out
  bool has_events = false;             ///< there is an events.jsonl beside it
};

/// `named`: a result.json or the folder of a run. `schema`: results/schema.json. Throws InputError also for
/// another program's JSON, another schema version, and files beside it that were cut off.
StoredRun load_stored_run(const std::filesystem::path& named, const nlohmann::json& schema);

}  // namespace r2bench
