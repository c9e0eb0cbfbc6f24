// SPDX-License-Identifier: Apache-2.0
// `expect:` — what each mode, or all of them, must show.
#include <algorithm>

#include "harness/scenario/sections.h"
#include "harness/scenario/suggest.h"

namespace r2bench {
namespace {

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const MetricInfo& metric : metrics()) names.push_back(metric.name);
  return names;
}

/// Where the text of a scalar starts within its node: after the quote, when there is one.
size_t text_offset(const Document& document, const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  if (mark.is_null()) return 0;
  const std::string& line = document.line_text(mark.line + 1);
  const auto column = static_cast<size_t>(mark.column);
  return column < line.size() && (line[column] == '"' || line[column] == '\'') ? 1 : 0;
}

void read_one(Document& document, const std::string& mode, const YAML::Node& key, const YAML::Node& value,
              std::vector<Expectation>& result) {
  const std::string& metric_name = key.Scalar();
  const MetricInfo* metric = find_metric(metric_name);
  if (metric == nullptr) {
    const std::string with_statistic = metric_name + ".max";
    if (find_metric(with_statistic) != nullptr) {
      document.report(key, "'" + metric_name + "' is many values; say which: " + metric_name +
                               ".p50, .p95, .p99 or .max");
    } else {
      const std::string suggestion = did_you_mean(metric_name, metric_names());
      document.report(key,
                      "unknown metric '" + metric_name + "'" +
                          (suggestion.empty() ? "; the metrics are " + list_of(metric_names()) : suggestion));
    }
    return;
  }
  if (!value.IsScalar()) {
    document.report(value, "'" + metric_name + "' must be an expectation such as \"<= 50 ms\", but is " +
                               std::string(kind_of(value)));
    return;
  }
  Expectation expectation;
  expectation.mode = mode;
  expectation.metric = metric_name;
  expectation.wanted = value.Scalar();
  const YAML::Mark mark = value.Mark();
  expectation.line = mark.is_null() ? 0 : mark.line + 1;
  expectation.column = mark.is_null() ? 0 : mark.column + 1;
  try {
    expectation.condition = parse_condition(*metric, expectation.wanted);
    result.push_back(std::move(expectation));
  } catch (const ExpressionError& error) {
    document.report(value, error.message, error.column + text_offset(document, value));
  }
}

}  // namespace

void read_expectations(Document& document, const YAML::Node& node,
                       const std::vector<std::string>& file_labels, Scenario& scenario) {
  if (!node.IsDefined() || node.IsNull()) return;
  if (!node.IsMap()) {
    document.report(node, std::string("'expect' must be a map of modes, but is ") + kind_of(node));
    return;
  }
  std::vector<std::string> words = file_labels;
  words.insert(words.begin(), "all");
  std::vector<std::string> seen;
  for (const auto& entry : node) {
    const std::string mode = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (std::find(words.begin(), words.end(), mode) == words.end()) {
      const std::string suggestion = did_you_mean(mode, words);
      const char* hint = find_metric(mode) != nullptr ? "; a metric stands under 'all' or under a mode" : "";
      document.report(entry.first, "'" + mode + "' is no mode of this scenario" +
                                       (*hint != '\0'        ? hint
                                        : suggestion.empty() ? "; it has " + list_of(words)
                                                             : suggestion));
      continue;
    }
    if (std::find(seen.begin(), seen.end(), mode) != seen.end()) {
      document.report(entry.first, "'" + mode + "' is given twice in 'expect'");
    }
    seen.push_back(mode);
    if (entry.second.IsNull()) continue;
    if (!entry.second.IsMap()) {
      document.report(entry.second, "'" + mode + "' must be a map of metrics, but is " +
                                        std::string(kind_of(entry.second)));
      continue;
    }
    std::vector<Expectation> read;
    std::vector<std::string> given;
    for (const auto& metric : entry.second) {
      if (!metric.first.IsScalar()) {
        document.report(metric.first, "a metric must be a word");
        continue;
      }
      if (std::find(given.begin(), given.end(), metric.first.Scalar()) != given.end()) {
        document.report(metric.first, "'" + metric.first.Scalar() + "' is given twice for '" + mode + "'");
      }
      given.push_back(metric.first.Scalar());
      read_one(document, mode, metric.first, metric.second, read);
    }
    if (mode != "all" && scenario.find_mode(mode) == nullptr) continue;  // left out by --modes
    scenario.expectations.insert(scenario.expectations.end(), read.begin(), read.end());
  }
}

}  // namespace r2bench
