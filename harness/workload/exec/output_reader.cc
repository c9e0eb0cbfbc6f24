// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/exec/output_reader.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <span>
#include <vector>

namespace r2bench {
namespace {

nlohmann::json side(const NcclTestsSide& side) {
  return {{"time_us", side.time_us},
          {"algbw_gbytes", side.algbw},
          {"busbw_gbytes", side.busbw},
          {"wrong", side.wrong ? nlohmann::json(*side.wrong) : nlohmann::json()}};
}

std::optional<std::regex> expression(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return std::regex(text);
}

/// The last line of a traceback of Python, "NAME.SomeError: TEXT", which torchrun puts behind "[rank0]: "; ""
/// if the line is another one.
std::string error_in(const std::string& line) {
  for (const char* failure : {": Test CUDA failure ", ": Test NCCL failure "})
    if (line.find(failure) != std::string::npos) return line;
  const size_t after_rank = line.starts_with("[rank") ? line.find("]: ") : std::string::npos;
  const std::string text = after_rank == std::string::npos ? line : line.substr(after_rank + 3);
  const size_t colon = text.find(": ");
  if (colon == std::string::npos || text.find_first_not_of(" \t\r", colon + 1) == std::string::npos)
    return "";
  const std::string name = text.substr(0, colon);
  const bool is_name =
      std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
  return is_name && (name.ends_with("Error") || name.ends_with("Exception")) ? text : "";
}

// Of what is told of an output, so that one message holds it (4 MiB: launch/message_socket.h).
constexpr size_t kMostRows = 8'000, kMostValues = 100'000;
constexpr size_t kLongestSearched = 4096;  // std::regex recurses once per character

}  // namespace

OutputReader::OutputReader(const ExecOptions& options)
    : nccl_tests_(options.nccl_tests),
      begin_(expression(options.begin)),
      iteration_(expression(options.iteration)) {}

OutputReader::Found OutputReader::read(const std::string& whole) {
  const std::string line = whole.substr(0, kLongestSearched);
  if (std::ranges::any_of(line, [](unsigned char c) { return std::isalnum(c) || c >= 0x80; }))
    last_line_ = line;
  if (std::string error = error_in(line); !error.empty()) last_error_ = std::move(error);
  Found found;
  if (nccl_tests_) {
    const auto row = table_.read(line);
    if (row) rows_.push_back(*row);
    found.iteration = row.has_value();
    found.begun = !begun_ && table_.begun();
  }
  if (begin_ && !begun_) found.begun = std::regex_search(line, *begin_);
  begun_ = begun_ || found.begun || begins_at_once();
  if (std::smatch match; iteration_ && begun_ && std::regex_search(line, match, *iteration_)) {
    found.iteration = true;
    if (match.size() > 1) {
      const std::string text = match[1].str();
      char* end = nullptr;
      const double value = std::strtod(text.c_str(), &end);
      if (end != text.c_str()) found.value = value;
    }
    if (found.value) values_.push_back(*found.value);
  }
  return found;
}

std::string OutputReader::last_words() const {
  if (!last_error_.empty()) return "its last error: " + last_error_;
  return last_line_.empty() ? "" : "its last line: " + last_line_;
}

uint64_t OutputReader::wrong() const {
  uint64_t wrong = 0;
  for (const NcclTestsLine& row : rows_) {
    wrong += row.out_of_place.wrong.value_or(0);
    if (row.in_place) wrong += row.in_place->wrong.value_or(0);
  }
  // Versions that count no elements still say whether a check failed.
  return wrong ? wrong : table_.out_of_bounds().value_or(0);
}

uint64_t OutputReader::checked() const {
  uint64_t checked = 0;
  for (const NcclTestsLine& row : rows_) {
    if (row.out_of_place.wrong) checked += row.count;
    if (row.in_place && row.in_place->wrong) checked += row.count;
  }
  return checked;
}

nlohmann::json OutputReader::printed() const {
  nlohmann::json printed = nlohmann::json::object();
  if (nccl_tests_) {
    const size_t told = std::min(rows_.size(), kMostRows);
    if (told < rows_.size()) printed["rows_left_out"] = rows_.size() - told;
    printed["rows"] = nlohmann::json::array();
    for (const NcclTestsLine& row : std::span(rows_).first(told))
      printed["rows"].push_back({{"size_bytes", row.size_bytes},
                                 {"count", row.count},
                                 {"type", row.type},
                                 {"redop", row.redop},
                                 {"root", row.root},
                                 {"out_of_place", side(row.out_of_place)},
                                 {"in_place", row.in_place ? side(*row.in_place) : nlohmann::json()}});
    if (table_.average_busbw()) printed["average_busbw_gbytes"] = *table_.average_busbw();
    if (table_.out_of_bounds()) printed["out_of_bounds"] = *table_.out_of_bounds();
  }
  const auto values = std::span(values_).first(std::min(values_.size(), kMostValues));
  if (values.size() < values_.size()) printed["values_left_out"] = values_.size() - values.size();
  if (!values.empty()) printed["values"] = std::vector<double>(values.begin(), values.end());
  return printed;
}

}  // namespace r2bench
