// SPDX-License-Identifier: Apache-2.0
// Who wants to know what this process's links to some peers carry, and is told when that changes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "r2ccl/balance/peer_links.h"
#include "r2ccl/service/net.h"

namespace r2ccl {

class LinkWatches {
 public:
  explicit LinkWatches(LinkMeters& meters) : meters_(meters) {}

  /// Any thread. `nominal[i]`: rate of device i in any unit, > 0.
  std::unique_ptr<LinkWatch> add(LinksWanted wanted, std::span<const double> nominal);
  /// One thread. `part[i]` of device i, and `planned`, as of balance::Capacities::take(); `traffic`: this process
  /// has sent since the last look.
  void look(uint64_t now, std::span<const double> part, uint64_t planned, bool traffic);

 private:
  struct Watch;
  struct Handle;
  LinkMeters& meters_;
  std::mutex mutex_;  // guards the following; held while somebody is told
  std::vector<Watch*> watches_;
};

}  // namespace r2ccl
