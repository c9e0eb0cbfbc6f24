// SPDX-License-Identifier: Apache-2.0
// Runs cells of the fault matrix, several at once.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "harness/matrix/cell_verdict.h"

namespace r2bench::matrix {

struct MatrixOptions {
  size_t jobs = 2;               ///< cells at a time
  uint64_t seed = 1;             ///< of every cell
  std::string mode = "migrate";  ///< or balance
  int attempts = 10;             ///< of a cell whose fault misses its moment
  std::string out_dir;           ///< exists; what a failed cell leaves goes to <out_dir>/failed/<cell>/
};

struct CellRun {
  Cell cell;
  CellResult result;
};

/// Called from any of the threads, one at a time, when a cell is done.
using CellDone = std::function<void(const CellRun& run, size_t done, size_t all)>;

struct CellRuns {
  std::vector<CellRun> finished;  ///< in the order in which they were given
  size_t not_run = 0;             ///< those that were left or broken off
  std::exception_ptr error;       ///< why the rest was not run, where nobody cancelled it
};

/// Runs them all, until `cancel` becomes true or one cannot be run for a reason that is not the cell's, such
/// as a full disk. Throws UsageError for a machine that cannot run them.
CellRuns run_cells(const std::vector<Cell>& cells, const MatrixOptions& options, const CellDone& done,
                   const std::atomic<bool>& cancel);

}  // namespace r2bench::matrix
