// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/program.h"

namespace r2ccl::collective {
namespace {

constexpr size_t kSizesKept = 16;

}  // namespace

Program::Program(Schedule schedule, uint32_t rank, const EndOf& end_of, std::vector<RailShares> rails,
                 uint32_t slots)
    : schedule_(std::move(schedule)),
      rank_(rank),
      slots_(slots),
      ends_(schedule_.lanes[rank].size() * slots),
      rails_(std::move(rails)) {
  // With many ranks those of the others are most of the schedule's memory.
  for (uint32_t other = 0; other < schedule_.ranks; ++other)
    if (other != rank) schedule_.lanes[other] = std::vector<Lane>();
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> ordinals;
  for (const Connection& connection : schedule_.connections) {
    const uint32_t ordinal = ordinals[{connection.from, connection.to}]++;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      const uint32_t number = ordinal * slots + slot;
      if (connection.from == rank) ends_[connection.from_lane * slots + slot] = end_of(connection.to, true, number);
      if (connection.to == rank) ends_[connection.to_lane * slots + slot] = end_of(connection.from, false, number);
    }
  }
}

std::shared_ptr<const Ranges> Program::ranges(uint64_t elements) {
  if (const auto known = ranges_.find(elements); known != ranges_.end()) return known->second;
  if (ranges_.size() >= kSizesKept) ranges_.clear();
  return ranges_[elements] = std::make_shared<const Ranges>(chunk_ranges(schedule_, elements));
}

}  // namespace r2ccl::collective
