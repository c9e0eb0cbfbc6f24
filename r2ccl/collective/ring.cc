// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {

Ranks natural_order(uint32_t ranks) {
  Ranks order(ranks);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

// Rank j, step t: sends chunk j − t, which it has added to in step t − 1, and adds chunk j − 1 − t to its
// own. Then chunk j + 1 is complete here, and the second half sends j + 1 − t and receives j − t. So the n-th
// send waits for the (n − 1)-th receive, and a copy waits for the send of what it replaces.
std::vector<RingEnd> add_ring(ScheduleBuilder& builder, const Ranks& order, uint16_t part, uint16_t group,
                              uint32_t depth) {
  const auto p = static_cast<uint32_t>(order.size());
  std::vector<RingEnd> ends(p);
  if (p < 2) return ends;
  std::vector<uint32_t> to_next(p);
  for (uint32_t j = 0; j < p; ++j) {
    to_next[j] = builder.connect(order[j], order[(j + 1) % p], part, group, depth + 2);
    builder.reserve(to_next[j], 2 * (p - 1) * depth);
  }
  const uint32_t half = (p - 1) * depth;
  for (uint32_t j = 0; j < p; ++j) {
    const uint32_t from = to_next[(j + p - 1) % p];
    const auto chunk = [&](uint32_t forward, uint32_t back, uint32_t d) {
      return (j + forward + 2 * p - back) % p * depth + d;
    };
    const uint16_t send_lane = builder.schedule().connections[to_next[j]].from_lane;
    const uint16_t recv_lane = builder.schedule().connections[from].to_lane;
    for (uint32_t t = 0; t < 2 * (p - 1); ++t) {
      for (uint32_t d = 0; d < depth; ++d) {
        const uint32_t i = t * depth + d;
        const Wait received = t == 0 ? Wait{} : Wait{recv_lane, false, i - depth};
        const bool gathering = t >= p - 1;
        ends[j].sent =
            builder.send(to_next[j], gathering ? chunk(1, t - (p - 1), d) : chunk(0, t, d), received);
        ends[j].received = gathering ? builder.recv(from, OpKind::kRecvCopy, chunk(0, t - (p - 1), d),
                                                    Wait{send_lane, false, i - half})
                                     : builder.recv(from, OpKind::kRecvReduce, chunk(0, t + 1, d));
      }
    }
  }
  return ends;
}

Schedule ring_allreduce(const Ranks& order, uint32_t segments, uint32_t depth) {
  const auto p = static_cast<uint32_t>(order.size());
  ScheduleBuilder builder("ring", Collective::kAllReduce, p);
  const uint16_t part = builder.add_part(1, segments, p * depth);
  add_ring(builder, order, part, builder.add_group("ring"), depth);
  return builder.finish();
}

namespace {

/// Sums along the ring from the rank after `last` up to `last`, then the result from there on, back to the
/// rank before it: `last` sends and receives the data once, the others twice. Lanes of their own, so that no
/// small chunk waits for one that is far away.
void add_chain(ScheduleBuilder& builder, const Ranks& order, size_t last, uint16_t part, uint16_t group) {
  const size_t p = order.size();
  OpRef complete;
  std::vector<OpRef> added_and_sent(p);
  for (size_t i = 1; i < p; ++i) {
    const size_t from = (last + i) % p, to = (last + i + 1) % p;
    const uint32_t along = builder.connect(order[from], order[to], part, group);
    added_and_sent[from] = builder.send(along, 0, complete.same());
    complete = builder.recv(along, OpKind::kRecvReduce, 0);
  }
  for (size_t i = 0; i + 1 < p; ++i) {
    const size_t from = (last + i) % p, to = (last + i + 1) % p;
    const uint32_t along = builder.connect(order[from], order[to], part, group);
    builder.send(along, 0, complete.same());
    complete = builder.recv(along, OpKind::kRecvCopy, 0, added_and_sent[to].same());
  }
}

}  // namespace

Schedule unequal_ring_allreduce(const Ranks& order, const UnequalRing& shares, uint32_t segments) {
  constexpr uint32_t kDepth = 2;
  const auto p = static_cast<uint32_t>(order.size());
  ScheduleBuilder builder("unequal ring", Collective::kAllReduce, p);
  if (shares.equal > 0) {
    add_ring(builder, order, builder.add_part(shares.equal, segments, p * kDepth), builder.add_group("ring"),
             kDepth);
  }
  for (size_t i = 0; i < p; ++i) {
    if (shares.extra[i] <= 0) continue;
    add_chain(builder, order, i, builder.add_part(shares.extra[i], segments, 1),
              builder.add_group("chain to " + std::to_string(order[i])));
  }
  return builder.finish();
}

}  // namespace r2ccl::collective
