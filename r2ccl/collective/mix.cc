// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {

uint32_t mix_ring_segments(double fraction, uint32_t segments) {
  return std::max(1u, static_cast<uint32_t>(std::lround(fraction * segments)));
}

Schedule mix_allreduce(uint32_t ranks, std::span<const MixPart> parts, uint32_t segments) {
  constexpr uint32_t kDepth = 2;
  ScheduleBuilder builder("mix", Collective::kAllReduce, ranks);
  for (const MixPart& mixed : parts) {
    const auto owners = static_cast<uint32_t>(mixed.owners.size());
    if (mixed.leaves.empty()) {
      const uint16_t part =
          builder.add_part(mixed.fraction, mix_ring_segments(mixed.fraction, segments), owners * kDepth);
      add_ring(builder, mixed.owners, part, builder.add_group("ring"), kDepth);
    } else {
      const uint16_t part = builder.add_part(mixed.fraction, segments, owners);
      add_four_stage(builder, mixed.owners, mixed.leaves, part,
                     builder.add_group("four-stage, " + std::to_string(mixed.leaves.size()) + " leaves"));
    }
  }
  return builder.finish();
}

}  // namespace r2ccl::collective
