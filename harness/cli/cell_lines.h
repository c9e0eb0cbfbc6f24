// SPDX-License-Identifier: Apache-2.0
// What `matrix` prints while its cells run.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "harness/cli/console.h"
#include "harness/matrix/matrix_run.h"

namespace r2bench {

/// A line for each cell that fails or misses its moment, and on a terminal how far the run is.
class CellLines {
 public:
  explicit CellLines(const Console& console) : console_(console) {}

  /// `run` is over, as one of `done` of `all`. Does not wait for a terminal that is stopped or a pipe that
  /// nobody reads: progress is dropped then, lines of cells are kept for later.
  void show(const matrix::CellRun& run, size_t done, size_t all);
  /// After the last cell: clears the progress, and prints the lines that were kept, which may wait.
  void finish();

 private:
  const Console& console_;
  std::deque<std::string> kept_;  ///< with their ends of line
};

}  // namespace r2bench
