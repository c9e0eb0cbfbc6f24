// SPDX-License-Identifier: Apache-2.0
// Mode 1 carries each channel on one NIC. So that no NIC carries more of those that have lost their own than
// it must, they are spread: when a path is chosen, by what every NIC carries and is about to carry; and
// afterwards, when it turns out that another NIC has clearly less to do, by a planned migration as failback
// is one. Channels at home never move.
#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/sender_paths.h"

namespace r2ccl {

TrafficSight SenderPaths::see_traffic(uint64_t now) const {
  TrafficSight seen;
  seen.home = home_nic_;
  seen.in_demand = in_demand(now);
  const auto nic_of = [](const Path* path) { return path ? path->local_nic() : TrafficSight::kNone; };
  seen.active = nic_of(path_of_tiny());
  seen.move = nic_of(paths_.find(spread_move_.path()));
  seen.target = nic_of(paths_.find(end_.target()));
  if (!active())
    seen.standby = nic_of(paths_.first([&](const Path* path) {
      return takes_over(path->state, failback_.has(path->id()),
                        see_rail(path->local_nic(), path->remote_nic(), now));
    }));
  if (opening_.under_way()) {
    seen.opened = opening_.local();
    seen.purpose = opening_.purpose();
  }
  return seen;
}

bool SenderPaths::add_to(NicLoad& load, const Tick& tick) const {
  if (!turn::is_load(sight(tick))) return false;
  return count_in(load, see_traffic(tick.now), [this](auto&& f) {
    for (const auto& path : paths_)
      if (stands_by(*path) && !spread_move_.has(path->id())) f(path->local_nic());
  });
}

// A NIC with a straight rail to the peer on which this channel would have less beside it.
std::optional<int> SenderPaths::less_loaded(const NicLoad& load, const Tick& tick) const {
  return r2ccl::less_loaded(load, active()->local_nic(), context_.backups[size_t(home_nic_)],
                            context_.config.far_cost(), [&](int nic) {
                              return spread_move_.may_go_to(nic, tick.now) &&
                                     rail::may_take(see_rail(nic, straight(nic), tick.now));
                            });
}

struct SenderPaths::MoveHost {
  SenderPaths& c;
  const Tick& tick;

  std::optional<int> less_loaded(bool shared) const { return c.less_loaded(c.context_.load(shared), tick); }
  uint32_t standby_over(int nic) const {
    const Path* standby = c.paths_.first([&](const Path* path) {
      return c.stands_by(*path) && path->local_nic() == nic && path->remote_nic() == c.straight(nic);
    });
    return standby ? standby->id() : 0;
  }
  void moves_to(int nic) const {
    const int at = c.active()->local_nic();
    const NicLoad& load = c.context_.load(false);
    R2_INFO("NET/R2CCL: channel %u: NIC %s of %s carries %.0f channels, NIC %s %.0f: migrating there",
            c.number_, c.nic_name(at).c_str(), c.context_.host.c_str(), load.on(at), c.nic_name(nic).c_str(),
            load.on(nic));
  }
  void forget_probe(uint32_t path) const { c.paths_.find(path)->forget_probe(); }
  void open(int nic) const { c.start_opening(Purpose::kSpread, {nic, c.straight(nic)}, tick); }
  void share_load() const {
    c.context_.load_stale = true;
    c.context_.load(true);
  }
};

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
    case SpreadAct::kLook: {
      MoveHost host{*this, tick};
      return spread_move_.look_for_less(host, tick.now);
    }
  }
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
