// SPDX-License-Identifier: Apache-2.0
// Which rail a path may be opened over, or take traffic, and which one is opened next. Rails that have not
// failed since traffic flowed come before those that have, straight ones first, in the order in which local
// NICs are wanted; then every cross rail. A path shares no NIC with the active one unless there is no other
// way. Pure.
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

#include "r2ccl/protocol/opening.h"

namespace r2ccl {

struct Rail {
  int local, remote;  ///< NICs
  bool operator==(const Rail&) const = default;
};

/// What is known of a rail.
struct RailSight {
  bool home = false;         ///< it is the channel's home rail
  bool local_up = true;      ///< nothing is known to be the matter with its NIC of this end
  bool driver_late = false;  ///< … but its driver does not answer
  bool remote_up = true;     ///< … of the peer
  bool barred = false;       ///< it has failed of late, and is left alone
  bool home_is_up = true;    ///< the home rail has not failed, or traffic has come back to it
};

namespace rail {

/// A path over it that is there may carry.
constexpr bool is_up(const RailSight& seen) { return seen.local_up && seen.remote_up; }
/// A path over it may work.
constexpr bool may_work(const RailSight& seen) { return is_up(seen) && !seen.driver_late; }
/// Traffic may move there, as a lane or to another NIC. A home rail that has failed comes back by failback,
/// which waits until it has proved itself.
constexpr bool may_take(const RailSight& seen) {
  return may_work(seen) && !seen.barred && (!seen.home || seen.home_is_up);
}
/// It carries already, or may. `carries`: a path over it does.
constexpr bool may_carry(const RailSight& seen, bool carries) { return carries || may_take(seen); }
/// A path may be opened over it. `has_path`: there is one that has not failed.
constexpr bool may_open(const RailSight& seen, Purpose purpose, bool resilient, bool has_path) {
  if (!may_work(seen) || seen.barred || has_path) return false;
  if (!seen.home) return resilient;
  return seen.home_is_up || purpose != Purpose::kStandby;
}

/// There is a path over the rail already, which has not failed. One that has is fenced for as long as its NIC
/// stands still: should the rail come back meanwhile, another path is opened over it.
constexpr bool occupies(const Rail& of_path, bool has_failed, const Rail& rail) {
  return of_path == rail && !has_failed;
}
/// The peer's NIC that works with `local` when nothing is the matter: at the same distance from home at both
/// ends.
constexpr int straight(int local, int locals, const Rail& home, int remotes) {
  return (local + remotes * locals + home.remote - home.local) % remotes;
}

}  // namespace rail

/// A sender without an active path takes this one first. `kept`: for the way home.
constexpr bool takes_over(PathState state, bool kept, const RailSight& seen) {
  return may_take_over(state) && !kept && rail::is_up(seen);
}

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
