// SPDX-License-Identifier: Apache-2.0
// The sending end's paths: which rail comes next, standing by, and the way home.
#include <algorithm>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"
#include "r2ccl/channel/sender_paths.h"

namespace r2ccl {
SenderPaths::SenderPaths(ProcessContext& context, MigrationEnd& end, int home_nic, control::Stream stream,
                         const control::Token& token)
    : Channel(context, end, true, home_nic, std::move(stream), token),
      spread_move_(nanoseconds(context.config.failback_settle), nanoseconds(context.config.failback_ceiling),
                   context.process + number() * 0x9e3779b97f4a7c15) {}

bool SenderPaths::is_away() const { return turn::is_ready(sight({})) && active()->local_nic() != home_nic_; }

void SenderPaths::carried(bool first, const Tick& tick) {
  wishes_.carries(tick.now);
  lane_plan_.look_soon();
  for_tiny_ = 0;
  if (first && !at_home())
    R2_WARN("NET/R2CCL: channel %u: its home rail does not work (%s); it starts on %s", number(),
            what_failed().c_str(), rail_name(*active()).c_str());
}

int SenderPaths::standbys() const {
  int stand_by = 0;
  for (const auto& path : paths_) stand_by += path->is_standby();
  return count_of_standbys(active() != nullptr, stand_by, opening_.is_for(Purpose::kStandby));
}

// What rail_choice.h asks.
struct SenderPaths::RailChoice {
  const SenderPaths& c;
  const Purpose purpose;
  const uint64_t now;
  const std::vector<int> order =
      wanted_nics(c.context_.load(false), c.see_traffic(now), c.context_.backups[size_t(c.home_nic_)],
                  c.context_.config.far_cost());

  int locals() const { return int(c.context_.devices.size()); }
  int remotes() const { return c.peer_.nics(); }
  int wanted(int k) const { return order[size_t(k)]; }
  int straight(int l) const { return c.straight(l); }
  int home_remote() const { return c.peer_.home_nic(); }
  bool usable(int l, int r) const {
    const bool has_path = c.paths_.any([&](const Path* path) {
      return rail::occupies({path->local_nic(), path->remote_nic()}, path->is_failed, {l, r});
    });
    return rail::may_open(c.see_rail(l, r, now), purpose, c.context_.resilient(), has_path);
  }
  bool shares(int l, int r) const {
    return c.active() && (c.active()->local_nic() == l || c.active()->remote_nic() == r);
  }
  std::pair<unsigned, unsigned> failures(int l, int r) const {
    return {c.rails_.count(l, r), c.rails_.count_near(l, r)};
  }
};

std::optional<Rail> SenderPaths::candidate(Purpose purpose, uint64_t now) const {
  return choose_rail(RailChoice{*this, purpose, now});
}

bool SenderPaths::home_may_work(const Tick& tick) const {
  return rail::may_work(see_rail(home_nic_, peer_.home_nic(), tick.now));
}

void SenderPaths::come_home(const Tick& tick) {
  Path* path = failback_.path() != 0 ? paths_.find(failback_.path()) : nullptr;
  FailbackSight seen;
  seen.away = !at_home();
  seen.opens = opening_.under_way();
  seen.has_path = path != nullptr;
  if (path) {
    seen.probe = see_probe(
        *path, [&] { return probe_limit(*path, tick); }, tick);
    seen.probe_age = path->probe_age(tick.alive);
  }
  switch (failback_.look(seen, tick.now, [&] { return home_may_work(tick); })) {
    case FailbackAct::kNone:
      break;
    case FailbackAct::kOpen:
      return start_opening(Purpose::kFailback, {home_nic_, peer_.home_nic()}, tick);
    case FailbackAct::kProbe:
      return path->probe(tick.alive);
    case FailbackAct::kGiveUp:
      return drop(path->id(), true);
    case FailbackAct::kReturn:
      return begin_migration(*active(), trace::DetectedBy::kNone, "its home rail works again", tick,
                             path->id());
  }
}

}  // namespace r2ccl
