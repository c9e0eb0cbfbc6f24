// SPDX-License-Identifier: Apache-2.0
#include "harness/matrix/matrix_run.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "harness/matrix/cell_scenario.h"
#include "harness/run/build_paths.h"
#include "harness/scenario/load.h"

namespace r2bench::matrix {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const Cell& cell, const MatrixOptions& options) {
  std::string text = cell.name();
  std::replace(text.begin(), text.end(), '/', '-');
  return fs::path(options.out_dir) / "failed" / text;
}

/// One attempt in a folder of its own, which stays when the cell does not pass.
CellResult attempt(const Cell& cell, const MatrixOptions& options, const BuildPaths& paths, uint64_t seed,
                   const std::atomic<bool>& cancel) {
  const fs::path folder = folder_of(cell, options);
  fs::create_directories(folder);
  const std::string text = scenario_text(cell, seed, options.mode);
  std::ofstream(folder / "cell.yaml") << text;
  const Scenario scenario = parse_scenarios((folder / "cell.yaml").string(), text).front();
  RunOptions run;
  run.out_dir = folder.string();
  Job job(scenario, scenario.modes.front(), run, paths, 1, seed, "", cancel, {});
  const JobRecord record = job.run();
  CellResult result = judge(cell, scenario, record);
  if (result.verdict == CellVerdict::kPass) {
    fs::remove_all(folder);
  } else {
    std::ofstream events(folder / "events.txt");
    events << result.why << "\n\n";
    std::vector<std::pair<uint64_t, std::string>> lines;
    for (const RankEvent& event : record.trace)
      lines.emplace_back(event.event.time_ns,
                         record.labels[event.rank] + " channel " + std::to_string(event.event.channel) + " " +
                             std::string(r2ccl::trace::name(event.event.type)) + " " + describe(event.event));
    for (const Delivery& delivery : record.record.deliveries)
      lines.emplace_back(delivery.time_ns,
                         "node" + std::to_string(record.record.streams[delivery.stream].rx_node) +
                             " received " + std::to_string(delivery.bytes) + " bytes on NIC " +
                             std::to_string(delivery.rx_nic));
    for (const Firing& firing : record.firings) {
      const std::string& name = scenario.faults[firing.fault].name;
      if (firing.triggered_ns) lines.emplace_back(firing.triggered_ns, "injector: " + name + " is fired");
      if (firing.t0_ns) lines.emplace_back(firing.t0_ns, "injector: " + name + " took effect");
    }
    for (const LoggedEvent& note : record.notes)
      lines.emplace_back(note.time_ns, note.name + ": " + note.text);
    std::sort(lines.begin(), lines.end());
    for (const auto& [time, line] : lines)
      events << double(int64_t(time - record.start_ns)) / 1e6 << " ms  " << line << "\n";
  }
  return result;
}

CellResult run_cell(const Cell& cell, const MatrixOptions& options, const BuildPaths& paths,
                    const std::atomic<bool>& cancel) {
  CellResult result;
  if (const std::string why = why_empty(*cell.fault, cell.moment, cell.side); !why.empty()) {
    result.verdict = CellVerdict::kEmpty;
    result.why = why;
    return result;
  }
  for (int i = 0; i < options.attempts && !cancel; ++i) {
    result = attempt(cell, options, paths, options.seed + uint64_t(i), cancel);
    result.attempts = i + 1;
    if (result.verdict != CellVerdict::kMissed) break;
  }
  return result;
}

}  // namespace

CellRuns run_cells(const std::vector<Cell>& cells, const MatrixOptions& options, const CellDone& done,
                   const std::atomic<bool>& cancel) {
  const BuildPaths paths = find_build({}, Engine::kCpu);
  CellRuns runs;
  std::vector<std::optional<CellRun>> results(cells.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;  // guards the following, `runs`, and the calls of `done`
  size_t finished = 0;
  const auto work = [&] {
    // The ranks die with the thread that started them: this one lives until all its cells are done.
    for (size_t i; !cancel && (i = next.fetch_add(1)) < cells.size();) {
      try {
        CellRun run{cells[i], run_cell(cells[i], options, paths, cancel)};
        if (cancel && run.result.verdict == CellVerdict::kMissed) {  // its job was broken off
          fs::remove_all(folder_of(cells[i], options));
          return;
        }
        const std::lock_guard lock(mutex);
        results[i] = std::move(run);
        ++finished;
        if (done) done(*results[i], finished, cells.size());
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!runs.error) runs.error = std::current_exception();
        next.store(cells.size());
        return;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::max<size_t>(options.jobs, 1); ++i) threads.emplace_back(work);
  }
  for (std::optional<CellRun>& result : results)
    if (result) runs.finished.push_back(std::move(*result));
  runs.not_run = cells.size() - runs.finished.size();
  return runs;
}

}  // namespace r2bench::matrix
