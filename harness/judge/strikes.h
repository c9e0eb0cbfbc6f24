// SPDX-License-Identifier: Apache-2.0
// Each strike of a fault by itself: a fault that repeats (`repeat`) or flaps (port_flap) takes effect several
// times, and each time is a t0 and a heal of its own. The injector records the round of each effect. And for
// how long each of them takes something away. Pure.
#pragma once

#include <vector>

#include "harness/judge/job_record.h"

namespace r2bench {

bool is_rank_fault(const Scenario& scenario, const Firing& firing);

/// It took effect, and not on a process.
bool of_nic(const Scenario& scenario, const Firing& strike);

/// It takes ports or queue pairs away, it does not only slow them. Not of a rank fault.
bool takes_away(const Scenario& scenario, const Firing& strike);

/// One Firing per strike, in order of the firings and within each in order of time. A firing that struck once
/// or never stays as it is. A strike of a queue pair that was not healed ends, as far as the NIC's bandwidth
/// goes (`back_ns`), when the first channel on that NIC has failed back.
std::vector<Firing> strikes_of(const Scenario& scenario, const JobRecord& job);

/// Of the faults with `repeat`. Fewer are seen than fired if a round had no effect, or if its effect was not
/// recorded (a table of the injector was full).
struct RoundCounts {
  size_t fired = 0;   ///< by the injector, before the job was about to end
  size_t seen = 0;    ///< of those: that have an effect on record
  size_t at_end = 0;  ///< fired during the last operation (if that did not stall) or later, without an effect
  size_t not_fired = 0;  ///< planned behind the last one that fired: the job ended first, or they were healed
};
RoundCounts count_rounds(const Scenario& scenario, const JobRecord& job);

/// When a strike takes nothing away any more: healed, or failed back; UINT64_MAX when it never was.
uint64_t acts_until_ns(const Firing& strike);

}  // namespace r2bench
