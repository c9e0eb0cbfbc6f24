// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/held_up.h"

#include "harness/base/format.h"

namespace r2bench {

std::string held_up(const Throughput& t) {
  constexpr double kMostOfLimit = 1.1;    // good runs reach 1.06: an operation costs more than port time
  constexpr double kLeastOfPorts = 0.85;  // good runs reach 0.91 to 0.99
  if (t.rounds_measured > 0 && t.limit > 0 && t.retained > kMostOfLimit * t.limit)
    return "more was retained than the remaining NICs can carry (" + short_number(t.retained) +
           " of a limit of " + short_number(t.limit) + "): something else had held the job up before";
  // The mean of several jobs hides one that was held up.
  if (t.most_of_limit > kMostOfLimit)
    return "in one of its jobs more was retained than the remaining NICs can carry (" +
           short_number(t.most_of_limit) + " times the limit): something else had held that job up before";
  const double before_gbps = t.least_before_gbps > 0 ? t.least_before_gbps : t.before_gbps;
  if (t.ports_gbps > 0 && before_gbps > 0 && before_gbps < kLeastOfPorts * t.ports_gbps)
    return "the ports carry " + short_number(t.ports_gbps) + " Gbit/s, and before the fault " +
           short_number(before_gbps) + " were delivered" +
           (t.least_before_gbps > 0 ? " in one of its jobs" : "") + ": something else held the job up";
  return "";
}

std::string held_up_at_faults(const Throughput& t) { return t.rounds > 0 ? held_up(t) : ""; }

}  // namespace r2bench
