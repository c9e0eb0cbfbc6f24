// SPDX-License-Identifier: Apache-2.0
// Columns that line up, for terminals. Cells may hold UTF-8; colours are put around whole lines, not in
// cells.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace r2bench {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    std::string unit;  ///< second header line; may be empty
    Align align = Align::kRight;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// Header lines, then one line per row, each starting with `indent` and ending without spaces.
  std::vector<std::string> header(const std::string& indent) const;
  std::vector<std::string> rows(const std::string& indent) const;

 private:
  std::vector<size_t> widths() const;
  std::string line(const std::string& indent, const std::vector<std::string>& cells) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace r2bench
