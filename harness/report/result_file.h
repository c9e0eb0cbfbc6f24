// SPDX-License-Identifier: Apache-2.0
// Reads result.json files. What is no result of this version is refused with the file, the place in it and
// what to do.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace r2bench {

/// The user's to mend: exit code 64. what() names the file.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What `act` returns. A JSON exception in it (a key is missing, or a value has another type than r2bench
/// writes) becomes an InputError that names `file`: it is damaged.
template <typename Act>
auto reading(const std::filesystem::path& file, Act&& act) -> decltype(act()) {
  try {
    return act();
  } catch (const nlohmann::json::exception& error) {
    throw InputError(file.string() + ": is damaged (" + error.what() +
                     "); copy it again from where it was made, or run the scenario again");
  }
}

/// `text` as JSON. `where`: what it is called in an error, a file's name; `first_line`: where in it the text
/// begins. Throws InputError when it is empty, ends in the middle or is no JSON; the last two with line and
/// column.
nlohmann::json parse_json(const std::string& text, const std::string& where, size_t first_line = 1);

/// Throws InputError when the file cannot be read or is a folder.
std::string read_text_file(const std::filesystem::path& file);

/// The JSON in a file.
nlohmann::json read_json_file(const std::filesystem::path& file);

/// Why a JSON value is no result of kResultSchemaVersion, in a sentence that says what to do; else empty.
std::string why_no_result(const nlohmann::json& value);

/// The result in a file, or in the result.json of a folder. `schema` is results/schema.json. Throws
/// InputError also for other JSON, another schema_version, and what the schema refuses.
nlohmann::json read_result_file(const std::filesystem::path& named, const nlohmann::json& schema);

}  // namespace r2bench
