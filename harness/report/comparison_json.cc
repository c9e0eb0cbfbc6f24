// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/base/format.h"
#include "harness/report/comparison_report.h"
#include "harness/report/comparison_words.h"

namespace r2bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

bool has_number(const ComparisonRow& row) { return !row.is_fact && row.after && std::isfinite(*row.after); }

std::string unit_of(const ComparisonRow& row) { return row.unit.empty() ? "ratio" : row.unit; }

}  // namespace

OrderedJson benchmark_action_json(const SampleComparison& comparison, Better better) {
  OrderedJson all = OrderedJson::array();
  for (const ComparisonRow& row : comparison.rows) {
    if (!has_number(row) || row.better != better) continue;
    OrderedJson entry = {{"name", row.scenario + "/" + row.mode + "/" + row.metric},
                         {"unit", unit_of(row)},
                         {"value", *row.after}};
    if (row.why.empty()) entry["range"] = "± " + short_number(row.floor);
    entry["extra"] = std::string(name(row.change)) + ", " + std::to_string(row.n_after) + " samples";
    all.push_back(std::move(entry));
  }
  return all;
}

OrderedJson bencher_json(const SampleComparison& comparison) {
  OrderedJson all = OrderedJson::object();
  for (const ComparisonRow& row : comparison.rows) {
    if (!has_number(row)) continue;
    OrderedJson measure = {{"value", *row.after}};
    if (row.why.empty()) {
      measure["lower_value"] = *row.after - row.floor;
      measure["upper_value"] = *row.after + row.floor;
    }
    all[row.scenario + "/" + row.mode][row.metric + (row.unit.empty() ? "" : " (" + row.unit + ")")] =
        std::move(measure);
  }
  return all;
}

OrderedJson comparison_json(const SampleComparison& comparison) {
  const auto number = [](double value) {
    return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
  };
  OrderedJson rows = OrderedJson::array();
  for (const ComparisonRow& row : comparison.rows) {
    OrderedJson entry = {
        {"scenario", row.scenario}, {"mode", row.mode}, {"metric", row.metric}, {"change", name(row.change)}};
    if (!row.why.empty()) entry["why"] = row.why;
    if (!row.is_fact) {
      entry["unit"] = row.unit;
      entry["n"] = {row.n_before, row.n_after};
      entry["before"] = row.before ? number(*row.before) : OrderedJson(nullptr);
      entry["after"] = row.after ? number(*row.after) : OrderedJson(nullptr);
    }
    if (!row.is_fact && row.why.empty()) {
      entry["worse_by"] = number(row.worse_by);
      entry["interval"] = {number(row.interval.low), number(row.interval.high)};
      entry["floor"] = row.floor;
      entry["floor_from"] = row.floor_from;
      entry["p"] = row.p;
    }
    rows.push_back(std::move(entry));
  }
  return {{"change", name(comparison.change())},
          {"before", comparison.before},
          {"after", comparison.after},
          {"rows", std::move(rows)},
          {"notes", comparison.notes}};
}

std::vector<std::pair<std::string, std::string>> comparison_files(const SampleComparison& comparison) {
  return {{"comparison.txt", comparison_text(comparison)},
          {"comparison.md", comparison_markdown(comparison)},
          {"comparison.json", comparison_json(comparison).dump(1) + "\n"},
          {"junit.xml", comparison_junit(comparison)},
          {"benchmark_smaller.json", benchmark_action_json(comparison, Better::kLower).dump(1) + "\n"},
          {"benchmark_bigger.json", benchmark_action_json(comparison, Better::kHigher).dump(1) + "\n"},
          {"bencher.json", bencher_json(comparison).dump(1) + "\n"}};
}

}  // namespace r2bench
