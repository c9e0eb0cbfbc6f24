// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/steps.h"

#include <algorithm>

namespace r2bench {
namespace {

constexpr int kSlicesPerChunk = 2;
constexpr size_t kAlign = 4;  // elements; keeps slices at 16 bytes or more, as NCCL does

size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }
size_t align_up(size_t a, size_t unit) { return divide_up(a, unit) * unit; }

constexpr Step kSend{false, true, false, false}, kSendStore{false, true, false, true},
    kReceiveReduceSend{true, true, true, false}, kReceiveReduceStoreSend{true, true, true, true},
    kReceiveStoreSend{true, true, false, true}, kReceiveReduceStore{true, false, true, true},
    kReceiveStore{true, false, false, true};

Step of_ranks(Step kind, size_t addends, size_t origin, size_t ranks) {
  kind.addends = int(addends);
  kind.origin = int(origin % ranks);
  return kind;
}

/// One chunk as NCCL cuts it: two slices, of which the second may be shorter or empty.
void add_chunk(Lane& lane, Step kind, size_t first, size_t count) {
  const size_t slice = align_up(divide_up(count, kSlicesPerChunk), kAlign);
  for (int s = 0; s < kSlicesPerChunk; ++s) {
    kind.first = first + std::min(count, slice * size_t(s));
    kind.count = std::min(slice, first + count - kind.first);
    lane.push_back(kind);
  }
}

}  // namespace

Part channel_part(size_t count, int channel, int channels, size_t align) {
  const size_t share = align_up(divide_up(count, size_t(channels)), align);
  const size_t first = std::min(count, share * size_t(channel));
  return {first, std::min(share, count - first)};
}

Lane ring_all_reduce(int rank, int ranks, Part part, size_t slice) {
  Lane lane;
  const size_t n = size_t(ranks), r = size_t(rank), end = part.first + part.count;
  const size_t full_chunk = slice * kSlicesPerChunk;
  for (size_t loop = part.first; loop < end;) {
    const size_t chunk = std::min(full_chunk, align_up(divide_up(end - loop, n), kAlign));
    const auto add = [&](size_t index, Step kind, size_t addends) {
      const size_t first = std::min(end, loop + index % n * chunk);
      add_chunk(lane, of_ranks(kind, addends, index + 1, n), first, std::min(chunk, end - first));
    };
    // The rank behind chunk i begins its sum.
    add(r + n - 1, kSend, 0);
    for (size_t j = 2; j < n; ++j) add(r + n - j, kReceiveReduceSend, j - 1);
    add(r, kReceiveReduceStoreSend, n - 1);
    for (size_t j = 1; j + 1 < n; ++j) add(r + n - j, kReceiveStoreSend, n);
    add(r + 1, kReceiveStore, n);
    loop += chunk * n;
  }
  return lane;
}

Lane ring_all_gather(int rank, int ranks, size_t share, Part part, size_t slice) {
  Lane lane;
  const size_t n = size_t(ranks), r = size_t(rank), chunk = slice * kSlicesPerChunk;
  for (size_t at = 0; at < part.count; at += chunk) {
    const auto add = [&](size_t index, Step kind) {
      add_chunk(lane, of_ranks(kind, 1, index, n), index % n * share + part.first + at,
                std::min(chunk, part.count - at));
    };
    add(r, kSendStore);
    for (size_t j = 1; j + 1 < n; ++j) add(r + n - j, kReceiveStoreSend);
    add(r + 1, kReceiveStore);
  }
  return lane;
}

Lane ring_reduce_scatter(int rank, int ranks, size_t share, Part part, size_t slice) {
  Lane lane;
  const size_t n = size_t(ranks), r = size_t(rank), chunk = slice * kSlicesPerChunk;
  for (size_t at = 0; at < part.count; at += chunk) {
    const auto add = [&](size_t index, Step kind, size_t addends) {
      add_chunk(lane, of_ranks(kind, addends, index + 1, n), index % n * share + part.first + at,
                std::min(chunk, part.count - at));
    };
    add(r + n - 1, kSend, 0);
    for (size_t j = 2; j < n; ++j) add(r + n - j, kReceiveReduceSend, j - 1);
    add(r, kReceiveReduceStore, n - 1);
  }
  return lane;
}

Lane ring_broadcast(int rank, int ranks, Part part, size_t slice) {
  Lane lane;
  const size_t chunk = slice * kSlicesPerChunk;
  const Step kind =
      of_ranks(rank == 0 ? kSend : rank + 1 < ranks ? kReceiveStoreSend : kReceiveStore, 1, 0, size_t(ranks));
  for (size_t at = 0; at < part.count; at += chunk)
    add_chunk(lane, kind, part.first + at, std::min(chunk, part.count - at));
  return lane;
}

std::vector<Lane> send_recv(Part from, Part to, size_t message) {
  std::vector<Lane> lanes(2);
  size_t done = 0;
  do {
    const size_t count = std::min(message, from.count - done);
    lanes[0].push_back({false, true, false, false, from.first + done, count});
    lanes[1].push_back({true, false, false, true, to.first + done, count});
    done += count;
  } while (done < from.count);
  return lanes;
}

}  // namespace r2bench
