#include "harness/report/result_file.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "harness/report/json.h"
#include "harness/report/schema.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostMismatches = 5;

/// ":3:17" of a position in a text, both from 1.
std::string place(const std::string& text, size_t byte) {
  const size_t at = std::min(byte, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n');
  const size_t begin = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return ":" + std::to_string(line) + ":" +
         std::to_string(at - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

}  // namespace

nlohmann::json read_json_file(const fs::path& file) {
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) throw InputError(file.string() + ": is a folder; name a file in it");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    throw InputError(file.string() + (fs::exists(file, ignored)
                                          ? ": cannot be read"
                                          : ": no such file; give a result.json or the folder of a run"));
  }
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos)
    throw InputError(file.string() + ": is empty; the run that wrote it did not finish, run it again");
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t byte = error.byte > 0 ? error.byte - 1 : 0;
    if (byte > last)
      throw InputError(
          file.string() + place(text, last) +
          ": ends in the middle: it was cut off while it was written or copied; copy it again, or "
          "run the scenario again");
    throw InputError(file.string() + place(text, byte) +
                     ": is not JSON from here on; r2bench reads the result.json that "
                     "`r2bench run` leaves in a run's folder");
  }
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
    return "is JSON, but no result of `r2bench run`" + other +
           ": it has no 'schema_version'; give the "
           "result.json of a run's folder";
  }
  const nlohmann::json& version = value.at("schema_version");
  if (version == kResultSchemaVersion) return "";
  return "schema_version " + version.dump() + ", and this r2bench knows " +
         std::to_string(kResultSchemaVersion) + " only" +
         (version == 1 ? ": in version 1 recover_ms and blackout_ms end at the heal, strikes of "
                         "one fault are one, and "
                         "retained leaves out rounds that never settled; run the scenario again"
          : version.is_number_integer() && version > kResultSchemaVersion
              ? ": a newer r2bench wrote it; use that one, or run the scenario again"
              : "; run the scenario again");
}

nlohmann::json read_result_file(const fs::path& named, const nlohmann::json& schema) {
  fs::path file = named;
  std::error_code ignored;
  if (fs::is_directory(named, ignored)) {
    file = named / "result.json";
    if (!fs::exists(file, ignored))
      throw InputError(named.string() +
                       ": is a folder without a result.json; give the folder of a run, or a result.json");
  }
  nlohmann::json value = read_json_file(file);
  if (const std::string why = why_no_result(value); !why.empty())
    throw InputError(file.string() + ": " + why);
  const std::vector<std::string> mismatches = schema_mismatches(schema, value);
  if (mismatches.empty()) return value;
  std::string text;
  for (size_t i = 0; i < std::min(mismatches.size(), kMostMismatches); ++i)
    text += (i > 0 ? "\n" : "") + file.string() + ": " + mismatches[i];
  if (mismatches.size() > kMostMismatches)
    text += "\n" + file.string() + ": and " + std::to_string(mismatches.size() - kMostMismatches) + " more";
  throw InputError(text + "\n" + file.string() + ": is damaged, or was edited; run the scenario again");
}

}  // namespace r2bench
