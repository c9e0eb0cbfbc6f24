// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/algorithms.h"

namespace r2ccl::collective {
namespace {

/// Whose chunk is whose, where every chunk of the only part belongs to a rank.
template <typename RankOf>
std::vector<uint32_t> by_chunk(const Schedule& schedule, RankOf rank_of) {
  std::vector<uint32_t> ranks(schedule.chunks());
  const Part& part = schedule.parts[0];
  for (uint32_t segment = 0; segment < part.segments; ++segment) {
    for (uint32_t index = 0; index < part.chunks_per_segment(); ++index)
      ranks[part.chunk(segment, index)] = rank_of(index);
  }
  return ranks;
}

}  // namespace

Schedule ring_allgather(const Ranks& order, uint32_t segments, uint32_t depth) {
  const auto p = static_cast<uint32_t>(order.size());
  ScheduleBuilder builder("ring", Collective::kAllGather, p);
  const uint16_t part = builder.add_part(1, segments, p * depth);
  const uint16_t group = builder.add_group("ring");
  builder.schedule().parts[part].block_major = true;
  std::vector<uint32_t> to_next(p);
  for (uint32_t j = 0; p > 1 && j < p; ++j)
    to_next[j] = builder.connect(order[j], order[(j + 1) % p], part, group, depth + 2);
  for (uint32_t j = 0; p > 1 && j < p; ++j) {
    const uint32_t from = to_next[(j + p - 1) % p];
    const uint16_t recv_lane = builder.schedule().connections[from].to_lane;
    for (uint32_t i = 0; i < (p - 1) * depth; ++i) {
      const uint32_t t = i / depth, d = i % depth;
      // Chunks are numbered by rank, not by position: a rank's block lies where its number says.
      builder.send(to_next[j], order[(j + p - t) % p] * depth + d,
                   t == 0 ? Wait{} : Wait{recv_lane, false, i - depth});
      builder.recv(from, OpKind::kRecv, order[(j + 2 * p - 1 - t) % p] * depth + d);
    }
  }
  Schedule schedule = builder.finish();
  schedule.origin = by_chunk(schedule, [&](uint32_t index) { return index / depth; });
  return schedule;
}

Schedule ring_reduce_scatter(const Ranks& order, uint32_t segments, uint32_t depth) {
  const auto p = static_cast<uint32_t>(order.size());
  ScheduleBuilder builder("ring", Collective::kReduceScatter, p);
  const uint16_t part = builder.add_part(1, segments, p * depth);
  const uint16_t group = builder.add_group("ring");
  builder.schedule().parts[part].block_major = true;
  std::vector<uint32_t> to_next(p);
  for (uint32_t j = 0; p > 1 && j < p; ++j)
    to_next[j] = builder.connect(order[j], order[(j + 1) % p], part, group, depth + 2);
  for (uint32_t j = 0; p > 1 && j < p; ++j) {
    const uint32_t from = to_next[(j + p - 1) % p];
    const uint16_t recv_lane = builder.schedule().connections[from].to_lane;
    for (uint32_t i = 0; i < (p - 1) * depth; ++i) {
      const uint32_t t = i / depth, d = i % depth;
      builder.send(to_next[j], order[(j + 2 * p - 1 - t) % p] * depth + d,
                   t == 0 ? Wait{} : Wait{recv_lane, false, i - depth});
      builder.recv(from, OpKind::kRecvReduce, order[(j + 2 * p - 2 - t) % p] * depth + d);
    }
  }
  Schedule schedule = builder.finish();
  schedule.owner = by_chunk(schedule, [&](uint32_t index) { return index / depth; });
  return schedule;
}

Schedule chain_broadcast(const Ranks& order, uint32_t segments) {
  const auto p = static_cast<uint32_t>(order.size());
  ScheduleBuilder builder("chain", Collective::kBroadcast, p);
  const uint16_t part = builder.add_part(1, segments, 1);
  const uint16_t group = builder.add_group("chain");
  OpRef here;
  for (uint32_t i = 0; i + 1 < p; ++i) {
    const uint32_t along = builder.connect(order[i], order[i + 1], part, group);
    builder.send(along, 0, here.same());
    here = builder.recv(along, OpKind::kRecv, 0);
  }
  Schedule schedule = builder.finish();
  schedule.root = order[0];
  return schedule;
}

Schedule direct_alltoall(uint32_t ranks, uint32_t segments) {
  ScheduleBuilder builder("direct", Collective::kAllToAll, ranks);
  const uint16_t part = builder.add_part(1, segments, ranks * ranks);
  const uint16_t group = builder.add_group("direct");
  builder.schedule().parts[part].block_major = true;
  for (uint32_t from = 0; from < ranks; ++from) {
    for (uint32_t step = 1; step < ranks; ++step) {
      const uint32_t to = (from + step) % ranks;
      const uint32_t direct = builder.connect(from, to, part, group);
      builder.send(direct, from * ranks + to);
      builder.recv(direct, OpKind::kRecv, from * ranks + to);
    }
  }
  Schedule schedule = builder.finish();
  schedule.origin = by_chunk(schedule, [&](uint32_t index) { return index / ranks; });
  schedule.owner = by_chunk(schedule, [&](uint32_t index) { return index % ranks; });
  return schedule;
}

}  // namespace r2ccl::collective
