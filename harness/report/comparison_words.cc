// SPDX-License-Identifier: Apache-2.0
#include "harness/report/comparison_words.h"

#include <algorithm>
#include <cmath>

#include "harness/base/format.h"

namespace r2bench {

std::string value_text(const ComparisonRow&, const std::optional<double>& value) {
  if (!value) return "–";
  return std::isfinite(*value) ? short_number(*value) : "never";
}

std::string signed_text(double value) {
  if (!std::isfinite(value)) return value > 0 ? "never" : "-never";
  return (value < 0 ? "-" : "+") + short_number(std::abs(value));
}

std::string p_text(double p) { return p < 0.001 ? "< 0.001" : fixed(p, 3); }

std::string title(const ComparisonRow& row) { return row.scenario + " " + row.mode + " " + row.metric; }

std::string sentence(const ComparisonRow& row) {
  if (row.is_fact || !row.why.empty()) return title(row) + ": " + row.why;
  const std::string unit = row.unit.empty() ? "" : " " + row.unit;
  return title(row) + ": " + value_text(row, row.before) + unit + " before, " + value_text(row, row.after) +
         unit + " now; worse by " + signed_text(row.worse_by) + unit +
         " (95 %: " + signed_text(row.interval.low) + " to " + signed_text(row.interval.high) +
         "), noise floor " + short_number(row.floor) + unit + " (" + row.floor_from + "), p " + p_text(row.p);
}

std::string verdict_text(const SampleComparison& comparison) {
  const auto count = [&](Shift change) {
    return std::to_string(std::count_if(comparison.rows.begin(), comparison.rows.end(),
                                        [&](const ComparisonRow& row) { return row.change == change; }));
  };
  const std::string of = " of " + std::to_string(comparison.rows.size()) + " checks ";
  switch (comparison.change()) {
    case Shift::kWorse:
      return "fail, " + count(Shift::kWorse) + of + "worse";
    case Shift::kUnknown:
      if (comparison.rows.empty()) return "unknown, there is nothing to compare";
      return "unknown, " + count(Shift::kUnknown) + of + "cannot be told";
    case Shift::kSame:
    case Shift::kBetter:
      break;
  }
  return "pass, none" + of + "worse";
}

}  // namespace r2bench
