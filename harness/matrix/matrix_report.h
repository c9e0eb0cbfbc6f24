// SPDX-License-Identifier: Apache-2.0
// The matrix as a table for the terminal, as Markdown and as JSON.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/matrix/matrix_run.h"

namespace r2bench::matrix {

struct MatrixCounts {
  size_t pass = 0, fail = 0, missed = 0, empty = 0;
  size_t run() const { return pass + fail + missed; }
};
MatrixCounts count(const std::vector<CellRun>& runs);

/// Fault × moment; in each field how many of its cells hold ("9", "8/9", "·" where there is none), and below
/// why fields are empty, which errors were expected, and what failed. `markdown`: with a head that says where
/// it comes from.
std::string table(const std::vector<CellRun>& runs);
std::string markdown(const std::vector<CellRun>& runs, const nlohmann::ordered_json& provenance);
/// matrix.json: schema_version, provenance, counts, cells.
nlohmann::ordered_json to_json(const std::vector<CellRun>& runs, const nlohmann::ordered_json& provenance);

/// Its text: one line per cell.
std::string json_text(nlohmann::ordered_json json);

}  // namespace r2bench::matrix
