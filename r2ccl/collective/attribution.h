// SPDX-License-Identifier: Apache-2.0
// Which NICs are slow, from the rates of links. A sender measures what its link to a peer carries, and cannot
// tell whether its own NIC or the peer's holds it back; the links of all nodes together often can. A NIC that
// is slow holds back its links to and from all others, while the links between those are fast. Pure.
//
// The answer is the smallest set of NICs that explains every slow link and contradicts no fast one. Where
// there are several such sets, or a NIC would be named for a single link, no NIC is named: the cable, the
// switch and either end explain that link alike.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "r2ccl/collective/agreement.h"

namespace r2ccl::collective {

/// A link's rate relative to what the sender's other rails carry to the same peer. Not known: it was not busy
/// enough to tell.
inline constexpr CapacityCode kLinkUnknown = 0;
/// From here on a link counts as fast. Who measures has the hysteresis: a link is nominal until it is slow.
inline constexpr CapacityCode kLinkFast = 9'300;
constexpr bool is_slow(CapacityCode link) { return link != kLinkUnknown && link < kLinkFast; }
constexpr bool is_fast(CapacityCode link) { return link >= kLinkFast; }

/// No plan counts on a NIC that carries less: its messages take so long that its paths are taken for silent, and
/// what it carries is hard to tell. It is left to Balance, which sends over it next to nothing.
inline constexpr CapacityCode kLeastByLinks = 1'500;

/// More slow NICs than these, with links between them, are not told apart.
inline constexpr size_t kMostSlowTogether = 6;

/// The links of one rail among `nodes` nodes: link[from * nodes + to].
struct RailLinks {
  size_t nodes = 0;
  std::vector<CapacityCode> link;

  explicit RailLinks(size_t count) : nodes(count), link(count * count, kLinkUnknown) {}
  CapacityCode& at(size_t from, size_t to) { return link[from * nodes + to]; }
  CapacityCode at(size_t from, size_t to) const { return link[from * nodes + to]; }
};

/// What the NIC of each node on this rail carries; kNominal: it is not known to be slow. `before`: the last
/// answer. A NIC that it names stays named while one of its links is slow, if nothing else is certain: the
/// links of a NIC that recovers do not become fast at the same moment.
std::vector<CapacityCode> attribute(const RailLinks& links, std::span<const CapacityCode> before);

}  // namespace r2ccl::collective
