// SPDX-License-Identifier: Apache-2.0
// When a job's measured part and the rounds of its faults begin and end, and times within it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "harness/judge/strikes.h"

namespace r2bench {

class JobTimes {
 public:
  JobTimes(const Scenario& scenario, const JobRecord& job, const std::vector<Firing>& strikes);

  /// When the first operation began; 0: there was none.
  uint64_t first_open_ns() const { return first_open_ns_; }
  /// When the last operation ended: what follows is closing.
  uint64_t end_ns() const { return end_ns_; }
  /// The first strike of a round. It has struck a NIC.
  uint64_t round_begin_ns(size_t repetition) const { return round_begin_ns_.at(repetition); }
  /// The next round begins when the job is taken to be undisturbed again.
  uint64_t round_end_ns(size_t repetition) const;

 private:
  uint64_t first_open_ns_ = 0, end_ns_ = 0;
  std::map<size_t, uint64_t> round_begin_ns_;
};

double ms_between(uint64_t from_ns, uint64_t to_ns);

/// The part of a time in which operations were open, in ms.
double open_ms(const Record& record, uint64_t from_ns, uint64_t to_ns);

/// Median, in ms, of the whole operations of the undisturbed time; where there is none, of all that had ended
/// before. 0 when there was none at all.
double operation_ms(const Record& record, uint64_t from_ns, uint64_t until_ns);

}  // namespace r2bench
