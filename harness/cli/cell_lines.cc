// SPDX-License-Identifier: Apache-2.0
#include "harness/cli/cell_lines.h"

#include <ostream>

namespace r2bench {
namespace {

constexpr const char* kClearLine = "\r\033[K";

}  // namespace

void CellLines::show(const matrix::CellRun& run, size_t done, size_t all) {
  if (run.result.verdict == matrix::CellVerdict::kFail || run.result.verdict == matrix::CellVerdict::kMissed)
    kept_.push_back(run.cell.name() + ": " + name(run.result.verdict) + ": " + run.result.why + "\n");
  if (console_.would_wait()) return;
  if (console_.live) console_.out << kClearLine;
  // One by one: a pipe that can be written has room for a line, perhaps not for all of them.
  for (; !kept_.empty() && !console_.would_wait(); kept_.pop_front())
    console_.out << kept_.front() << std::flush;
  if (console_.live && kept_.empty()) console_.out << done << " of " << all << "  " << run.cell.name();
  console_.out << std::flush;
}

void CellLines::finish() {
  if (console_.live) console_.out << kClearLine;
  for (; !kept_.empty(); kept_.pop_front()) console_.out << kept_.front();
}

}  // namespace r2bench
