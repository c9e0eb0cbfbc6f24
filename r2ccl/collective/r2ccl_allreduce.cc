// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {
namespace {

constexpr uint32_t kRingDepth = 2;

bool contains(const Ranks& ranks, uint32_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

/// The tail of one partial ring; a piece is one chunk of its part.
void add_tail(ScheduleBuilder& builder, const Ranks& order, const std::vector<RingEnd>& ends,
              const Ranks& outside, const std::vector<OpRef>& outside_free, uint16_t part, uint16_t group) {
  const uint32_t chunks = builder.schedule().parts[part].chunks_per_segment();
  // Stage 2 begins when stage 1 is over at each rank; the ring's chunks may be written again only then.
  const auto ring_over = [&](uint32_t position, uint32_t chunk) -> std::pair<Wait, Wait> {
    if (chunk != 0) return {};
    return {ends[position].sent.last(), ends[position].received.last()};
  };
  std::vector<uint32_t> in, out, along;
  for (const uint32_t rank : outside) in.push_back(builder.connect(rank, order.front(), part, group));
  for (size_t i = 0; i + 1 < order.size(); ++i)
    along.push_back(builder.connect(order[i], order[i + 1], part, group));
  for (const uint32_t rank : outside) out.push_back(builder.connect(order.back(), rank, part, group));
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    std::vector<OpRef> raw;
    OpRef complete;
    for (size_t i = 0; i < outside.size(); ++i) {
      raw.push_back(builder.send(in[i], chunk, chunk == 0 ? outside_free[i].last() : Wait{}));
      const auto [sent, received] = ring_over(0, chunk);
      complete = i == 0 ? builder.recv(in[i], OpKind::kRecvReduce, chunk, sent, received)
                        : builder.recv(in[i], OpKind::kRecvReduce, chunk, complete.same());
    }
    for (uint32_t i = 0; i < along.size(); ++i) {
      builder.send(along[i], chunk, complete.same());
      const auto [sent, received] = ring_over(i + 1, chunk);
      complete = builder.recv(along[i], OpKind::kRecvCopy, chunk, sent, received);
    }
    for (size_t i = 0; i < outside.size(); ++i) {
      builder.send(out[i], chunk, complete.same());
      builder.recv(out[i], OpKind::kRecvCopy, chunk, raw[i].same());
    }
  }
}

}  // namespace

uint32_t tail_pieces(uint32_t members, uint32_t pieces) {
  const uint32_t per_segment = members * kRingDepth;
  return std::max(1u, (pieces + per_segment - 1) / per_segment) * per_segment;
}

Schedule r2ccl_allreduce(uint32_t ranks, std::span<const PartialRing> rings, uint32_t pieces) {
  ScheduleBuilder builder("R2CCL-AllReduce", Collective::kAllReduce, ranks);
  std::vector<std::vector<RingEnd>> ends;
  std::vector<uint16_t> part_of;
  for (size_t k = 0; k < rings.size(); ++k) {
    const auto members = static_cast<uint32_t>(rings[k].order.size());
    const uint32_t segments = tail_pieces(members, pieces) / (members * kRingDepth);
    part_of.push_back(builder.add_part(rings[k].fraction, segments, members * kRingDepth));
    const uint16_t group =
        builder.add_group(k == 0 ? "global ring" : "partial ring of " + std::to_string(members));
    ends.push_back(add_ring(builder, rings[k].order, part_of[k], group, kRingDepth));
  }
  for (size_t k = 1; k < rings.size(); ++k) {
    Ranks outside;
    std::vector<OpRef> outside_free;  // when the rank has done with the innermost ring that it is in
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      if (contains(rings[k].order, rank)) continue;
      size_t innermost = 0;
      for (size_t l = 0; l < k; ++l) {
        if (contains(rings[l].order, rank)) innermost = l;
      }
      const auto position =
          static_cast<size_t>(std::find(rings[innermost].order.begin(), rings[innermost].order.end(), rank) -
                              rings[innermost].order.begin());
      outside.push_back(rank);
      outside_free.push_back(ends[innermost][position].received);
    }
    add_tail(builder, rings[k].order, ends[k], outside, outside_free, part_of[k],
             builder.add_group("tail of " + std::to_string(rings[k].order.size())));
  }
  return builder.finish();
}

}  // namespace r2ccl::collective
