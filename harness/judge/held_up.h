// SPDX-License-Identifier: Apache-2.0
// Whether a run's rates are those of its ports. If something else limited the job before the fault, such as
// the CPU or a GPU, then what it retained says nothing of the NICs that were left. Pure.
#pragma once

#include <string>

#include "harness/measure/result.h"

namespace r2bench {

/// Why the rates are not those of the ports, as a sentence; empty: nothing points to that.
std::string held_up(const Throughput& throughput);

/// The same for a report: empty where no fault struck a NIC, because nothing is compared with a limit there.
std::string held_up_at_faults(const Throughput& throughput);

}  // namespace r2bench
