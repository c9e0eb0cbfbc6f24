// SPDX-License-Identifier: Apache-2.0
// Balance: lanes beside the active path, over other rails, that carry segments of messages. The sender
// decides alone, from what each NIC can carry and what traffic has its home where; the receiver only has to
// know which paths to look at. While everything stays at home there are no lanes.
#include <algorithm>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"

namespace r2ccl {
namespace {

constexpr uint64_t kBalanceNs = 10 * kNsPerMs;
constexpr uint64_t kRestAfterNs = 1000 * kNsPerMs;

}  // namespace

bool Channel::usable_rail(int local, int remote, uint64_t now) const {
  const bool home = local == home_nic_ && remote == peer_.home_nic();
  return context_.usable(local) && !peer_.nic_down(remote) && !rails_.barred(local, remote, now) &&
         // It comes back by failback, which waits until it has proved itself.
         (!home || failback_.is_up());
}

// The peer's NIC that works with `local` when nothing is the matter: at the same distance from home on both
// sides.
int Channel::straight(int local) const {
  const int locals = int(context_.devices.size()), remotes = peer_.nics();
  return (local + remotes * locals + peer_.home_nic() - home_nic_) % remotes;
}

uint8_t Channel::far_rails() const {
  uint8_t far = 0;
  for (size_t l = 0; l < context_.devices.size(); ++l)
    if (is_far(int(l), straight(int(l)))) far |= uint8_t(1u << l);
  return far;
}

// What balance/lane_plan.h asks.
struct Channel::RailSight {
  const Channel& c;
  uint64_t now;

  size_t locals() const { return c.context_.devices.size(); }
  size_t remotes() const { return size_t(c.peer_.nics()); }
  int straight(int local) const { return c.straight(local); }
  bool local_usable(int l) const { return c.context_.usable(l); }
  bool remote_usable(int r) const { return !c.peer_.nic_down(r); }
  bool rail_usable(int l, int r) const {
    const bool carries = c.paths_.any([&](const auto& path) {
      return path->carries() && path->local_nic() == l && path->remote_nic() == r;
    });
    return carries || c.usable_rail(l, r, now);
  }
  bool far(int l, int r) const { return c.is_far(l, r); }
  double capacity(int l) const { return c.context_.capacities.capacity(size_t(l)); }
  double nominal(int l) const { return c.context_.capacities.nominal(size_t(l)); }
  bool gray(int l) const { return c.context_.capacities.gray(size_t(l)); }
};

void Channel::step_balance(const Tick& tick) {
  if (tick.now < next_balance_ || end_.phase() != Phase::kRunning || !active() ||
      status() != Status::kReady || !in_demand(tick.now))
    return;
  next_balance_ = tick.now + kBalanceNs;
  const bool spread = lane_plan_.spreads();
  lane_plan_.look(RailSight{*this, tick.now},
                  {context_.demand, context_.demand_version, context_.config.far_cost()},
                  {size_t(home_nic_), at_home(), follows_plan(), context_.config.cross_socket > 0});
  if (!lane_plan_.spreads() && !spread && paths_.lanes().empty()) return;
  add_lanes(tick);
  apply_shares();
  rest_lanes(tick);
}

// Over rails that are to carry something; a path that stands by there becomes the lane.
void Channel::add_lanes(const Tick& tick) {
  for (int local = 0; local < int(context_.devices.size()); ++local) {
    const int remote = lane_plan_.partner(local);
    if (!lane_plan_.wants(local, remote)) continue;
    Path* path = nullptr;
    for (auto& candidate : paths_)
      if (candidate->local_nic() == local && candidate->remote_nic() == remote &&
          !failback_.has(candidate->id()))
        path = candidate.get();
    if (path && path->state == PathState::kStandby)
      start_lane(*path);
    else if (!path && !opening_.under_way() && usable_rail(local, remote, tick.now))
      start_opening(Purpose::kLane, {local, remote}, tick);
  }
}

// Lanes that nobody has needed for a while stand by.
void Channel::rest_lanes(const Tick& tick) {
  for (size_t i = 0; i < paths_.lanes().size(); ++i) {
    Path& lane = *paths_.lanes()[i];
    if (lane_plan_.wants(lane.local_nic(), lane.remote_nic()))
      lane.since = tick.now;
    else if (tick.now - lane.since > kRestAfterNs && rest_lane(lane))
      --i;
  }
}

// What each path carries of its rail's share; rails without a path yet leave theirs to the others.
void Channel::apply_shares() {
  const OwnershipGuard owned(ownership_);
  std::vector<balance::LaneShare> parts;
  double sum = 0;
  const auto add = [&](const Path& path) {
    parts.push_back({lane_plan_.share(path.local_nic(), path.remote_nic()),
                     context_.capacities.gray(size_t(path.local_nic())) || is_far(path)});
    sum += parts.back().share;
  };
  add(*active());
  for (const Path* lane : paths_.lanes()) add(*lane);
  if (sum <= 0) parts.clear();
  for (balance::LaneShare& part : parts) part.share /= sum;
  spread(parts, owned);
}

void Channel::start_lane(Path& path) {
  Actions actions(*this);
  ChannelEnd(end_, actions).start_lane(path.id());
  emit(trace::EventType::kLaneUp, path.local_nic(), path.id(), uint64_t(path.remote_nic()),
       uint64_t(1000 * lane_plan_.share(path.local_nic(), path.remote_nic())));
}

// A lane that nobody needs stands by again.
bool Channel::rest_lane(Path& lane) {
  if (!context_.strict_ack()) return false;  // else nobody knows when the last segment has been seen
  const int nic = lane.local_nic();
  const uint32_t id = lane.id();
  Actions actions(*this);
  if (!ChannelEnd(end_, actions).rest_lane(id)) return false;
  emit(trace::EventType::kLaneRests, nic, id);
  next_balance_ = 0;  // the others' shares stand for a lane fewer
  return true;
}

// What it has under way will not be reported.
void Channel::abandon(Path& path, Owned) {
  context_.meters[size_t(path.local_nic())].abandoned(std::exchange(path.metered, 0), now_ns());
}

// Until the shares are computed anew everything goes over the active path.
void Channel::remove_lane(const Path& path, Owned owned) {
  paths_.remove_lane(path, owned);
  spread({}, owned);
}

void Channel::on_lane(uint32_t id) {
  Actions actions(*this);
  ChannelEnd(end_, actions).on_lane(id);
}

void Channel::on_rest(uint32_t id) {
  Actions actions(*this);
  ChannelEnd(end_, actions).on_rest(id);
}

}  // namespace r2ccl
