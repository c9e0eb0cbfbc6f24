// SPDX-License-Identifier: Apache-2.0
// `r2bench matrix`: every fault × moment × operation × end, as one table.
#include <algorithm>
#include <ostream>
#include <thread>

#include "harness/base/format.h"
#include "harness/base/revision.h"
#include "harness/cli/cell_lines.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/matrix/matrix_report.h"
#include "harness/report/run_folder.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

}  // namespace

int matrix_command(const MatrixArguments& arguments, const Console& console) {
  const std::vector<matrix::Cell> cells = matrix::chosen(arguments.only, arguments.mode);
  if (arguments.list) {
    for (const matrix::Cell& cell : cells) {
      const std::string why = matrix::why_empty(*cell.fault, cell.moment, cell.side);
      console.out << cell.name() << (why.empty() ? "" : "  empty: " + why) << "\n";
    }
    return 0;
  }
  RunFolder folder = arguments.out.empty() ? RunFolder::create_fresh(fs::path("results") / "runs", "matrix")
                                           : RunFolder::create(arguments.out);
  const Signals signals;
  matrix::MatrixOptions options;
  options.jobs =
      arguments.jobs > 0 ? size_t(arguments.jobs) : std::max(1u, std::thread::hardware_concurrency());
  options.seed = arguments.seed;
  options.mode = arguments.mode;
  options.out_dir = folder.path().string();
  const std::string started = utc_now();
  CellLines lines(console);
  const matrix::CellRuns ran = matrix::run_cells(
      cells, options,
      [&](const matrix::CellRun& run, size_t done, size_t all) { lines.show(run, done, all); },
      signals.cancel());
  const std::vector<matrix::CellRun>& runs = ran.finished;
  std::string only;
  for (const std::string& pattern : arguments.only) only += " --only '" + pattern + "'";
  nlohmann::ordered_json provenance = {
      {"command", "r2bench matrix --mode " + options.mode + only + " --seed " + std::to_string(options.seed) +
                      " --jobs " + std::to_string(options.jobs)},
      {"evidence", "emulated"},
      {"started", started},
      {"ended", utc_now()}};
  if (ran.not_run > 0)
    provenance["interrupted"] = std::to_string(ran.not_run) + " of " + std::to_string(cells.size()) +
                                (cells.size() == 1 ? " cell was" : " cells were") + " not run";
  for (const auto& [fact, value] : machine_facts()) provenance[fact] = value;
  try {
    folder.write("matrix.md", matrix::markdown(runs, provenance));
    folder.write("matrix.json", matrix::json_text(matrix::to_json(runs, provenance)));
  } catch (const OutputError&) {  // what was found is not lost with its files
    lines.finish();
    console.out << matrix::table(runs) << std::flush;
    throw;
  }
  std::error_code ignored;
  fs::remove(folder.path() / "failed", ignored);  // when it is empty
  folder.keep();
  lines.finish();
  console.out << matrix::table(runs) << "Files: " << folder.path().string()
              << "/  (matrix.md, matrix.json)\n";
  if (ran.not_run > 0) console.err << "r2bench: " << provenance["interrupted"].get<std::string>() << "\n";
  if (ran.error) std::rethrow_exception(ran.error);
  if (signals.caught() != 0) return kExitSignal + signals.caught();
  const matrix::MatrixCounts counts = matrix::count(runs);
  return counts.fail > 0 ? 1 : counts.missed > 0 ? 2 : 0;
}

}  // namespace r2bench
