// SPDX-License-Identifier: Apache-2.0
// Balance: lanes beside the active path, over other rails, that carry segments of messages. The sender
// decides alone, from what each NIC can carry and what traffic has its home where; the receiver only has to
// know which paths to look at. While everything stays at home there are no lanes.
#include <algorithm>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"
#include "r2ccl/channel/sender_paths.h"

namespace r2ccl {
// What balance/lane_plan.h asks.
struct SenderPaths::LaneHost {
  const SenderPaths& c;
  uint64_t now;

  size_t locals() const { return c.context_.devices.size(); }
  size_t remotes() const { return size_t(c.peer_.nics()); }
  int straight(int local) const { return c.straight(local); }
  bool local_usable(int l) const { return c.context_.usable(l); }
  bool remote_usable(int r) const { return c.peer_.nic_up(r); }
  bool rail_usable(int l, int r) const {
    const bool carries = c.paths_.any([&](const auto& path) {
      return path->carries() && path->local_nic() == l && path->remote_nic() == r;
    });
    return rail::may_carry(c.see_rail(l, r, now), carries);
  }
  bool far(int l, int r) const { return c.is_far(l, r); }
  double capacity(int l) const { return c.context_.capacities.capacity(size_t(l)); }
  double nominal(int l) const { return c.context_.capacities.nominal(size_t(l)); }
  bool gray(int l) const { return c.context_.is_degraded(size_t(l), c.plan()); }
};

void SenderPaths::step_balance(const Tick& tick) {
  if (!lane_plan_.due(status() == Status::kReady, in_demand(tick.now), tick.now)) return;
  lane_plan_.look(LaneHost{*this, tick.now},
                  {context_.demand, context_.demand_version, context_.config.far_cost()},
                  {size_t(home_nic_), at_home(), follows_plan(), context_.config.cross_socket > 0});
  if (!lane_plan_.applies(!paths_.lanes().empty())) return;
  add_lanes(tick);
  apply_shares(tick);
  rest_lanes(tick);
}

// Over rails that are to carry something; a path that stands by there becomes the lane.
void SenderPaths::add_lanes(const Tick& tick) {
  for (int local = 0; local < int(context_.devices.size()); ++local) {
    const int remote = lane_plan_.partner(local);
    if (!lane_plan_.wants(local, remote)) continue;
    Path* path =
        paths_.first([&](const Path* it) {  // there is one at most: a rail that has one gets no other
          return it->local_nic() == local && it->remote_nic() == remote && !failback_.has(it->id());
        });
    balance::LanePlan::LaneSight seen;
    seen.has_path = path != nullptr;
    seen.stands_by = path && stands_by(*path);
    seen.opens = opening_.under_way();
    seen.may_take = rail::may_take(see_rail(local, remote, tick.now));
    switch (balance::LanePlan::add(seen)) {
      case balance::LanePlan::Lane::kNothing:
        break;
      case balance::LanePlan::Lane::kStart:
        start_lane(*path);
        break;
      case balance::LanePlan::Lane::kOpen:
        start_opening(Purpose::kLane, {local, remote}, tick);
        break;
    }
  }
}

// Lanes that nobody has needed for a while stand by.
void SenderPaths::rest_lanes(const Tick& tick) {
  for (size_t i = 0; i < paths_.lanes().size(); ++i) {
    Path& lane = *paths_.lanes()[i];
    switch (lane_plan_.keep(lane.local_nic(), lane.remote_nic(), lane.since, tick.now)) {
      case balance::LanePlan::Keep::kWanted:
        lane.since = tick.now;
        break;
      case balance::LanePlan::Keep::kWaits:
        break;
      case balance::LanePlan::Keep::kRests:
        if (rest_lane(lane)) --i;
        break;
    }
  }
}

void SenderPaths::apply_shares(const Tick& tick) {
  const OwnershipGuard owned(ownership_);
  std::vector<balance::LanePlan::Carrier> carriers;
  const auto add = [&](const Path& path) {
    const bool gray = context_.capacities.gray(size_t(path.local_nic()));
    carriers.push_back({path.local_nic(), path.remote_nic(), gray, is_far(path)});
  };
  add(*active());
  for (const Path* lane : paths_.lanes()) add(*lane);
  const std::vector<balance::LaneShare> parts = lane_plan_.parts(carriers);
  spread(parts, owned);
  spread_tiny(parts, tick, owned);
}

// All of a channel's tiniest messages travel on one NIC: of the channels that are away from home, no more
// choose the same one than must.
void SenderPaths::spread_tiny(std::span<const balance::LaneShare> parts, const Tick& tick, Owned owned) {
  const std::optional<int> nic = less_for_tiny(
      context_.load(false), see_traffic(tick.now), at_home(), context_.backups[size_t(home_nic_)],
      context_.config.far_cost(), [this](int to) { return lane_for_tiny(to) != nullptr; });
  if (!nic) return;
  for_tiny_ = lane_for_tiny(*nic)->id();
  spread(parts, owned);
  context_.load_stale = true;
}

void SenderPaths::start_lane(Path& path) {
  Actions actions(*this);
  ChannelEnd(end_, actions).start_lane(path.id());
  emit(trace::EventType::kLaneUp, path.local_nic(), path.id(), uint64_t(path.remote_nic()),
       uint64_t(1000 * lane_plan_.share(path.local_nic(), path.remote_nic())));
}

// A lane that nobody needs stands by again.
bool SenderPaths::rest_lane(Path& lane) {
  const int nic = lane.local_nic();
  const uint32_t id = lane.id();
  Actions actions(*this);
  if (!ChannelEnd(end_, actions).rest_lane(id)) return false;
  emit(trace::EventType::kLaneRests, nic, id);
  lane_plan_.look_soon();  // the others' shares stand for a lane fewer
  return true;
}

}  // namespace r2ccl
