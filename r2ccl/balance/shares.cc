#include "r2ccl/balance/shares.h"

#include <algorithm>
#include <numeric>

namespace r2ccl::balance {

PerRail shares(std::span<const double> capacity, std::span<const double> demand, size_t home) {
  PerRail out{};
  const size_t rails = capacity.size();
  const double total_capacity = std::accumulate(capacity.begin(), capacity.end(), 0.0);
  const double total_demand = std::accumulate(demand.begin(), demand.end(), 0.0);
  if (total_capacity <= 0) return out;
  const auto part = [&](size_t rail) { return total_demand * capacity[rail] / total_capacity; };
  const bool at_home = home < rails && capacity[home] > 0;
  const double keep = !at_home                                 ? 0
                      : demand[home] <= 0 || total_demand <= 0 ? 1
                                                               : std::min(1.0, part(home) / demand[home]);
  PerRail room{};
  double all_room = 0;
  for (size_t rail = 0; rail < rails; ++rail) {
    if (rail == home || capacity[rail] <= 0) continue;
    room[rail] = std::max(0.0, part(rail) - demand[rail]);
    all_room += room[rail];
  }
  if (all_room <= 1e-9 * total_demand ||
      total_demand <= 0) {  // nobody has room: in proportion to the capacities
    if (at_home && keep > 1 - 1e-9) {
      out[home] = 1;
      return out;
    }
    room = {};
    all_room = 0;
    for (size_t rail = 0; rail < rails; ++rail)
      if (rail != home) all_room += room[rail] = capacity[rail];
  }
  if (all_room <= 0) {  // home is all there is
    out[home] = 1;
    return out;
  }
  for (size_t rail = 0; rail < rails; ++rail) out[rail] = (1 - keep) * room[rail] / all_room;
  if (at_home) out[home] = keep;
  return out;
}

std::array<int, kMaxRails> pair_nics(std::span<const bool> local_usable,
                                     std::span<const bool> remote_usable) {
  std::array<int, kMaxRails> partner;
  partner.fill(-1);
  std::array<bool, kMaxRails> taken{};
  for (size_t nic = 0; nic < std::min(local_usable.size(), remote_usable.size()); ++nic)
    if (local_usable[nic] && remote_usable[nic]) {
      partner[nic] = int(nic);
      taken[nic] = true;
    }
  size_t next = 0;
  for (size_t nic = 0; nic < local_usable.size(); ++nic) {
    if (!local_usable[nic] || partner[nic] >= 0) continue;
    while (next < remote_usable.size() && (!remote_usable[next] || taken[next])) ++next;
    if (next == remote_usable.size()) break;
    taken[next] = true;
    partner[nic] = int(next);
  }
  return partner;
}

void Splitter::set(std::span<const double> shares) {
  lanes_ = std::min(shares.size(), kMaxRails);
  share_ = {};
  credit_ = {};
  std::copy_n(shares.begin(), lanes_, share_.begin());
}

size_t Splitter::split(uint64_t address, uint32_t bytes, std::span<Piece, kMaxRails> pieces) {
  const auto whole = [&](size_t lane) {
    credit_[lane] -= bytes;
    pieces[0] = {uint8_t(lane), 0, bytes};
    return size_t{1};
  };
  for (size_t lane = 0; lane < lanes_; ++lane) credit_[lane] += share_[lane] * bytes;
  std::array<uint8_t, kMaxRails> order;
  std::iota(order.begin(), order.end(), uint8_t{0});
  if (bytes < kWhole) {  // on the best lane
    const auto best = std::max_element(share_.begin(), share_.begin() + std::max<size_t>(lanes_, 1));
    return whole(size_t(best - share_.begin()));
  }
  std::stable_sort(order.begin(), order.begin() + lanes_,
                   [&](uint8_t a, uint8_t b) { return credit_[a] > credit_[b]; });
  // Fewer lanes until each piece is worth the trouble; who gets none now has more credit next time.
  size_t used = 0;
  double sum = 0;
  for (; used < lanes_ && credit_[order[used]] > 0; ++used) sum += credit_[order[used]];
  while (used > 1 && credit_[order[used - 1]] * bytes < double(kLeastPiece) * sum)
    sum -= credit_[order[--used]];
  if (used <= 1) return whole(order[0]);
  std::sort(order.begin(), order.begin() + used);  // in the order of the lanes
  size_t count = 0;
  uint32_t offset = 0;
  double until = 0;
  for (size_t k = 0; k < used; ++k) {
    const uint8_t lane = order[k];
    until += credit_[lane] / sum * bytes;
    uint32_t end = bytes;
    if (k + 1 < used) {
      const uint64_t cut = (address + uint64_t(until)) / kGrain * kGrain;
      end = uint32_t(std::clamp<uint64_t>(cut > address ? cut - address : 0, offset, bytes));
    }
    if (end == offset) continue;
    pieces[count++] = {lane, offset, end - offset};
    offset = end;
  }
  for (size_t k = 0; k < count; ++k) credit_[pieces[k].lane] -= pieces[k].bytes;
  return count;
}

}  // namespace r2ccl::balance
