// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/balance/splitter.h"

#include <algorithm>
#include <numeric>

namespace r2ccl::balance {

void Splitter::set(std::span<const LaneShare> shares, size_t preferred, size_t otherwise) {
  lanes_ = std::min(shares.size(), kMaxRails);
  share_ = credit_ = small_share_ = small_credit_ = {};
  small_lane_ = uint8_t(std::max<size_t>(lanes_, 1) - 1);
  double swift = 0;
  for (size_t lane = 0; lane < lanes_; ++lane) {
    share_[lane] = shares[lane].share;
    if (!shares[lane].slow) swift += share_[lane];
  }
  for (size_t lane = 0; lane < lanes_; ++lane)
    small_share_[lane] = swift <= 0 ? share_[lane] : shares[lane].slow ? 0 : share_[lane] / swift;
  enough_ = kMuchLess * *std::max_element(small_share_.begin(), small_share_.begin() + lanes_);
  tiny_lane_ = 0;
  if (lanes_ == 0) return;
  tiny_lane_ = uint8_t(preferred < lanes_ && may_carry_tiny(preferred) ? preferred : otherwise % lanes_);
  for (size_t k = 0; k < lanes_ && !may_carry_tiny(tiny_lane_); ++k) tiny_lane_ = next_after(tiny_lane_);
}

size_t Splitter::split(uint64_t address, uint32_t bytes, std::span<Piece, kMaxRails> pieces) {
  const auto whole = [&](size_t lane) {
    credit_[lane] -= bytes;
    pieces[0] = {uint8_t(lane), 0, bytes};
    return size_t{1};
  };
  if (stays(bytes)) {
    pieces[0] = {tiny_lane_, 0, bytes};
    return 1;
  }
  if (bytes < kWhole) {
    for (size_t lane = 0; lane < lanes_; ++lane) small_credit_[lane] += small_share_[lane] * bytes;
    // In turn: after a turn equal lanes are equally far behind, but for what rounding leaves.
    uint8_t most = next_after(small_lane_);
    for (uint8_t lane = next_after(most), end = most; lane != end; lane = next_after(lane))
      if (small_credit_[lane] > small_credit_[most] + kAlike * bytes) most = lane;
    small_credit_[most] -= bytes;
    small_lane_ = most;
    pieces[0] = {most, 0, bytes};
    return 1;
  }
  for (size_t lane = 0; lane < lanes_; ++lane) credit_[lane] += share_[lane] * bytes;
  std::array<uint8_t, kMaxRails> order;
  std::iota(order.begin(), order.end(), uint8_t{0});
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
