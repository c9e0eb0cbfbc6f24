// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/fault_times.h"

#include <vector>

#include "harness/measure/statistics.h"

namespace r2bench {

std::optional<double> time_of(const FaultSample& fault, const std::string& name) {
  for (const FaultTime& time : kFaultTimes)
    if (name == time.name) return fault.*time.of_fault;
  return std::nullopt;
}

bool can_have(const FaultSample& fault, const std::string& name) {
  return fault.sampled && (fault.why_no_rate_before.empty() || name != "recover_ms");
}

void summarize_times(ModeResult& mode) {
  for (const FaultTime& time : kFaultTimes) {
    std::vector<double> values;
    for (const FaultSample& fault : mode.faults) {
      if (!fault.sampled) continue;
      if (const auto& value = fault.*time.of_fault)
        values.push_back(*value);
      else if (time.of_fault == &FaultSample::recover_ms && fault.waited_ms)
        values.push_back(*fault.waited_ms);
    }
    mode.*time.of_all = summarize(std::move(values));
  }
}

}  // namespace r2bench
