// SPDX-License-Identifier: Apache-2.0
// From what a cell's job recorded to whether the cell holds. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "harness/matrix/cell.h"
#include "harness/run/job.h"

namespace r2bench::matrix {

enum class CellVerdict {
  kPass,
  kFail,
  kMissed,  ///< the fault did not strike in its moment: nothing is shown; it may be tried again
  kEmpty,   ///< there is no such moment
};
const char* name(CellVerdict verdict);

struct CellResult {
  CellVerdict verdict = CellVerdict::kMissed;
  std::string
      why;  ///< what is wrong, what was missed, or why it is empty; the error of a cell that expects one
  std::string excuse;   ///< why the job may end in an error; empty when it must survive
  std::string outcome;  ///< of the job: ok, error, hang …
  int struck = 0;       ///< faults of the cell that took effect in their moment, by the injector's witness
  int attempts = 0;
  size_t migrations = 0;  ///< ends of channels that left a path that had failed
  size_t replayed = 0;    ///< segments
  uint64_t wrong = 0, lost = 0, duplicated = 0, checked = 0;
  double error_ms = 0;  ///< from the effect to the job's error
  double seconds = 0;
};

CellResult judge(const Cell& cell, const Scenario& scenario, const JobRecord& job);

}  // namespace r2bench::matrix
