// SPDX-License-Identifier: Apache-2.0
// `report` and `trace`: a stored run as a page, and as a trace.
#include <filesystem>
#include <ostream>

#include "harness/cli/commands.h"
#include "harness/cli/resources.h"
#include "harness/report/html.h"
#include "harness/report/run_folder.h"
#include "harness/report/trace.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

StoredRun load(const std::string& named) {
  const auto share = share_folder();
  if (!share)
    throw UsageError("results/schema.json is not found; set R2BENCH_SHARE to the folder that holds results/");
  return reading(named,
                 [&] { return load_stored_run(named, read_json_file(*share / "results" / "schema.json")); });
}

/// What the user said, else `name` beside the first result.
fs::path output(const std::string& out, const StoredRun& run, const char* name) {
  return out.empty() ? run.file.parent_path() / name : fs::path(out);
}

}  // namespace

int report_command(const std::vector<std::string>& results, const std::string& out, const Console& console) {
  std::vector<StoredRun> runs;
  for (const std::string& named : results) runs.push_back(load(named));
  const fs::path path = output(out, runs.front(), "report.html");
  write_file(path, reading(runs.front().file.parent_path(), [&] { return to_html(runs); }));
  console.out << path.string() << "\n";
  return 0;
}

int trace_command(const std::string& result, const std::string& out, const Console& console) {
  const StoredRun run = load(result);
  const fs::path path = output(out, run, "trace.json");
  // Of the files in the folder it reads more than is checked when they are loaded.
  const nlohmann::ordered_json trace = reading(run.file.parent_path(), [&] { return to_trace(run); });
  write_file(path, trace.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  console.out << path.string() << "\nOpen it in https://ui.perfetto.dev or chrome://tracing.\n";
  return 0;
}

}  // namespace r2bench
