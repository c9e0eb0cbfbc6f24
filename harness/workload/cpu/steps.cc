#include "harness/workload/cpu/steps.h"

#include <algorithm>

namespace r2bench {
namespace {

constexpr int kSlicesPerChunk = 2;
constexpr size_t kAlign = 4;  // elements; keeps slices at 16 bytes or more, as NCCL does

size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }
size_t align_up(size_t a, size_t unit) { return divide_up(a, unit) * unit; }

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
    const auto add_chunk = [&](size_t index, Step kind) {
      const size_t first = std::min(end, loop + index % n * chunk);
      const size_t count = std::min(chunk, end - first);
      const size_t part_size = align_up(divide_up(count, kSlicesPerChunk), kAlign);
      for (int s = 0; s < kSlicesPerChunk; ++s) {
        kind.first = first + std::min(count, part_size * size_t(s));
        kind.count = std::min(part_size, first + count - kind.first);
        lane.push_back(kind);
      }
    };
    const Step send{false, true, false, false}, receive_reduce_send{true, true, true, false},
        receive_reduce_store_send{true, true, true, true}, receive_store_send{true, true, false, true},
        receive_store{true, false, false, true};
    add_chunk(r + n - 1, send);
    for (size_t j = 2; j < n; ++j) add_chunk(r + n - j, receive_reduce_send);
    add_chunk(r, receive_reduce_store_send);
    for (size_t j = 1; j + 1 < n; ++j) add_chunk(r + n - j, receive_store_send);
    add_chunk(r + 1, receive_store);
    loop += chunk * n;
  }
  return lane;
}

std::vector<Lane> send_recv(Part part, size_t message) {
  std::vector<Lane> lanes(2);
  size_t done = 0;
  do {
    const size_t count = std::min(message, part.count - done);
    lanes[0].push_back({false, true, false, false, part.first + done, count});
    lanes[1].push_back({true, false, false, true, part.first + done, count});
    done += count;
  } while (done < part.count);
  return lanes;
}

}  // namespace r2bench
