// SPDX-License-Identifier: Apache-2.0
// Meters of links: of what goes from a NIC of this process to one NIC of a peer, whichever channels carry it.
// Only mode 3 has them, with R2CC_PLAN_LINKS=1: its plans need to know which end of a slow link is slow.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "r2ccl/balance/meter.h"

namespace r2ccl {

/// A NIC as its peers know it: the GID of its port.
using NicAddress = std::array<uint8_t, 16>;

class LinkMeters {
 public:
  /// The meter of a link, made when it is first asked for, and as long as this. Any thread.
  balance::NicMeter* of(int nic, const NicAddress& peer) {
    const std::lock_guard lock(mutex_);
    auto& meter = meters_[{nic, peer}];
    if (!meter) meter = std::make_unique<balance::NicMeter>();
    return meter.get();
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, NicAddress>, std::unique_ptr<balance::NicMeter>> meters_;
};

/// Apart, so that modes without links pay for a branch alone.
template <typename Now>
[[gnu::noinline, gnu::cold]] void post_on_link(balance::NicMeter& link, uint32_t bytes, Now now) {
  link.posted(bytes, now);
}
template <typename Now>
[[gnu::noinline, gnu::cold]] void done_on_link(balance::NicMeter& link, uint32_t bytes, uint64_t work, Now now) {
  link.done(bytes, work, now);
}

/// A path's writes, on the meter of its NIC and on that of its link, if there is one. Small ones count on neither.
template <typename Now>
int meter_post(balance::NicMeter& nic, balance::NicMeter* link, uint32_t bytes, Now now) {
  if (bytes < balance::NicMeter::kLeastBytes) return 0;
  if (link) [[unlikely]]
    post_on_link(*link, bytes, now);
  return nic.posted(bytes, now);
}
template <typename Now>
int meter_done(balance::NicMeter& nic, balance::NicMeter* link, uint32_t bytes, uint64_t work, Now now) {
  if (bytes < balance::NicMeter::kLeastBytes) return 0;
  if (link) [[unlikely]]
    done_on_link(*link, bytes, work, now);
  return nic.done(bytes, work, now);
}
inline void meter_abandon(balance::NicMeter& nic, balance::NicMeter* link, int writes, uint64_t now) {
  if (link) link->abandoned(writes, now);
  nic.abandoned(writes, now);
}

}  // namespace r2ccl
