// SPDX-License-Identifier: Apache-2.0
// Which rails a sending channel uses, and for how much of its traffic: from what its node's NICs and the
// peer's can carry, and from what traffic of the node has its home where. While everything is well that is
// its home rail alone. Pure.
//
// A Host answers, for NIC `l` of this node and NIC `r` of the peer:
//   locals(), remotes()      how many there are
//   straight(l)              the peer's NIC that works with `l` when nothing is the matter
//   local_usable(l), remote_usable(r)
//   rail_usable(l, r)        a path over them may be opened, or is there
//   far(l, r)                what is being sent crosses sockets on this rail
//   capacity(l), nominal(l)  now, and when nothing is the matter, in one unit
//   gray(l)                  it carries less than its nominal rate
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "r2ccl/balance/shares.h"
#include "r2ccl/balance/splitter.h"

namespace r2ccl::balance {

class LanePlan {
 public:
  /// A smaller share is not worth a lane.
  static constexpr double kLeastShare = 0.01;
  static constexpr uint64_t kLookEveryNs = 10'000'000;
  /// A lane that has carried nothing for so long rests.
  static constexpr uint64_t kRestAfterNs = 1'000'000'000;
  /// What is to be done over a rail that is to carry something.
  enum class Lane : uint8_t {
    kNothing,  ///< there is a path, which carries already or cannot; or none can be opened now
    kStart,    ///< the path that stands by there becomes a lane
    kOpen,     ///< a path is opened
  };
  struct LaneSight {
    bool has_path = false;   ///< there is a path over it, which is not kept for the way home
    bool stands_by = false;  ///< … it stands by
    bool opens = false;      ///< some path is being opened
    bool may_take = false;   ///< a path over it may be opened, and take traffic (rail_choice.h)
  };
  static constexpr Lane add(const LaneSight& seen) {
    if (seen.has_path) return seen.stands_by ? Lane::kStart : Lane::kNothing;
    return !seen.opens && seen.may_take ? Lane::kOpen : Lane::kNothing;
  }
  /// What becomes of a lane. `since`: when the plan wanted it last. Both CLOCK_MONOTONIC, ns.
  enum class Keep : uint8_t {
    kWanted,  ///< it is wanted now
    kWaits,   ///< it may be wanted again soon
    kRests,   ///< it may rest
  };
  Keep keep(int local, int remote, uint64_t since, uint64_t now) const {
    if (wants(local, remote)) return Keep::kWanted;
    return now - since > kRestAfterNs ? Keep::kRests : Keep::kWaits;
  }

  /// The node's traffic, and what changes with it.
  struct Traffic {
    const Demand& demand;
    uint64_t version;  ///< another one when `demand` is
    double far_cost;   ///< as in Rails
  };
  struct Channel {
    size_t home;        ///< its NIC of this node
    bool at_home;       ///< its active path is over its home rail
    bool follows_plan;  ///< a plan for all NICs has put its traffic there, and knows what is lost
    bool minds_far;     ///< what crossing sockets costs is known: a reason to spread
  };
  /// Is it time to look? `ready`: the channel can send; `in_demand`: it has of late. `now`: CLOCK_MONOTONIC,
  /// ns.
  bool due(bool ready, bool in_demand, uint64_t now) {
    if (!ready || !in_demand || now < next_look_) return false;
    next_look_ = now + kLookEveryNs;
    return true;
  }
  /// Something has changed: at the next opportunity.
  void look_soon() { next_look_ = 0; }
  template <class Host>
  void look(const Host& host, const Traffic& traffic, const Channel& channel) {
    pair(host);
    const Sight seen = see(host, channel);
    if ((!seen.impaired || (channel.follows_plan && !seen.any_gray)) && channel.at_home) {
      shares_ = {};
      shares_[channel.home] = 1;
    } else {
      const size_t locals = host.locals();
      if (computed_.version != traffic.version || computed_.far != seen.far ||
          computed_.capacity != seen.capacity)
        computed_ = {seen.capacity, seen.far, traffic.version,
                     shares({{seen.capacity.data(), locals}, {seen.nominal.data(), locals}, traffic.far_cost},
                            traffic.demand, seen.far, channel.home)};
      shares_ = computed_.shares;
    }
    spread_ = spreads_;
    spreads_ = !(channel.at_home && shares_[channel.home] > kAll);
  }

