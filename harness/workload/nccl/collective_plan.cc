// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/collective_plan.h"

namespace r2bench {

CollectivePlan plan_collective(const RankConfig& part) {
  const size_t all = part.bytes / element_size(part.dtype), rank = size_t(part.rank()),
               ranks = size_t(part.ranks());
  const size_t share = all / ranks, own = rank * share;
  const Contributors everybody{uint32_t(ranks), uint32_t(part.group.first), uint32_t(part.group.step)};
  const auto only = [&](size_t place) { return Contributors{1, part.job_rank(int(place)), 1}; };
  CollectivePlan plan;
  plan.filled = {0, all};
  plan.count = in_chunks(part.op) ? share : all;
  switch (part.op) {
    case Operation::kAllReduce:
      plan.wanted = {{{0, all}, 0, everybody}};
      plan.poisoned = !part.in_place;
      break;
    case Operation::kBroadcast:
      plan.wanted = {{{0, all}, 0, only(0)}};
      if (part.in_place && rank != 0) plan.filled = {};
      break;
    case Operation::kReduceScatter:
      plan.receive_first = own;
      plan.wanted = {{{own, share}, own, everybody}};
      if (part.in_place) {
        plan.poisoned = false;
        plan.wanted.push_back({{0, own}, 0, only(rank)});
        plan.wanted.push_back({{own + share, all - own - share}, own + share, only(rank)});
      } else {
        plan.untouched = {{0, own}, {own + share, all - own - share}};
      }
      break;
    case Operation::kAllGather:
      plan.send_first = own;
      if (part.in_place) plan.filled = {own, share};
      for (size_t from = 0; from < ranks; ++from)
        plan.wanted.push_back({{from * share, share}, from * share, only(from)});
      break;
    case Operation::kAllToAll:
      for (size_t from = 0; from < ranks; ++from)
        plan.wanted.push_back({{from * share, share}, own, only(from)});
      break;
    case Operation::kSendRecv:
      plan.wanted = {{{0, all}, 0, only((rank + ranks - 1) % ranks)}};
      break;
  }
  return plan;
}

}  // namespace r2bench
