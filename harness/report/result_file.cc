// SPDX-License-Identifier: Apache-2.0
#include "harness/report/result_file.h"

#include <algorithm>

#include "harness/base/input_file.h"
#include "harness/base/json_text.h"
#include "harness/report/json.h"
#include "harness/report/schema.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCopyAgain = "; copy it again from where it was made, or run the scenario again";

/// ":3:17" of a position in a text, both from 1.
std::string place(const std::string& text, size_t byte, size_t first_line) {
  const size_t at = std::min(byte, text.size());
  const auto line = first_line + size_t(std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n'));
  const size_t begin = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return ":" + std::to_string(line) + ":" +
         std::to_string(at - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

}  // namespace

nlohmann::json parse_json(const std::string& text, const std::string& where, size_t first_line) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos) throw InputError(where + ": is empty" + kCopyAgain);
  try {
    return json_from(text);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t byte = error.byte > 0 ? error.byte - 1 : 0;
    // A parser that wants more than there is stands behind the last character.
    if (byte > last)
      throw InputError(where + place(text, last, first_line) + ": was cut off, its JSON does not end" +
                       kCopyAgain);
    throw InputError(where + place(text, byte, first_line) +
                     ": is not JSON; give a result.json of r2bench run, or the folder of a run");
  }
}

std::string read_text_file(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) throw InputError(file.string() + ": is a folder; name a file in it");
  if (!fs::exists(file, ignored) && !ignored)
    throw InputError(file.string() + ": no such file; give a result.json or the folder of a run");
  try {
    return read_input(file);
  } catch (const ReadError& error) {
    throw InputError(file.string() + ": " + error.what());
  }
}

nlohmann::json read_json_file(const fs::path& file) {
  return parse_json(read_text_file(file), file.string());
}

std::string why_no_result(const nlohmann::json& value) {
  const auto has = [&](const char* key) { return value.is_object() && value.contains(key); };
  if (has("baseline_version")) return "is a baseline, no result; give it to --baseline";
  if (!has("schema_version")) {
    const std::string other = has("version") && has("results") ? " (it looks like one of nccl-tests)"
                              : has("context") && has("benchmarks")
                                  ? " (it looks like one of Google Benchmark)"
                              : has("curves") || has("modes") ? " (it looks like the timeline.json beside it)"
                                                              : "";
    return "is JSON, but no result of r2bench run" + other +
           " (it has no schema_version); give the result.json that a run left";
  }
  const nlohmann::json& version = value.at("schema_version");
  if (version == kResultSchemaVersion) return "";
  return "schema_version " + version.dump() + ", and this r2bench knows " +
         std::to_string(kResultSchemaVersion) + " only" +
         (version == 1 ? ": in version 1 recover_ms and blackout_ms end at the heal, strikes of one fault "
                         "are one, and retained leaves out rounds that never settled; run the scenario again"
          : version.is_number_integer() && version > kResultSchemaVersion
              ? ": take the r2bench that wrote it, or a newer one"
              : "; run the scenario again");
}

nlohmann::json read_result_file(const fs::path& named, const nlohmann::json& schema) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(named, ignored) ? named / "result.json" : named;
  nlohmann::json value = read_json_file(file);
  if (const std::string why = why_no_result(value); !why.empty())
    throw InputError(file.string() + ": " + why);
  const std::vector<Mismatch> mismatches = schema_mismatches(schema, value);
  if (mismatches.empty()) return value;
  throw InputError(
      file.string() + ": " + in_words(mismatches.front()) +
      (mismatches.size() > 1 ? " (and " + std::to_string(mismatches.size() - 1) + " more)" : "") +
      "; r2bench validate says all");
}

}  // namespace r2bench
