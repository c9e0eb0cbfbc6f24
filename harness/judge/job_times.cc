// SPDX-License-Identifier: Apache-2.0
#include "harness/judge/job_times.h"

#include <algorithm>

#include "harness/measure/statistics.h"

namespace r2bench {

JobTimes::JobTimes(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes) {
  const auto& operations = job.record.operations;
  first_open_ns_ = operations.empty() ? 0 : operations.front().span.begin_ns;
  end_ns_ = first_open_ns_;
  for (const OperationSpan& operation : operations) end_ns_ = std::max(end_ns_, operation.span.end_ns);
  for (const Firing& strike : strikes)
    if (of_nic(scenario, strike)) {
      uint64_t& begin = round_begin_ns_.try_emplace(strike.repetition, UINT64_MAX).first->second;
      begin = std::min(begin, strike.t0_ns);
    }
}

uint64_t JobTimes::round_end_ns(size_t repetition) const {
  const auto next = round_begin_ns_.upper_bound(repetition);
  return next == round_begin_ns_.end() ? end_ns_ : std::min(end_ns_, next->second);
}

double ms_between(uint64_t from_ns, uint64_t to_ns) { return (double(to_ns) - double(from_ns)) / 1e6; }

double open_ms(const Record& record, uint64_t from_ns, uint64_t to_ns) {
  return ms_between(record.open.elapsed(from_ns), record.open.elapsed(to_ns));
}

double operation_ms(const Record& record, uint64_t from_ns, uint64_t until_ns) {
  std::vector<double> all, undisturbed;
  for (const OperationSpan& operation : record.operations) {
    if (!operation.complete || operation.span.end_ns > until_ns) continue;
    all.push_back(ms_between(operation.span.begin_ns, operation.span.end_ns));
    if (operation.span.begin_ns >= from_ns) undisturbed.push_back(all.back());
  }
  return summarize(undisturbed.empty() ? all : undisturbed).p50;
}

}  // namespace r2bench
