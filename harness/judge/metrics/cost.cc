// SPDX-License-Identifier: Apache-2.0
// What resilience costs where nothing fails.
#include "harness/base/format.h"
#include "harness/judge/metric.h"
#include "harness/measure/statistics.h"

namespace r2bench {
namespace {

Value bound_of(double mean, double upper, size_t pairs, double lower) {
  const std::string count = std::to_string(pairs) + " pairs";
  Value value = Value::of(upper, fixed(upper, 2) + " % (mean " + fixed(mean, 2) + " %, " + count + ")");
  value.other_bound = lower;
  value.undecided = count + " leave it between " + fixed(*value.other_bound, 2) + " and " + fixed(upper, 2) +
                    " %; four times as many halve that: --set pairs=" + std::to_string(4 * pairs);
  return value;
}

Value overhead(const RunResult& result, const ModeResult& mode, bool busbw) {
  for (const Overhead& overhead : result.overheads) {
    if (overhead.mode != mode.mode) continue;
    if (overhead.pairs < 2) return Value::none("fewer than two pairs were measured");
    const double upper = busbw ? overhead.loss_upper95_pct : overhead.upper95_pct;
    const double mean = busbw ? overhead.loss_mean_pct : overhead.mean_pct;
    return bound_of(mean, upper, overhead.pairs, lower95_pct(mean, upper, overhead.mean_of, busbw));
  }
  return Value::none("no pair was measured");
}

Value cpu_loss(const RunResult& result, const ModeResult& mode) {
  for (const Overhead& overhead : result.overheads) {
    if (overhead.mode != mode.mode) continue;
    if (overhead.cpu_pairs < 2) return Value::none("the CPU time of fewer than two pairs is known");
    const double mean = overhead.cpu_mean_pct, upper = overhead.cpu_upper95_pct;
    return bound_of(mean, upper, overhead.cpu_pairs, lower95_pct(mean, upper, overhead.mean_of, false));
  }
  return Value::none("no pair was measured");
}

}  // namespace

namespace metrics_of {

std::vector<Metric> cost() {
  return {
      {.info = {.name = "overhead_pct",
                .unit = Unit::kPercent,
                .meaning =
                    "without a fault: additional time compared with the reference mode, upper 95 % bound "
                    "over the pairs",
                .needs = {.pairs = true},
                .compared = Compared{Better::kLower, Compared::Each::kPair}},
       .wanted = "a percentage",
       .value = [](const Measured& m) { return overhead(m.result, m.mode, false); }},
      {.info = {.name = "busbw_loss_pct",
                .unit = Unit::kPercent,
                .meaning = "without a fault: bus bandwidth lost compared with the reference mode, upper 95 % "
                           "bound over the pairs",
                .needs = {.pairs = true}},
       .wanted = "a percentage",
       .value = [](const Measured& m) { return overhead(m.result, m.mode, true); }},
      {.info = {.name = "cpu_loss_pct",
                .unit = Unit::kPercent,
                .meaning = "without a fault: additional CPU time per byte compared with the reference mode, "
                           "upper 95 % bound over the pairs",
                .needs = {.pairs = true, .trace = true, .deliveries = true}},
       .wanted = "a percentage",
       .value = [](const Measured& m) { return cpu_loss(m.result, m.mode); }},
      {.info = {.name = "cpu_per_gb",
                .meaning = "CPU seconds of all ranks per 10^9 bytes delivered",
                .needs = {.trace = true, .deliveries = true},
                .compared = Compared{Better::kLower, Compared::Each::kPair, "s/GB"}},
       .wanted = "a number",
       .value =
           [](const Measured& m) {
             if (!m.mode.cpu.known()) return Value::none("the CPU time is not known");
             return Value::of(m.mode.cpu.per_gb(), short_number(m.mode.cpu.per_gb()) + " s/GB");
           }},
  };
}

}  // namespace metrics_of
}  // namespace r2bench