  /// Some traffic is meant to leave its home.
  bool spreads() const { return spreads_; }
  /// Lanes and shares are to be looked at: there are some, or there were by the look before.
  bool applies(bool has_lanes) const { return spreads_ || spread_ || has_lanes; }
  /// The peer's NIC that works with `local`; -1: none.
  int partner(int local) const { return partner_[size_t(local)]; }
  /// Is this rail to carry anything? A NIC without a partner has none.
  bool wants(int local, int remote) const {
    return remote >= 0 && partner_[size_t(local)] == remote && shares_[size_t(local)] >= kLeastShare;
  }
  /// The rail's share of the channel's traffic.
  double share(int local, int remote) const { return wants(local, remote) ? shares_[size_t(local)] : 0; }
  struct Carrier {
    int local, remote;
    bool gray;  ///< its NIC of this node is
    bool far;   ///< what is being sent crosses sockets on this rail
  };
  /// What each path carries of its rail's share: rails without a path leave theirs to the others. Empty: the
  /// active path carries everything.
  std::vector<LaneShare> parts(std::span<const Carrier> paths) const {
    std::vector<LaneShare> parts;
    double sum = 0;
    for (const Carrier& path : paths) {
      parts.push_back({share(path.local, path.remote), path.gray || path.far});  // slow: for either reason
      sum += parts.back().share;
    }
    if (sum <= 0) parts.clear();
    for (LaneShare& part : parts) part.share /= sum;
    return parts;
  }

 private:
  static constexpr double kAll = 0.999;  // as good as everything

  struct Sight {
    bool impaired = false, any_gray = false;
    PerRail capacity{}, nominal{};
    uint8_t far = 0;
  };
  template <class Host>
  void pair(const Host& host) {
    const size_t locals = host.locals(), remotes = host.remotes();
    std::array<bool, kMaxRails> local{}, remote{};
    for (size_t l = 0; l < locals; ++l) local[l] = host.local_usable(int(l));
    for (size_t r = 0; r < remotes; ++r) remote[r] = host.remote_usable(host.straight(int(r)));
    partner_ = pair_nics({local.data(), locals}, {remote.data(), remotes});
    for (int& partner : partner_)
      if (partner >= 0) partner = host.straight(partner);
  }
  template <class Host>
  Sight see(const Host& host, const Channel& channel) const {
    Sight seen;
    const size_t locals = host.locals();
    for (size_t i = 0; i < locals; ++i) {
      const int l = int(i), r = partner_[i];
      seen.nominal[i] = host.nominal(l);
      if (host.far(l, r >= 0 ? r : host.straight(l))) seen.far |= uint8_t(1u << i);
      seen.any_gray = seen.any_gray || host.gray(l);
      if (r >= 0 && host.rail_usable(l, r)) seen.capacity[i] = host.capacity(l);
      // A peer with fewer NICs leaves some of ours without a partner: that is no failure.
      const bool lacks = r < 0 ? i < host.remotes() : seen.capacity[i] <= 0;
      seen.impaired = seen.impaired || lacks;
    }
    seen.impaired = seen.impaired || seen.any_gray || (seen.far != 0 && channel.minds_far);
    return seen;
  }

  std::array<int, kMaxRails> partner_{};
  PerRail shares_{};
  bool spreads_ = false, spread_ = false;  // by the last look, and by the one before
  // What shares were last computed from, and what came out.
  struct Computed {
    PerRail capacity{};
    uint8_t far = 0;
    uint64_t version = ~uint64_t{0};
    PerRail shares{};
  } computed_;
  uint64_t next_look_ = 0;
};

}  // namespace r2ccl::balance
