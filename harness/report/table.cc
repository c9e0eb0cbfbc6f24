// SPDX-License-Identifier: Apache-2.0
#include "harness/report/table.h"

#include <algorithm>

#include "harness/base/format.h"

namespace r2bench {

std::vector<size_t> Table::widths() const {
  std::vector<size_t> result;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t columns = std::max(width(columns_[i].title), width(columns_[i].unit));
    for (const auto& row : rows_) columns = std::max(columns, width(row[i]));
    result.push_back(columns);
  }
  return result;
}

std::string Table::line(const std::string& indent, const std::vector<std::string>& cells) const {
  const std::vector<size_t> columns = widths();
  std::string text = indent;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) text += "  ";
    text += columns_[i].align == Align::kLeft ? left(cells[i], columns[i]) : right(cells[i], columns[i]);
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

std::vector<std::string> Table::header(const std::string& indent) const {
  std::vector<std::string> titles;
  std::vector<std::string> units;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    units.push_back(column.unit);
  }
  return {line(indent, titles), line(indent, units)};
}

std::vector<std::string> Table::rows(const std::string& indent) const {
  std::vector<std::string> result;
  for (const auto& row : rows_) result.push_back(line(indent, row));
  return result;
}

}  // namespace r2bench
