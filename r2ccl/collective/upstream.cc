// SPDX-License-Identifier: Apache-2.0
// After r2cc-project/R-2CCL, src/r2cc/allreduce/r2cc_allreduce.cc (public), and its examples/cloudlab_r7525.
#include <algorithm>

#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {

Schedule upstream_allreduce(uint32_t nodes, uint32_t per_node, double lost, uint32_t pieces) {
  constexpr uint32_t kSlices =
      64;  // NCCL pipelines a Reduce and a Broadcast in slices far smaller than a piece
  constexpr uint32_t kMainSegments = 8, kDepth = 2;
  const uint32_t ranks = nodes * per_node, helper = per_node, healthy = ranks - per_node;
  ScheduleBuilder builder("upstream", Collective::kAllReduce, ranks);
  const uint16_t main_part = builder.add_part(1 - lost, kMainSegments, ranks * kDepth);
  const uint32_t depth = std::max(1u, (kSlices + healthy - 1) / healthy);
  const uint16_t tail_part = builder.add_part(lost, pieces, healthy * depth);
  const uint16_t main_group = builder.add_group("AllReduce of all", kSurvivingRails);
  const uint16_t sub_group = builder.add_group("AllReduce of the healthy", kLostRails);
  const uint16_t reduce_group = builder.add_group("Reduce", kSurvivingRails);
  const uint16_t broadcast_group = builder.add_group("Broadcast", kSurvivingRails);

  const std::vector<RingEnd> main_ends =
      add_ring(builder, natural_order(ranks), main_part, main_group, kDepth);
  Ranks healthy_ranks;
  for (uint32_t rank = per_node; rank < ranks; ++rank) healthy_ranks.push_back(rank);
  const std::vector<RingEnd> sub_ends = add_ring(builder, healthy_ranks, tail_part, sub_group, depth);

  const uint32_t slices = healthy * depth;
  std::vector<uint32_t> reduce, chain;
  for (uint32_t rank = 0; rank < helper; ++rank)
    reduce.push_back(builder.connect(rank, rank + 1, tail_part, reduce_group));
  for (uint32_t i = 0; i + 1 < ranks; ++i) {
    chain.push_back(
        builder.connect((helper + i) % ranks, (helper + i + 1) % ranks, tail_part, broadcast_group));
  }
  const auto sub_over = [&](uint32_t rank, uint32_t slice) -> std::pair<Wait, Wait> {
    if (slice != 0 || rank < helper) return {};
    return {sub_ends[rank - helper].sent.last(), sub_ends[rank - helper].received.last()};
  };
  std::vector<std::vector<OpRef>> reduced(
      slices, std::vector<OpRef>(helper));  // the send that a Broadcast's copy must not overtake
  for (uint32_t slice = 0; slice < slices; ++slice) {
    OpRef added;
    for (uint32_t rank = 0; rank < helper; ++rank) {
      const Wait gate = rank == 0 && slice == 0 ? main_ends[0].received.last() : Wait{};
      reduced[slice][rank] = builder.send(reduce[rank], slice, rank == 0 ? gate : added.same());
      const auto [sent, received] = sub_over(rank + 1, slice);
      added = builder.recv(reduce[rank], OpKind::kRecvReduce, slice, sent, received);
    }
  }
  const OpRef whole_piece{builder.schedule().connections[reduce[helper - 1]].to_lane, slices - 1};
  for (uint32_t slice = 0; slice < slices; ++slice) {
    OpRef here = whole_piece;
    for (uint32_t i = 0; i + 1 < ranks; ++i) {
      const uint32_t to = (helper + i + 1) % ranks;
      builder.send(chain[i], slice, i == 0 && slice != 0 ? Wait{} : here.same());
      const auto [sent, received] = sub_over(to, slice);
      here = to < helper ? builder.recv(chain[i], OpKind::kRecvCopy, slice, reduced[slice][to].same())
                         : builder.recv(chain[i], OpKind::kRecvCopy, slice, sent, received);
    }
  }
  return builder.finish();
}

}  // namespace r2ccl::collective
