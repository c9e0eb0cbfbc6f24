// SPDX-License-Identifier: Apache-2.0
// What is wrong with a scenario, where, and what would be right. All problems of a file are collected and
// thrown together, so that a user corrects them in one go.
#pragma once

#include <exception>
#include <string>
#include <vector>

namespace r2bench {

struct Problem {
  std::string file;  ///< or "--set key=value"
  int line = 0;      ///< from 1; 0 = the file as a whole
  int column = 0;    ///< from 1; 0 = the line as a whole
  std::string message;
  std::string source_line;  ///< the offending line as written; may be empty
};

/// `file:line:column: message`, then the offending line with a caret under the column.
std::string to_string(const Problem& problem);

class ScenarioError : public std::exception {
 public:
  explicit ScenarioError(std::vector<Problem> problems);
  const std::vector<Problem>& problems() const { return problems_; }
  /// The first 40 of them.
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::vector<Problem> problems_;
  std::string text_;
};

}  // namespace r2bench
