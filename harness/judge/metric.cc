// SPDX-License-Identifier: Apache-2.0
// All metrics: what the files of harness/judge/metrics declare. The list of those files is made by CMake.
#include "harness/judge/metric.h"

#define METRIC_FILE(name)         \
  namespace r2bench::metrics_of { \
  std::vector<Metric> name();     \
  }
#include "harness/judge/metric_files.inc"
#undef METRIC_FILE

namespace r2bench {

const std::vector<Metric>& all_metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> metrics;
    const auto add = [&](const std::vector<Metric>& of_file) {
      metrics.insert(metrics.end(), of_file.begin(), of_file.end());
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
