// SPDX-License-Identifier: Apache-2.0
// All metrics: what the files of harness/judge/metrics declare. The list of those files is made by CMake.
#include "harness/judge/metric.h"

#include <algorithm>
#include <numeric>

#include "harness/base/format.h"

#define METRIC_FILE(name)         \
  namespace r2bench::metrics_of { \
  std::vector<Metric> name();     \
  }
#include "harness/judge/metric_files.inc"
#undef METRIC_FILE

namespace r2bench {
namespace {

std::vector<uint64_t> counts_by_round(const ModeResult& mode, const std::string& metric) {
  if (mode.rounds.size() < 2) return {mode.count(metric)};
  std::vector<uint64_t> counts;
  for (const Counts& round : mode.rounds) {
    const auto found = round.find(metric);
    counts.push_back(found == round.end() ? 0 : found->second);
  }
  return counts;
}

/// "2", "2 in each of 20 rounds", "1 … 3 in 20 rounds".
Value most_of(const std::vector<uint64_t>& counts) {
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  const std::string rounds = std::to_string(counts.size()) + " rounds";
  return Value::of(double(*most), counts.size() == 1 ? std::to_string(*most)
                                  : *least == *most  ? std::to_string(*most) + " in each of " + rounds
                                                    : std::to_string(*least) + " … " + std::to_string(*most) +
                                                          " in " + rounds);
}

std::string in_unit(double number, Unit unit) {
  if (unit == Unit::kMilliseconds) return milliseconds(number);
  return unit == Unit::kPercent ? fixed(number, 2) + " %" : short_number(number);
}

}  // namespace

Metric complete(Metric metric) {
  if (metric.is_counted())
    metric.by_round = [name = metric.info.name](const ModeResult& mode) {
      return counts_by_round(mode, name);
    };
  if (metric.by_round && !metric.value)
    metric.value = [by_round = metric.by_round](const Measured& m) { return most_of(by_round(m.mode)); };
  if (metric.measure)
    metric.value = [name = metric.info.name, unit = metric.info.unit,
                    why = metric.missing](const Measured& m) {
      const std::optional<double> number = m.mode.number(name);
      return number ? Value::of(*number, in_unit(*number, unit)) : Value::none(why);
    };
  return metric;
}

const std::vector<Metric>& all_metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> metrics;
    const auto add = [&](const std::vector<Metric>& of_file) {
      for (const Metric& metric : of_file) metrics.push_back(complete(metric));
    };
#define METRIC_FILE(name) add(metrics_of::name());
#include "harness/judge/metric_files.inc"
#undef METRIC_FILE
    return metrics;
  }();
  return all;
}

const Metric* metric_of(const std::string& name) {
  for (const Metric& metric : all_metrics())
    if (metric.info.name == name) return &metric;
  return nullptr;
}

const char* unit_of(const MetricInfo& metric) {
  switch (metric.unit) {
    case Unit::kMilliseconds:
      return "ms";
    case Unit::kPercent:
      return "%";
    case Unit::kNone:
      break;
  }
  return metric.compared ? metric.compared->unit : "";
}

/// What scenarios are read by (harness/scenario/expectation.h).
const std::vector<MetricInfo>& metrics() {
  static const std::vector<MetricInfo> all = [] {
    std::vector<MetricInfo> infos;
    for (const Metric& metric : all_metrics()) infos.push_back(metric.info);
    return infos;
  }();
  return all;
}

double pooled(const std::vector<double>& numbers, Pooled how) {
  const double sum = std::accumulate(numbers.begin(), numbers.end(), 0.0);
  switch (how) {
    case Pooled::kMost:
      return *std::max_element(numbers.begin(), numbers.end());
    case Pooled::kLeast:
      return *std::min_element(numbers.begin(), numbers.end());
    case Pooled::kSum:
      return sum;
    case Pooled::kMean:
      return sum / double(numbers.size());
  }
  return sum;
}

std::string why_no_sample(const ModeResult& mode) {
  for (const FaultSample& sample : mode.faults) {
    if (!sample.witnessed) return "no sample: the fault was never seen to take effect";
    if (!sample.sampled)
      return "no sample" + (sample.why_not_sampled.empty() ? "" : ": " + sample.why_not_sampled);
  }
  return mode.outcome == Outcome::kOk ? "no sample"
                                      : std::string("no sample: the job ended (") + name(mode.outcome) + ")";
}

std::vector<MetricLine> metric_lines() {
  std::vector<MetricLine> lines;
  for (const Metric& metric : all_metrics()) {
    MetricLine line = {metric.info.name, "", metric.wanted, metric.info.meaning};
    const size_t dot = line.name.find('.');
    if (dot != std::string::npos && line.name.substr(dot) != ".n") {
      const std::string statistic = line.name.substr(dot);
      line.name.resize(dot);
      if (!lines.empty() && lines.back().name == line.name) {
        lines.back().statistics += " " + statistic;
        continue;
      }
      line.statistics = statistic;
    }
    for (const std::string& word : metric.info.words) line.wanted += (line.wanted.empty() ? "" : ", ") + word;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string metrics_as_markdown() {
  std::string text = "| metric | right side | meaning |\n|---|---|---|\n";
  for (const MetricLine& line : metric_lines()) {
    text += "| `" + line.name + "`";
    if (!line.statistics.empty()) text += " with `" + line.statistics + "`";
    text += " | " + line.wanted + " | " + line.meaning + " |\n";
  }
  return text;
}

}  // namespace r2bench
