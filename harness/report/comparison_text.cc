// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/base/format.h"
#include "harness/report/comparison_report.h"
#include "harness/report/comparison_words.h"
#include "harness/report/table.h"

namespace r2bench {

std::string comparison_text(const SampleComparison& comparison) {
  std::string text = "Before: " + comparison.before + "\nNow:    " + comparison.after + "\n\n";
  using Align = Table::Align;
  Table table({{"scenario", "", Align::kLeft},
               {"mode", "", Align::kLeft},
               {"metric", "", Align::kLeft},
               {"before", "(median)"},
               {"now", "(median)"},
               {"worse by", "(shift)"},
               {"95 %", "(bootstrap)"},
               {"floor", "(noise)"},
               {"p", "(one-sided)"},
               {"samples", ""},
               {"", "", Align::kLeft}});
  for (const ComparisonRow& row : comparison.rows) {
    if (row.is_fact && row.change == Shift::kSame) continue;
    const bool tested = !row.is_fact && row.why.empty();
    table.add({row.scenario, row.mode, row.metric, value_text(row, row.before), value_text(row, row.after),
               tested ? signed_text(row.worse_by) : "–",
               tested ? signed_text(row.interval.low) + " … " + signed_text(row.interval.high) : "–",
               tested ? short_number(row.floor) : "–", tested ? p_text(row.p) : "–",
               row.is_fact ? "–" : std::to_string(row.n_before) + "/" + std::to_string(row.n_after),
               name(row.change)});
  }
  for (const std::string& line : table.header("  ")) text += line + "\n";
  for (const std::string& line : table.rows("  ")) text += line + "\n";
  text += "\n";
  for (const ComparisonRow& row : comparison.rows)
    if (row.change == Shift::kWorse || row.change == Shift::kUnknown)
      text += std::string(name(row.change)) + ": " + sentence(row) + "\n";
  for (const std::string& note : comparison.notes) text += "note: " + note + "\n";
  text += "Comparison: " + verdict_text(comparison) + "\n";
  return text;
}

}  // namespace r2bench
