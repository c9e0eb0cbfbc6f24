// SPDX-License-Identifier: Apache-2.0
// Additions on the CPU: dst = a op b, element by element, for all of NCCL's types.
#pragma once

#include <cstddef>

#include "r2ccl/collective/host/engine.h"
#include "r2ccl/collective/host/executor.h"

namespace r2ccl::collective {

/// nullptr: not one of ours.
ReduceFunction reduction_of(DataType type, Reduction reduction);

/// Bytes of sums of float32 per second on this machine, from and to memory that is in no cache; takes some
/// milliseconds, the first time.
double measured_reduction_speed();

}  // namespace r2ccl::collective
