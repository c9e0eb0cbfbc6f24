// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/problem.h"

#include <algorithm>

namespace r2bench {

namespace {

constexpr size_t kShownColumns = 160;
constexpr size_t kShownMessage = 2000;
constexpr size_t kShownProblems = 40;

/// As a terminal may have it: what a file holds must not move its cursor or change its colours.
std::string shown(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f') c = '?';
  return text;
}

/// The beginning of the character in UTF-8 of which text[at] is a byte; `at` where it is none.
size_t character_begin(const std::string& text, size_t at) {
  size_t begin = at;
  while (begin > 0 && at - begin < 3 && begin < text.size() && (text[begin] & 0xC0) == 0x80) --begin;
  return begin < text.size() && (text[begin] & 0xC0) == 0x80 ? at : begin;
}

/// The part of a long line around `column` (from 1; 0: its beginning), which becomes the column in that part.
std::string part_around(const std::string& line, int& column) {
  if (line.size() <= kShownColumns) return line;
  const size_t at = column > 0 ? std::min(size_t(column) - 1, line.size()) : 0;
  const size_t from = character_begin(line, at > kShownColumns / 2 ? at - kShownColumns / 2 : 0);
  const size_t end = character_begin(line, std::min(from + kShownColumns, line.size()));
  if (column > 0) column = int(at - from) + 1 + (from > 0 ? 3 : 0);
  return (from > 0 ? "..." : "") + line.substr(from, end - from) + (end < line.size() ? "..." : "");
}

}  // namespace

std::string to_string(const Problem& problem) {
  std::string text = problem.file;
  if (problem.line > 0) {
    text += ":" + std::to_string(problem.line);
    if (problem.column > 0) text += ":" + std::to_string(problem.column);
  }
  const size_t end = character_begin(problem.message, std::min(problem.message.size(), kShownMessage));
  text += ": " + shown(problem.message.substr(0, end)) + (end < problem.message.size() ? "..." : "") + "\n";
  if (problem.source_line.empty()) return text;
  const std::string number = std::to_string(problem.line);
  int column = problem.column;
  const std::string line = shown(part_around(problem.source_line, column));
  text += "  " + number + " | " + line + "\n";
  if (column > 0) {
    // Tabs are kept under tabs, so that the caret stands right whatever the terminal makes of them.
    std::string lead;
    for (size_t i = 0; i + 1 < size_t(column) && i < line.size(); ++i) lead += line[i] == '\t' ? '\t' : ' ';
    text += "  " + std::string(number.size(), ' ') + " | " + lead + "^\n";
  }
  return text;
}

ScenarioError::ScenarioError(std::vector<Problem> problems) : problems_(std::move(problems)) {
  std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
    if (a.file != b.file) return a.file < b.file;
    return a.line != b.line ? a.line < b.line : a.column < b.column;
  });
  const size_t told = std::min(problems_.size(), kShownProblems);
  for (size_t i = 0; i < told; ++i) text_ += to_string(problems_[i]);
  if (const size_t more = problems_.size() - told; more > 0)
    text_ += "and " + std::to_string(more) + " more\n";
}

}  // namespace r2bench
