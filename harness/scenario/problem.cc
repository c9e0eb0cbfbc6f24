// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/problem.h"

#include <algorithm>

namespace r2bench {

std::string to_string(const Problem& problem) {
  std::string text = problem.file;
  if (problem.line > 0) {
    text += ":" + std::to_string(problem.line);
    if (problem.column > 0) text += ":" + std::to_string(problem.column);
  }
  text += ": " + problem.message + "\n";
  if (problem.source_line.empty()) return text;
  const std::string number = std::to_string(problem.line);
  text += "  " + number + " | " + problem.source_line + "\n";
  if (problem.column > 0) {
    // Tabs are kept under tabs, so that the caret stands right whatever the terminal makes of them.
    std::string lead;
    for (int i = 0; i + 1 < problem.column && i < static_cast<int>(problem.source_line.size()); ++i) {
      lead += problem.source_line[static_cast<size_t>(i)] == '\t' ? '\t' : ' ';
    }
    text += "  " + std::string(number.size(), ' ') + " | " + lead + "^\n";
  }
  return text;
}

ScenarioError::ScenarioError(std::vector<Problem> problems) : problems_(std::move(problems)) {
  std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
    if (a.file != b.file) return a.file < b.file;
    return a.line != b.line ? a.line < b.line : a.column < b.column;
  });
  for (const Problem& problem : problems_) text_ += to_string(problem);
}

}  // namespace r2bench
