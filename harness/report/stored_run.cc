#include "harness/report/stored_run.h"

#include <fstream>
#include <sstream>

#include "harness/report/events.h"
#include "harness/report/json.h"
#include "harness/report/schema.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kCopyAgain = "; copy it again from where it was made, or run the scenario again";

std::string contents(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream || fs::is_directory(path)) throw StoredError(path.string() + ": cannot be read");
  return text.str();
}

Json parsed(const std::string& text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const size_t last = text.find_last_not_of(" \t\r\n");
    if (last == std::string::npos) throw StoredError(where + ": is empty" + kCopyAgain);
    // A parser that wants more than there is stands behind the last character.
    if (error.byte > last + 1) throw StoredError(where + ": was cut off, its JSON does not end" + kCopyAgain);
    throw StoredError(where + ": is not JSON (at byte " + std::to_string(error.byte) +
                      "); give a result.json of r2bench run, or the folder of a run");
  }
}

/// Checks the only parts of timeline.json that readers rely on.
void check_timeline(const Json& timeline, const fs::path& path) {
  const bool good = timeline.is_object() && timeline.contains("modes") && timeline["modes"].is_array() &&
                    timeline.value("schema_version", 0) == kResultSchemaVersion;
  if (!good)
    throw StoredError(path.string() + ": is no timeline of schema version " +
                      std::to_string(kResultSchemaVersion) + "; remove it, or run the scenario again");
}

bool is_event(const Json& line) {
  return line.is_object() && line.contains("mode") && line["mode"].is_string() && line.contains("event") &&
         line["event"].is_string();
}

bool has_place(const Json& line) {
  return line.contains("time_ns") && line["time_ns"].is_number_unsigned() && line.contains("at_ms") &&
         line["at_ms"].is_number() && line.contains("source") && line["source"].is_string() &&
         line.contains("text") && line["text"].is_string();
}

std::vector<Json> read_events(const fs::path& path, const Json& result) {
  std::vector<Json> events;
  const std::string text = contents(path);
  std::istringstream stream(text);
  size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::string where = path.string() + ":" + std::to_string(++number);
    if (line.empty()) continue;
    Json event = parsed(line, where);
    if (is_event(event) && event["event"] == kEventsLeftOut) continue;
    if (!is_event(event) || !has_place(event))
      throw StoredError(where + ": is no event of r2bench; remove the file, or run the scenario again");
    events.push_back(std::move(event));
  }
  size_t written = 0;
  for (const Json& run : result["runs"])
    written += run.contains("events") ? run["events"].value("written", size_t{0}) : 0;
  if (events.size() < written)
    throw StoredError(path.string() + ": was cut off, it holds " + std::to_string(events.size()) + " of " +
                      std::to_string(written) + " events" + kCopyAgain);
  return events;
}

}  // namespace

std::string other_version(const Json& result) {
  if (!result.is_object()) return "";
  const auto version = result.find("schema_version");
  if (version == result.end() || !version->is_number_integer() || version->get<int>() == kResultSchemaVersion)
    return "";
  return "schema_version " + version->dump() + ", and this r2bench knows " +
         std::to_string(kResultSchemaVersion) + " only" +
         (version->get<int>() == 1 ? ": in version 1 recover_ms and blackout_ms end at the heal, strikes of "
                                     "one fault are one, and "
                                     "retained leaves out rounds that never settled; run the scenario again"
          : version->get<int>() > kResultSchemaVersion ? ": take the r2bench that wrote it, or a newer one"
                                                       : "; run the scenario again");
}

Json parsed_file(const fs::path& path) { return parsed(contents(path), path.string()); }

StoredRun load_stored_run(const fs::path& named, const Json& schema) {
  StoredRun run;
  run.file = fs::is_directory(named) ? named / "result.json" : named;
  if (!fs::exists(run.file))
    throw StoredError(run.file.string() + ": no such file; give a result.json or the folder of a run");
  run.result = parsed_file(run.file);
  if (!run.result.is_object() || !run.result.contains("schema_version") || !run.result.contains("runs"))
    throw StoredError(
        run.file.string() + ": is JSON, but no result of r2bench run (it has no " +
        (run.result.is_object() && run.result.contains("schema_version") ? "runs" : "schema_version") +
        "); give the result.json that a run left");
  if (const std::string version = other_version(run.result); !version.empty())
    throw StoredError(run.file.string() + ": " + version);
  if (const auto mismatches = schema_mismatches(schema, run.result); !mismatches.empty())
    throw StoredError(
        run.file.string() + ": " + mismatches.front() +
        (mismatches.size() > 1 ? " (and " + std::to_string(mismatches.size() - 1) + " more)" : "") +
        "; r2bench validate says all");
  const fs::path folder = run.file.parent_path();
  if (fs::exists(folder / "timeline.json")) {
    run.timeline = parsed_file(folder / "timeline.json");
    check_timeline(run.timeline, folder / "timeline.json");
  }
  run.has_events = fs::exists(folder / "events.jsonl");
  if (run.has_events) run.events = read_events(folder / "events.jsonl", run.result);
  return run;
}

}  // namespace r2bench
