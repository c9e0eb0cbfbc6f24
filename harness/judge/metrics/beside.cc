// SPDX-License-Identifier: Apache-2.0
// How the two sides of a job compare whose operations take turns.
#include "harness/judge/beside.h"

#include "harness/base/format.h"
#include "harness/judge/metric.h"

namespace r2bench {
namespace {

SidesCompared sides_of(const Measured& m) { return compare_sides(m.mode, size_t(m.scenario.workload.iters)); }

}  // namespace

namespace metrics_of {

std::vector<Metric> beside() {
  return {
      {.info = {.name = "beside_ratio",
                .meaning = "two sides in one job: median time of the mode's operations divided by that of "
                           "the other side's, median over the pairs of communicators; operations count "
                           "that begin 500 ms after the last fault took effect or later",
                .needs = {.beside = true},
                .compared = Compared{.better = Better::kLower}},
       .wanted = "a ratio",
       .value =
           [](const Measured& m) {
             const SidesCompared sides = sides_of(m);
             if (!sides.ratio) return Value::none(sides.why_not);
             return Value::of(*sides.ratio, fixed(*sides.ratio, 4) + " (" + std::to_string(sides.operations) +
                                                " operations, beside " + m.mode.beside->against + ")");
           }},
      {.info = {.name = "beside_operations",
                .meaning = "number of operations that beside_ratio counts, half of them of each side",
                .needs = {.beside = true}},
       .wanted = "a count",
       .value =
           [](const Measured& m) {
             if (!m.mode.beside) return Value::none(sides_of(m).why_not);
             return Value::of_count(sides_of(m).operations);
           }},
  };
}

}  // namespace metrics_of
}  // namespace r2bench
