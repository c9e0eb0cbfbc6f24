// SPDX-License-Identifier: Apache-2.0
// What a command's output says of its progress: when its operations begin, when each ends, what it measured
// itself. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "harness/workload/exec/exec_options.h"
#include "harness/workload/exec/nccl_tests_table.h"

namespace r2bench {

class OutputReader {
 public:
  explicit OutputReader(const ExecOptions& options);

  struct Found {
    bool begun = false;      ///< with this line the operations begin
    bool iteration = false;  ///< with this line one ends
    std::optional<double>
        value;  ///< what the first group of the iteration's expression holds, if it is a number
  };
  Found read(const std::string& line);

  /// Operations begin with the command itself.
  bool begins_at_once() const { return !begin_ && !nccl_tests_; }
  /// Some line ends an operation.
  bool has_iterations() const { return iteration_ || nccl_tests_; }
  uint64_t wrong() const;
  uint64_t checked() const;
  /// For the sentence about a command that failed: "its last error: …" if an uncaught exception of Python or
  /// a failure of CUDA or NCCL in nccl-tests was printed; else "its last line: …", of the lines that have a
  /// letter or a digit; "" if there is none.
  std::string last_words() const;
  /// For the result: rows of nccl-tests, values of iterations. The first ones of very many; how many there
  /// were besides is "rows_left_out", "values_left_out".
  nlohmann::json printed() const;

 private:
  bool nccl_tests_;
  std::optional<std::regex> begin_, iteration_;
  bool begun_ = false;
  NcclTestsTable table_;
  std::vector<NcclTestsLine> rows_;
  std::vector<double> values_;
  std::string last_line_, last_error_;
};

}  // namespace r2bench
