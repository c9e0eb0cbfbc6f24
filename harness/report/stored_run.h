// A run read back from its folder, for the commands that show or convert it. What is not a whole result of
// this version is refused with a sentence that names the file and says what to do.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace r2bench {

/// A file that cannot be used; one sentence that begins with its name.
class StoredError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StoredRun {
  std::filesystem::path file;          ///< result.json
  nlohmann::json result;               ///< fits the schema
  nlohmann::json timeline;             ///< null when there is no timeline.json beside it
  std::vector<nlohmann::json> events;  ///< in the file's order; without the lines that say what was left out
  bool has_events = false;             ///< there is an events.jsonl beside it
};

/// Why a result of another version is not looked at any further; empty when it is of this one, or when
/// `result` says no version at all.
std::string other_version(const nlohmann::json& result);

/// The whole file. Throws StoredError: not readable, not JSON, or cut off.
nlohmann::json parsed_file(const std::filesystem::path& path);

/// `named`: a result.json or the folder of a run. `schema`: results/schema.json. Throws StoredError also for
/// another program's JSON, another schema version, and files beside it that were cut off.
StoredRun load_stored_run(const std::filesystem::path& named, const nlohmann::json& schema);

}  // namespace r2bench
