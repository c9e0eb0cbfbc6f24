// SPDX-License-Identifier: Apache-2.0
// Times of the sampled faults: a fault without one counts as one that took for ever.
#include <algorithm>
#include <limits>

#include "harness/base/format.h"
#include "harness/judge/fault_times.h"
#include "harness/judge/metric.h"

namespace r2bench {
namespace {

Value time_value(const ModeResult& mode, const FaultTime& time, const std::string& statistic) {
  const Distribution& values = mode.*time.of_all;
  if (mode.faults_sampled == 0) return Value::none(why_no_sample(mode));
  size_t judged = mode.faults_sampled;
  for (const FaultSample& fault : mode.faults) {
    if (!fault.sampled || can_have(fault, time.name)) continue;
    if (--judged == 0) return Value::none("no sample: " + fault.why_no_rate_before);
  }
  const size_t without = judged - std::min(values.n, judged);
  const size_t never =
      time.of_all == &ModeResult::recover_ms ? std::max(mode.faults_unrecovered, without) : without;
  if (never > 0) {
    // A recovery that never came is worse than any that did: it counts as one without end.
    return Value::of(std::numeric_limits<double>::infinity(),
                     "never for " + std::to_string(never) + " of " + std::to_string(judged) + " faults");
  }
  const double value = statistic == "p50"   ? values.p50
                       : statistic == "p95" ? values.p95
                       : statistic == "p99" ? values.p99
                                            : values.max;
  return Value::of(value,
                   milliseconds(value) + (values.n > 1 ? " (of " + std::to_string(values.n) + ")" : ""));
}

std::vector<Metric> family(const FaultTime& time) {
  const std::string name = time.name;
  const auto values = time.of_all;
  const Needs needs = {.fault = true, .trace = true, .deliveries = true};
  std::vector<Metric> metrics;
  for (const char* statistic : {"p50", "p95", "p99", "max"})
    metrics.push_back({.info = {.name = name + "." + statistic,
                                .unit = Unit::kMilliseconds,
                                .meaning = time.meaning,
                                .needs = needs,
                                .compared = Compared{Better::kLower, Compared::Each::kFault}},
                       .wanted = "a time",
                       .value = [&time, statistic = std::string(statistic)](
                                    const Measured& m) { return time_value(m.mode, time, statistic); },
                       .grows = std::string(statistic) == "max",
                       .spans_hosts = time.spans_hosts});
  metrics.push_back({.info = {.name = name + ".n", .meaning = "number of samples of " + name, .needs = needs},
                     .wanted = "a count",
                     .value = [values](const Measured& m) { return Value::of_count((m.mode.*values).n); },
                     .grows = true});
  return metrics;
}

}  // namespace

namespace metrics_of {

std::vector<Metric> times() {
  std::vector<Metric> all;
  for (const FaultTime& time : kFaultTimes)
    for (Metric& metric : family(time)) all.push_back(std::move(metric));
  return all;
}

}  // namespace metrics_of
}  // namespace r2bench
