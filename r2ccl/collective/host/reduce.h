// Additions on the CPU: dst = a op b, element by element, for all of NCCL's types.
#pragma once

#include <cstddef>

#include "r2ccl/collective/host/engine.h"
#include "r2ccl/collective/host/executor.h"

namespace r2ccl::collective {

/// nullptr: not one of ours.
ReduceFunction reduction_of(DataType type, Reduction reduction);

}  // namespace r2ccl::collective
