// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/exec/nccl_tests_table.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

namespace r2bench {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

template <typename Number>
std::optional<Number> whole(const std::string& word) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<double> number(const std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0') return std::nullopt;
  return value;
}

/// "# Out of bounds values : 0 OK" -> "0".
std::string behind_colon(const std::string& line) {
  const std::vector<std::string> words = words_of(line.substr(line.find(':') + 1));
  return words.empty() ? "" : words.front();
}

bool is_header(const std::vector<std::string>& words) {
  return words.size() >= 6 && words[0] == "size" && words[1] == "count" && words[2] == "type";
}

}  // namespace

std::optional<NcclTestsLine> NcclTestsTable::read(const std::string& line) {
  std::vector<std::string> words = words_of(line);
  if (!words.empty() && words.front() == "#") words.erase(words.begin());
  if (is_header(words)) {
    columns_ = words;
    return std::nullopt;
  }
  if (line.find("Out of bounds values") != std::string::npos)
    out_of_bounds_ = whole<uint64_t>(behind_colon(line));
  if (line.find("Avg bus bandwidth") != std::string::npos) average_busbw_ = number(behind_colon(line));
  if (columns_.empty() || words.size() < columns_.size() || line.find('#') != std::string::npos)
    return std::nullopt;

  NcclTestsLine row;
  std::vector<NcclTestsSide> sides;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const std::string &column = columns_[i], &word = words[i];
    const auto value = number(word);
    if (column == "size" || column == "count") {
      const auto exact = whole<uint64_t>(word);
      if (!exact) return std::nullopt;
      (column == "size" ? row.size_bytes : row.count) = *exact;
    } else if (column == "type") {
      row.type = word;
    } else if (column == "redop") {
      row.redop = word;
    } else if (column == "root") {
      row.root = whole<int>(word).value_or(-1);
    } else if (column == "time") {
      if (!value) return std::nullopt;
      sides.push_back({*value, 0, 0, std::nullopt});
    } else if (!sides.empty() && column == "algbw") {
      sides.back().algbw = value.value_or(0);
    } else if (!sides.empty() && column == "busbw") {
      sides.back().busbw = value.value_or(0);
    } else if (!sides.empty() && column == "#wrong" && value) {
      sides.back().wrong = uint64_t(*value);  // printed as %g: large counts are rounded
    }
  }
  if (sides.empty()) return std::nullopt;
  row.out_of_place = sides[0];
  if (sides.size() > 1) row.in_place = sides[1];
  return row;
}

}  // namespace r2bench
