// SPDX-License-Identifier: Apache-2.0
// Mode 1 carries each channel on one NIC. So that no NIC carries more of those that have lost their own than
// it must, they are spread: when a path is chosen, by what every NIC carries and is about to carry; and
// afterwards, when it turns out that another NIC has clearly less to do, by a planned migration as failback
// is one. Channels at home never move.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/sender_paths.h"

namespace r2ccl {

// The path that a channel without an active one takes first.
const Path* SenderPaths::usable_standby() const {
  for (const auto& path : paths_)
    if (may_take_over(path->state) && !failback_.has(path->id()) &&
        !context_.nic_unusable[size_t(path->local_nic())] && !context_.nic_down[size_t(path->local_nic())] &&
        !peer_.nic_down(path->remote_nic()))
      return path.get();
  return nullptr;
}

// The NIC that carries it, or is going to. A path is as good as taken when it is being opened for that.
int SenderPaths::bound_for() const {
  if (active() && spread_move_.path() == 0 && !opening_.is_for(Purpose::kSpread))
    return active()->local_nic();
  const uint32_t target = active() ? spread_move_.path() : end_.target();
  for (const auto& path : paths_)
    if (target != 0 && path->id() == target) return path->local_nic();
  if (active()) return opening_.local();
  if (const Path* path = usable_standby()) return path->local_nic();
  return opening_.is_for(Purpose::kRescue) ? opening_.local() : home_nic_;
}

bool SenderPaths::add_to(NicLoad& load, const Tick& tick) const {
  if (status() == Status::kFailed || status() == Status::kClosed || peer_has_closed()) return false;
  const double weight = in_demand(tick.now) ? 1 : NicLoad::kIdle;
  const auto home = size_t(home_nic_), bound = size_t(bound_for());
  load.own[home] += weight;
  if (bound != home) load.own[bound] += weight;
  if (!active()) return bound != home;
  const auto at = size_t(active()->local_nic());
  if (at != bound) ++load.leaving[at];
  for (const auto& path : paths_)
    if (stands_by(*path) && !spread_move_.has(path->id()))
      load.behind[at][size_t(path->local_nic())] += weight;
  if (opening_.is_for(Purpose::kStandby)) load.behind[at][size_t(opening_.local())] += weight;
  return at != home;
}

// The NICs in the order in which a path over them is wanted: home, then those that would have the least to
// carry, this channel and those that would leave the active NIC together with it included; of them the
// nearest. On a NIC across sockets a channel takes longer by what crossing costs.
std::vector<Backup> SenderPaths::by_load(uint64_t now) const {
  const NicLoad& load = context_.load(false);
  const int at = active() ? active()->local_nic() : -1, bound = bound_for();
  const auto would_carry = [&](const Backup& backup) {
    double carried = load.on(backup.nic);
    if (bound == backup.nic) carried -= in_demand(now) ? 1 : NicLoad::kIdle;
    if (at >= 0) carried += load.behind[size_t(at)][size_t(backup.nic)];
    return carried + (backup.crosses ? context_.config.far_cost() : 1);
  };
  std::vector<std::pair<double, Backup>> others;
  for (const Backup& backup : context_.backups[size_t(home_nic_)])
    others.emplace_back(would_carry(backup), backup);
  // Channels that are idle count only among NICs that are equally near.
  const auto key = [](const auto& other) {
    return std::tuple(std::round(other.first), other.second.distance, other.first);
  };
  std::stable_sort(others.begin(), others.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<Backup> order{{home_nic_, -1}};
  for (const auto& other : others) order.push_back(other.second);
  return order;
}

// A NIC with a straight rail to the peer on which this channel would have less beside it.
std::optional<int> SenderPaths::less_loaded(const NicLoad& load, const Tick& tick) const {
  const int at = active()->local_nic();
  std::optional<int> best;
  for (const Backup& backup : context_.backups[size_t(home_nic_)]) {
    if (backup.nic == at || !spread_move_.may_go_to(backup.nic, tick.now) ||
        !usable_rail(backup.nic, straight(backup.nic), tick.now))
      continue;
    const double extra = backup.crosses ? context_.config.far_cost() - 1 : 0;
    if (load.better(at, backup.nic, extra) && (!best || load.on(backup.nic) < load.on(*best)))
      best = backup.nic;
  }
  return best;
}

void SenderPaths::step_spread(const Tick& tick) {
  SpreadSight seen;
  seen.ready = status() == Status::kReady;
  seen.away = active()->local_nic() != home_nic_;
  seen.comes_home = failback_.path() != 0;
  seen.in_demand = in_demand(tick.now);
  seen.opens = opening_.under_way();
  Path* path = spread_move_.path() != 0 ? paths_.find(spread_move_.path()) : nullptr;
  switch (spread_move_.look(seen, path != nullptr, tick.now)) {
    case SpreadAct::kNone:
      return;
    case SpreadAct::kMove:
      return step_move(*path, tick);
    case SpreadAct::kLook:
      return look_for_less(tick);
  }
}

void SenderPaths::look_for_less(const Tick& tick) {
  const auto may_move = [&](const NicLoad& load) {
    return load.leaving[size_t(active()->local_nic())] == 0 ? less_loaded(load, tick) : std::nullopt;
  };
  if (!spread_move_.due(may_move(context_.load(false)).has_value(), tick.now)) return;
  const std::optional<int> nic = may_move(context_.load(true));  // the node's others may have moved meanwhile
  if (!nic) return;
  R2_INFO("NET/R2CCL: channel %u: NIC %s of %s carries %.0f channels, NIC %s %.0f: migrating there", number_,
          nic_name(active()->local_nic()).c_str(), context_.host.c_str(),
          context_.load(false).on(active()->local_nic()), nic_name(*nic).c_str(),
          context_.load(false).on(*nic));
  Path* standby = paths_.first([&](const Path* path) {
    return stands_by(*path) && path->local_nic() == *nic && path->remote_nic() == straight(*nic);
  });
  if (standby) {
    spread_move_.takes(standby->id());
    standby->forget_probe();
  } else {
    start_opening(Purpose::kSpread, {*nic, straight(*nic)}, tick);
  }
  context_.load_stale = true;
  context_.load(true);  // so that nobody else chooses the same one
}

// The way to the other NIC is open; it is taken when a probe shows that it works, if it is still better.
void SenderPaths::step_move(Path& path, const Tick& tick) {
  const ProbeSight probe = see_probe(
      path, [&] { return probe_limit(path, tick); }, tick);
  switch (SpreadMove::look_at_path(stands_by(path), probe)) {
    case MoveAct::kWait:
      return;
    case MoveAct::kEnd:
      return end_move(tick);
    case MoveAct::kProve:
      return path.prove(tick.alive);
    case MoveAct::kGiveUp: {
      const int nic = path.local_nic();
      drop(path.id(), true);
      return move_failed(nic, tick);
    }
    case MoveAct::kGo:
      break;
  }
  path.forget_probe();
  const uint32_t target = path.id();
  const int to = path.local_nic();
  end_move(tick);
  const bool another = paths_.any([&](const auto& other) { return other != &path && stands_by(*other); });
  switch (SpreadMove::arrive(context_.load(false).better(active()->local_nic(), to), another)) {
    case MoveEnd::kMove:
      return begin_migration(*active(), trace::DetectedBy::kNone, "another NIC carries fewer channels", tick,
                             target);
    case MoveEnd::kDrop:
      return drop(target, true);
    case MoveEnd::kStandBy:
      return;
  }
}

void SenderPaths::move_failed(int nic, const Tick& tick) {
  spread_move_.failed(nic, tick.now);
  context_.load_stale = true;
}

void SenderPaths::end_move(const Tick& tick) {
  spread_move_.ended(tick.now);
  context_.load_stale = true;
}

}  // namespace r2ccl
