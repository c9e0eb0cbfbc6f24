// SPDX-License-Identifier: Apache-2.0
// How long the plugin itself took to move traffic: from its own events, without the transfer of a segment.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "harness/measure/collector.h"

namespace r2bench {

/// Milliseconds from the answering fence (`detected_ns`) to the moment at which the last channel end that was
/// fenced for the strike, up to `until_ns`, had a path that carries its traffic: migration_done. nullopt when
/// one of them had none by then, or none was fenced. Planned fences (failback) do not count.
std::optional<double> switch_ms(const std::vector<RankEvent>& trace, uint64_t detected_ns, uint64_t until_ns);

}  // namespace r2bench
