// SPDX-License-Identifier: Apache-2.0
#include "harness/base/format.h"
#include "harness/report/comparison_report.h"
#include "harness/report/comparison_words.h"

namespace r2bench {
namespace {

/// Within a cell of a table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '\\' || c == '`' || c == '*' || c == '_' || c == '<') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

/// The data of a workflow command: what would end it is percent-encoded.
std::string command_data(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '%')
      result += "%25";
    else if (c == '\r')
      result += "%0D";
    else if (c == '\n')
      result += "%0A";
    else
      result += c;
  }
  return result;
}

const char* mark(Shift change) {
  // clang-format off
  switch (change) {
    case Shift::kSame: return "✓ same";
    case Shift::kBetter: return "✓ better";
    case Shift::kWorse: return "✗ **worse**";
    case Shift::kUnknown: return "? unknown";
  }
  // clang-format on
  return "? unknown";
}

}  // namespace

std::string comparison_markdown(const SampleComparison& comparison) {
  std::string text = "### r2bench: " + cell(verdict_text(comparison)) + "\n\n";
  text += cell(comparison.before) + " → " + cell(comparison.after) + "\n\n";
  text += "| scenario | mode | metric | before | now | worse by (95 %) | noise floor | p | samples | |\n";
  text += "|---|---|---|--:|--:|--:|--:|--:|--:|---|\n";
  for (const ComparisonRow& row : comparison.rows) {
    const bool tested = !row.is_fact && row.why.empty();
    const std::string unit = row.unit.empty() ? "" : " " + row.unit;
    const auto with_unit = [&](const std::optional<double>& value) {
      return value_text(row, value) + (value ? unit : "");
    };
    text += "| " + cell(row.scenario) + " | " + cell(row.mode) + " | " + cell(row.metric) + " | ";
    text += with_unit(row.before) + " | " + with_unit(row.after) + " | ";
    text += (tested ? signed_text(row.worse_by) + unit + " (" + signed_text(row.interval.low) + " … " +
                          signed_text(row.interval.high) + ")"
                    : "") +
            " | " + (tested ? short_number(row.floor) + unit : "") + " | " + (tested ? p_text(row.p) : "") +
            " | ";
    text += (row.is_fact ? "" : std::to_string(row.n_before) + "/" + std::to_string(row.n_after)) + " | ";
    text += std::string(mark(row.change)) + (row.why.empty() ? "" : ": " + cell(row.why)) + " |\n";
  }
  if (!comparison.notes.empty()) text += "\n";
  for (const std::string& note : comparison.notes) text += "* " + cell(note) + "\n";
  return text + "\n";
}

std::string comparison_annotations(const SampleComparison& comparison) {
  std::string text;
  for (const ComparisonRow& row : comparison.rows) {
    if (row.change != Shift::kWorse && row.change != Shift::kUnknown) continue;
    text += row.change == Shift::kWorse ? "::error title=r2bench regression::"
                                        : "::warning title=r2bench unknown::";
    text += command_data(sentence(row)) + "\n";
  }
  return text;
}

}  // namespace r2bench
