// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/verbs/gid.h"

#include <algorithm>
#include <cstring>

namespace r2ccl::verbs {
namespace {

// An entry without an address of its own: zero, or the bare prefix fe80::.
bool configured(const AddressBytes& gid) {
  return std::any_of(gid.begin() + 2, gid.end(), [](uint8_t byte) { return byte != 0; });
}

bool link_local(const AddressBytes& gid) {
  static constexpr AddressBytes kPrefix = {0xfe, 0x80};
  return std::equal(gid.begin(), gid.begin() + 8, kPrefix.begin());
}

}  // namespace

GidChoice choose_gid(std::span<const ibv_gid_entry> table, const Config& config) {
  enum Score { kNone, kConfigured, kVersion, kVersionRouted, kInRange, kAsAsked };
  const uint32_t wanted = config.roce_version == 1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  GidChoice best;
  Score best_score = kNone;
  for (const ibv_gid_entry& entry : table) {
    AddressBytes gid;
    static_assert(sizeof entry.gid == sizeof gid);
    std::memcpy(gid.data(), &entry.gid, sizeof gid);
    if (!configured(gid)) continue;
    const bool version = entry.gid_type == wanted;
    const bool in_range = !link_local(gid) && config.address_range.contains(gid);
    const Score score = in_range           ? (version ? kAsAsked : kInRange)
                        : !version         ? kConfigured
                        : !link_local(gid) ? kVersionRouted
                                           : kVersion;
    if (score <= best_score) continue;
    best.index = int(entry.gid_index);
    best_score = score;
  }
  best.as_asked = best_score == kAsAsked;
  return best;
}

}  // namespace r2ccl::verbs
