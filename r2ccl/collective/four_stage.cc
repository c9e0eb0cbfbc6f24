// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {

// Owner j (of m) owns chunk j + 1. Lanes: reduce-scatter and all-gather along the ring of owners, one in and
// one out for each leaf. Additions to the owned chunk have one order, the ring's first and then the leaves'
// in theirs, so that a result's bits do not depend on who is faster. What a leaf sends ahead of its turn
// waits in the connection's credits.
void add_four_stage(ScheduleBuilder& builder, const Ranks& owners, const Ranks& leaves, uint16_t part,
                    uint16_t group) {
  const auto m = static_cast<uint32_t>(owners.size());
  const bool ring = m > 1;
  std::vector<uint32_t> scatter(m), gather(m);
  for (uint32_t j = 0; ring && j < m; ++j) {
    scatter[j] = builder.connect(owners[j], owners[(j + 1) % m], part, group);
    gather[j] = builder.connect(owners[j], owners[(j + 1) % m], part, group);
    builder.reserve(scatter[j], m - 1);
    builder.reserve(gather[j], m - 1);
  }
  const auto connection = [&](uint32_t number) -> const Connection& {
    return builder.schedule().connections[number];
  };
  for (uint32_t j = 0; j < m; ++j) {
    const uint32_t own = (j + 1) % m, before = (j + m - 1) % m;
    const auto chunk = [&](uint32_t forward, uint32_t back) { return (j + forward + 2 * m - back) % m; };
    OpRef ready;
    for (uint32_t t = 0; ring && t + 1 < m; ++t) {
      const uint16_t lane = connection(scatter[before]).to_lane;
      builder.send(scatter[j], chunk(0, t), t == 0 ? Wait{} : Wait{lane, false, t - 1});
      ready = builder.recv(scatter[before], OpKind::kRecvReduce, chunk(0, t + 1));
    }
    std::vector<OpRef> raw;
    for (const uint32_t leaf : leaves) {
      const uint32_t in = builder.connect(leaf, owners[j], part, group, 2);
      raw.push_back(builder.send(in, own));
      ready = builder.recv(in, OpKind::kRecvReduce, own, ready.same());
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      const uint32_t out = builder.connect(owners[j], leaves[i], part, group, 2);
      builder.send(out, own, ready.same());
      builder.recv(out, OpKind::kRecvCopy, own, raw[i].same());
    }
    for (uint32_t t = 0; ring && t + 1 < m; ++t) {
      const uint16_t lane = connection(gather[before]).to_lane;
      builder.send(gather[j], chunk(1, t), t == 0 ? ready.same() : Wait{lane, false, t - 1});
      builder.recv(gather[before], OpKind::kRecvCopy, chunk(0, t),
                   Wait{connection(scatter[j]).from_lane, false, t});
    }
  }
}

Schedule four_stage_allreduce(const Ranks& owners, const Ranks& leaves, uint32_t segments) {
  ScheduleBuilder builder("four-stage", Collective::kAllReduce,
                          static_cast<uint32_t>(owners.size() + leaves.size()));
  const uint16_t part = builder.add_part(1, segments, static_cast<uint32_t>(owners.size()));
  add_four_stage(builder, owners, leaves, part, builder.add_group("four-stage"));
  return builder.finish();
}

}  // namespace r2ccl::collective
