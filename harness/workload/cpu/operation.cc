// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/operation.h"

#include <algorithm>
#include <cstring>

#include "harness/workload/cpu/pattern.h"

namespace r2bench {
namespace {

constexpr size_t kChannelAlign = 64;  // elements

size_t elements(const RankConfig& config) { return config.bytes / element_size(config.dtype); }
size_t share(const RankConfig& config) { return elements(config) / size_t(config.ranks()); }
Contributors contributors(const RankConfig& config) {
  return {uint32_t(config.ranks()), uint32_t(config.group.first), uint32_t(config.group.step)};
}
size_t ring_slice(const RankConfig& config) { return config.buffer_bytes / 4 / element_size(config.dtype); }

std::vector<Lane> lanes_of(const RankConfig& config, int shift, Part part) {
  const int rank = config.rank(), ranks = config.ranks();
  const auto chunk_part = [&](int of) {
    return Part{size_t((of + ranks) % ranks) * share(config) + part.first, part.count};
  };
  switch (config.op) {
    case Operation::kAllReduce:
      return {ring_all_reduce(rank, ranks, part, ring_slice(config))};
    case Operation::kAllGather:
      return {ring_all_gather(rank, ranks, share(config), part, ring_slice(config))};
    case Operation::kReduceScatter:
      return {ring_reduce_scatter(rank, ranks, share(config), part, ring_slice(config))};
    case Operation::kBroadcast:
      return {ring_broadcast(rank, ranks, part, ring_slice(config))};
    case Operation::kAllToAll:
      return send_recv(chunk_part(rank + shift), chunk_part(rank - shift), message_elements(config));
    case Operation::kSendRecv:
      break;
  }
  return send_recv(part, part, message_elements(config));
}

}  // namespace

size_t message_elements(const RankConfig& config) {
  const size_t step = config.buffer_bytes / 8;
  return (config.registered ? 2 * step : std::min(step, config.p2p_chunk_bytes)) / element_size(config.dtype);
}

std::vector<ChannelPlan> plan_channels(const RankConfig& config, int channels) {
  std::vector<ChannelPlan> plan;
  const size_t whole = in_chunks(config.op) ? share(config) : elements(config);
  for (int shift = 1; shift < (config.op == Operation::kAllToAll ? config.ranks() : 2); ++shift)
    for (int c = 0; c < channels; ++c) {
      const Part part = channel_part(whole, c, channels, kChannelAlign);
      plan.push_back({shift, part, lanes_of(config, shift, part)});
    }
  return plan;
}

void copy_own_chunk(const RankConfig& config, const char* input, char* output) {
  if (config.op == Operation::kBroadcast && config.rank() == 0) std::memcpy(output, input, config.bytes);
  if (config.op != Operation::kAllToAll) return;
  const size_t bytes = share(config) * element_size(config.dtype), at = bytes * size_t(config.rank());
  std::memcpy(output + at, input + at, bytes);
}

size_t content_of(const RankConfig& config, int shift, const Step& step, std::vector<uint32_t>& ranks) {
  if (!point_to_point(config.op)) {
    for (int i = 0; i < step.addends; ++i) ranks.push_back(config.job_rank(step.origin + i));
    return step.first;
  }
  const int size = config.ranks(), sender = (config.rank() - shift + size) % size;
  ranks.push_back(config.job_rank(sender));
  if (config.op == Operation::kSendRecv) return step.first;
  // In the sender's buffer it lies in this rank's chunk, here in the sender's.
  return step.first + size_t(config.rank()) * share(config) - size_t(sender) * share(config);
}

uint64_t count_wrong(const RankConfig& config, const char* output, uint64_t operation) {
  const size_t element = element_size(config.dtype), chunk = share(config), rank = size_t(config.rank());
  uint64_t wrong = 0;
  switch (config.op) {
    case Operation::kAllReduce:
      return count_wrong_sums(config.data(), output, 0, elements(config), contributors(config), operation);
    case Operation::kBroadcast:
      return count_wrong_values(config.data(), output, 0, elements(config), config.job_rank(0), operation);
    case Operation::kReduceScatter: {
      const size_t begin = rank * chunk * element, end = begin + chunk * element;
      return count_wrong_sums(config.data(), output + begin, rank * chunk, chunk, contributors(config),
                              operation) +
             count_touched(output, begin) + count_touched(output + end, config.bytes - end);
    }
    case Operation::kAllGather:
      for (size_t from = 0; from < size_t(config.ranks()); ++from)
        wrong += count_wrong_values(config.data(), output + from * chunk * element, from * chunk, chunk,
                                    config.job_rank(int(from)), operation);
      return wrong;
    case Operation::kAllToAll:
      for (size_t from = 0; from < size_t(config.ranks()); ++from)
        wrong += count_wrong_values(config.data(), output + from * chunk * element, rank * chunk, chunk,
                                    config.job_rank(int(from)), operation);
      return wrong;
    case Operation::kSendRecv:
      break;
  }
  return count_wrong_values(config.data(), output, 0, elements(config), config.job_rank(config.rank() - 1),
                            operation);
}

uint64_t elements_compared(const RankConfig& config) {
  switch (config.op) {
    case Operation::kReduceScatter:
      return share(config);
    case Operation::kBroadcast:
      return config.rank() == 0 ? 0 : elements(config);
    case Operation::kAllGather:
    case Operation::kAllToAll:
      return elements(config) - share(config);
    default:
      return elements(config);
  }
}

}  // namespace r2bench
