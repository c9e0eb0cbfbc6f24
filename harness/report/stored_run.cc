// SPDX-License-Identifier: Apache-2.0
#include "harness/report/stored_run.h"

#include <algorithm>
#include <sstream>

#include "harness/report/events.h"
#include "harness/report/json.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kCopyRunAgain = "; copy it again from where it was made, or run the scenario again";

/// Checks the only parts of timeline.json that readers rely on.
void check_timeline(const Json& timeline, const fs::path& path) {
  const bool good = timeline.is_object() && timeline.contains("modes") && timeline["modes"].is_array() &&
                    timeline.value("schema_version", 0) == kResultSchemaVersion;
  if (!good)
    throw InputError(path.string() + ": is no timeline of schema version " +
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
  const std::string text = read_text_file(path);
  std::istringstream stream(text);
  size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::string where = path.string() + ":" + std::to_string(++number);
    if (line.empty()) continue;
    Json event = parse_json(line, path.string(), number);
    if (is_event(event) && event["event"] == kEventsLeftOut) continue;
    if (!is_event(event) || !has_place(event))
      throw InputError(where +
                       ": is not an event that r2bench writes; remove the file, or run the scenario again");
    events.push_back(std::move(event));
  }
  size_t written = 0;
  for (const Json& run : result["runs"])
    written += run.contains("events") ? run["events"].value("written", size_t{0}) : 0;
  if (events.size() < written)
    throw InputError(path.string() + ": was cut off, it holds " + std::to_string(events.size()) + " of " +
                     std::to_string(written) + " events" + kCopyRunAgain);
  const bool says = std::all_of(result["runs"].begin(), result["runs"].end(), [](const Json& run) {
    return run.contains("events");
  });  // not in older results
  if (says && events.size() > written)
    throw InputError(path.string() + ": holds " + std::to_string(events.size()) +
                     " events, but its run wrote " + std::to_string(written) + kCopyRunAgain);
  return events;
}

}  // namespace

StoredRun load_stored_run(const fs::path& named, const Json& schema) {
  StoredRun run;
  run.file = fs::is_directory(named) ? named / "result.json" : named;
  run.result = read_result_file(named, schema);
  const fs::path folder = run.file.parent_path();
  if (fs::exists(folder / "timeline.json")) {
    run.timeline = read_json_file(folder / "timeline.json");
    check_timeline(run.timeline, folder / "timeline.json");
  }
  run.has_events = fs::exists(folder / "events.jsonl");
  if (run.has_events) run.events = read_events(folder / "events.jsonl", run.result);
  return run;
}

}  // namespace r2bench
