// SPDX-License-Identifier: Apache-2.0
// Balance: lanes beside the active path, over other rails, that carry segments of messages. The sender
// decides alone, from what each NIC can carry and what traffic has its home where; the receiver only has to
// know which paths to look at. While everything stays at home there are no lanes.
#include <algorithm>
#include <utility>

#include "r2ccl/balance/shares.h"
#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"

namespace r2ccl {
namespace {

constexpr uint64_t kBalanceNs = 10 * kNsPerMs;
constexpr double kLeastShare = 0.01;  // not worth a lane
constexpr double kAtHome = 0.999;     // as good as everything
constexpr uint64_t kRestAfterNs = 1000 * kNsPerMs;

}  // namespace

bool Channel::usable_rail(int local, int remote, uint64_t now) const {
  const bool home = local == home_nic_ && remote == peer_home_nic_;
  return !context_.nic_unusable[size_t(local)] && !context_.nic_down[size_t(local)] &&
         !peer_nic_down_[size_t(remote)] && !context_.workers->stuck(local) &&
         !rails_.barred(local, remote, now) &&
         // It comes back by failback, which waits until it has proved itself.
         (!home || home_rail_.state() == health::RailState::kUp);
}

// The peer's NIC that works with `local` when nothing is the matter: at the same distance from home on both
// sides.
int Channel::straight(int local) const {
  const size_t locals = context_.devices.size(), remotes = peer_hello_.nics;
  return int((size_t(local) + remotes * locals + size_t(peer_home_nic_) - size_t(home_nic_)) % remotes);
}

uint8_t Channel::far_rails() const {
  uint8_t far = 0;
  for (size_t l = 0; l < context_.devices.size(); ++l)
    if (is_far(int(l), straight(int(l)))) far |= uint8_t(1u << l);
  return far;
}

void Channel::step_balance(const Tick& tick) {
  if (tick.now < next_balance_ || end_.phase() != Phase::kRunning || !active_ || status() != Status::kReady ||
      !in_demand(tick.now))
    return;
  next_balance_ = tick.now + kBalanceNs;
  const size_t locals = context_.devices.size(), remotes = peer_hello_.nics;
  std::array<bool, balance::kMaxRails> local_usable{}, remote_usable{};
  for (size_t l = 0; l < locals; ++l)
    local_usable[l] = !context_.nic_unusable[l] && !context_.nic_down[l] && !context_.workers->stuck(int(l));
  for (size_t r = 0; r < remotes; ++r) remote_usable[r] = !peer_nic_down_[size_t(straight(int(r)))];
  auto partner = balance::pair_nics({local_usable.data(), locals}, {remote_usable.data(), remotes});
  balance::PerRail capacity{}, nominal{};
  bool impaired = false, any_gray = false;
  uint8_t far = 0;
  for (size_t l = 0; l < locals; ++l) {
    if (partner[l] >= 0) partner[l] = straight(partner[l]);
    nominal[l] = context_.capacities.nominal(l);
    if (is_far(int(l), partner[l] >= 0 ? partner[l] : straight(int(l)))) far |= uint8_t(1u << l);
    // A peer with fewer NICs leaves some of ours without a partner: that is no failure.
    impaired = impaired || (partner[l] < 0 && l < remotes);
    any_gray = any_gray || context_.capacities.gray(l);
    if (partner[l] < 0) continue;
    const bool ours = std::any_of(paths_.begin(), paths_.end(), [&](const auto& path) {
      return carries(*path) && path->local_nic() == int(l) && path->remote_nic() == partner[l];
    });
    if (ours || usable_rail(int(l), partner[l], tick.now)) capacity[l] = context_.capacities.capacity(l);
    impaired = impaired || capacity[l] <= 0;
  }
  impaired = impaired || any_gray;
  // What crossing sockets costs is a reason to spread only when it is known.
  impaired = impaired || (far != 0 && context_.config.cross_socket > 0);
  // All is well: NCCL has spread its channels over the NICs. Or a plan has, which knows what is lost.
  if ((!impaired || (follows_plan() && !any_gray)) && at_home()) {
    shares_ = {};
    shares_[size_t(home_nic_)] = 1;
  } else {
    if (computed_.demand_version != context_.demand_version || computed_.far != far ||
        computed_.capacity != capacity)
      computed_ = {
          capacity, far, context_.demand_version,
          balance::shares({{capacity.data(), locals}, {nominal.data(), locals}, context_.config.far_cost()},
                          context_.demand, far, size_t(home_nic_))};
    shares_ = computed_.shares;
  }
  const bool spread = !(at_home() && shares_[size_t(home_nic_)] > kAtHome);
  if (!spread && !spread_ && lanes_.empty()) return;
  spread_ = spread;
  for (size_t l = 0; l < locals; ++l) {
    if (shares_[l] < kLeastShare || partner[l] < 0) continue;
    Path* path = nullptr;
    for (auto& candidate : paths_)
      if (candidate->local_nic() == int(l) && candidate->remote_nic() == partner[l] &&
          candidate->id() != probation_path_)
        path = candidate.get();
    if (path && path->state == PathState::kStandby)
      start_lane(*path);
    else if (!path && opening_.path == 0 && usable_rail(int(l), partner[l], tick.now))
      start_opening(Purpose::kLane, int(l), partner[l], tick);
  }
  apply_shares(partner);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Path& lane = *lanes_[i];
    if (shares_[size_t(lane.local_nic())] >= kLeastShare &&
        partner[size_t(lane.local_nic())] == lane.remote_nic())
      lane.since = tick.now;
    else if (tick.now - lane.since > kRestAfterNs && rest_lane(lane))
      --i;
  }
}

// What each path carries of its rail's share; rails without a path yet leave theirs to the others.
void Channel::apply_shares(const std::array<int, balance::kMaxRails>& partner) {
  const OwnershipGuard owned(ownership_);
  std::vector<balance::LaneShare> parts;
  double sum = 0;
  const auto add = [&](const Path& path) {
    const auto nic = size_t(path.local_nic());
    const bool wanted = partner[nic] == path.remote_nic() && shares_[nic] >= kLeastShare;
    parts.push_back({wanted ? shares_[nic] : 0, context_.capacities.gray(nic) || is_far(path)});
    sum += parts.back().share;
  };
  add(*active_);
  for (const Path* lane : lanes_) add(*lane);
  if (sum <= 0) parts.clear();
  for (balance::LaneShare& part : parts) part.share /= sum;
  spread(parts, owned);
}

void Channel::start_lane(Path& path) {
  Actions actions(*this);
  ChannelEnd(end_, actions).start_lane(path.id());
  emit(trace::EventType::kLaneUp, path.local_nic(), path.id(), uint64_t(path.remote_nic()),
       uint64_t(1000 * shares_[size_t(path.local_nic())]));
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
  std::erase(lanes_, &path);
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
