// SPDX-License-Identifier: Apache-2.0
// Runs cells of the fault matrix, several at once.
#pragma once

#include <atomic>
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

/// Runs them all; the result is in the order of `cells`. When `cancel` becomes true, what has not run is
/// missed. Throws UsageError for a machine that cannot run them.
std::vector<CellRun> run_cells(const std::vector<Cell>& cells, const MatrixOptions& options,
                               const CellDone& done, const std::atomic<bool>& cancel);

}  // namespace r2bench::matrix
