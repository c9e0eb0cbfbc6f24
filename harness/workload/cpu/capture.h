// SPDX-License-Identifier: Apache-2.0
// What of a run is recorded.
#pragma once

namespace r2bench {

/// R2BENCH_CAPTURE=operations: only the begin and end of operations are recorded, no message and nothing of
/// the plugin. What recording costs is the difference (scenarios/capture_cost.yaml).
bool captures_operations_only();

}  // namespace r2bench
