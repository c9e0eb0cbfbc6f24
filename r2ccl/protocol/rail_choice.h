// SPDX-License-Identifier: Apache-2.0
// Which rail a path is opened over. Rails that have not failed since traffic flowed come before those that
// have, straight ones first, in the order in which local NICs are wanted; then every cross rail. A path
// shares no NIC with the active one unless there is no other way. Pure.
//
// A Host answers, for local NIC `l` and the peer's NIC `r`:
//   locals(), remotes()   how many there are
//   wanted(k)             the local NIC that is wanted as number k
//   straight(l)           the peer's NIC that works with `l` when nothing is the matter
//   home_remote()         … of the home rail; cross rails are tried from there on
//   usable(l, r)          a path may be opened over it
//   shares(l, r)          one of its NICs carries the active path
//   failures(l, r)        a pair: of this rail, and of all that share a NIC with it
#pragma once

#include <optional>
#include <utility>

namespace r2ccl {

struct Rail {
  int local, remote;  ///< NICs
  bool operator==(const Rail&) const = default;
};

template <class Host>
std::optional<Rail> choose_rail(const Host& host) {
  std::optional<Rail> best;
  std::pair<unsigned, unsigned> least{};
  const auto consider = [&](int l, int r, bool disjoint) {
    if (!host.usable(l, r) || (disjoint && host.shares(l, r))) return;
    const std::pair<unsigned, unsigned> failures = host.failures(l, r);
    if (best && failures >= least) return;
    best = {l, r};
    least = failures;
  };
  for (const bool disjoint : {true, false}) {
    for (int k = 0; k < host.locals(); ++k) {
      const int l = host.wanted(k);
      consider(l, host.straight(l), disjoint);
    }
    if (best && least.first == 0) return best;
    for (int k = 0; k < host.locals(); ++k)
      for (int j = 0; j < host.remotes(); ++j)
        consider(host.wanted(k), (host.home_remote() + j) % host.remotes(), disjoint);
    if (best) return best;
  }
  return std::nullopt;
}

}  // namespace r2ccl
