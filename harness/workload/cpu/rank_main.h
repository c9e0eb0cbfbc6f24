// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace r2bench {

/// The whole life of an r2bench-cpu-rank: connects to the r2bench that started it and runs a rank. Returns
/// the exit status.
int cpu_rank_main();

}  // namespace r2bench
