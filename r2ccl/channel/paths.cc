// SPDX-License-Identifier: Apache-2.0
// The set of a channel's paths: which rail comes next, standing by, dropping, destructions; what becomes of
// them when a NIC or a queue pair fails; and failback, which is a new path over the home rail that has to
// work for a settling time. How a path comes to be is in openings.cc.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"

namespace r2ccl {
namespace {

// How long a path out of use is left as it is: traffic is to flow again first, and a probe that was given up
// may still be answered, at either end.
constexpr uint64_t kLeastRetiredNs = 100 * kNsPerMs, kLongestRetiredNs = 4000 * kNsPerMs;

}  // namespace

void Channel::run_on_worker(Path& path, const char* call, Result<void> (Path::*work)()) {
  path.job = context_.workers->give(path.local_nic(), call, [it = &path, work](Job&) {
    try {
      it->outcome = (it->*work)();
    } catch (const std::bad_alloc&) {
      it->outcome = Error{ErrorCode::kOutOfResources, "no memory"};
    }
  });
}

uint64_t Channel::retired_for_ns() const {
  return std::clamp(nanoseconds(context_.config.fail_bound) / 4, kLeastRetiredNs, kLongestRetiredNs);
}

void Channel::retire(uint32_t id) { paths_.retire(id, now_ns() + retired_for_ns()); }

void Channel::drop(uint32_t id, bool tell_peer) {
  if (Path* path = paths_.find(id)) run_on_worker(*path, "ibv_modify_qp to ERR", &Path::give_up);
  if (tell_peer) send(wire::Type::kDrop, wire::PathMessage{id});
  failback_.dropped(id, now_ns());
  spread_move_.dropped(id);
  retire(id);
}

int Channel::standbys() const {
  if (!sender_ || !active()) return 0;
  return int(std::count_if(paths_.begin(), paths_.end(),
                           [](const auto& path) { return path->state == PathState::kStandby; })) +
         opening_.is_for(Purpose::kStandby);
}

// What rail_choice.h asks.
struct Channel::RailChoice {
  const Channel& c;
  const Purpose purpose;
  const uint64_t now;
  const std::vector<Backup> order = c.by_load(now);

  int locals() const { return int(c.context_.devices.size()); }
  int remotes() const { return c.peer_.nics(); }
  int wanted(int k) const { return order[size_t(k)].nic; }
  int straight(int l) const { return c.straight(l); }
  int home_remote() const { return c.peer_.home_nic(); }
  bool usable(int l, int r) const {
    const bool home = l == c.home_nic_ && r == c.peer_.home_nic();
    if (!c.context_.usable(l) || c.peer_.nic_down(r) || c.rails_.barred(l, r, now)) return false;
    if (!home && !c.context_.resilient()) return false;
    if (home && purpose == Purpose::kStandby && !c.failback_.is_up()) return false;
    return !c.paths_.any([&](const Path* path) {
      return path->local_nic() == l && path->remote_nic() == r && !path->is_failed;
    });
  }
  bool shares(int l, int r) const {
    return c.active() && (c.active()->local_nic() == l || c.active()->remote_nic() == r);
  }
  std::pair<unsigned, unsigned> failures(int l, int r) const {
    return {c.rails_.count(l, r), c.rails_.count_near(l, r)};
  }
};

std::optional<Rail> Channel::candidate(Purpose purpose, uint64_t now) const {
  return choose_rail(RailChoice{*this, purpose, now});
}

void Channel::on_drop(uint32_t id, const Tick& tick) {
  if (!sender_) halves_.unwant(id);
  Actions actions(*this, tick, trace::DetectedBy::kPeer, "the peer gave the path up");
  ChannelEnd(end_, actions).on_drop(id);
}

void Channel::nic_changed(int nic, bool up, const Tick& tick) {
  if (!may_migrate()) return;
  if (up) {
    send(wire::Type::kNic, wire::Nic{uint32_t(nic), wire::NicState::kUp});
    if (nic == home_nic_) failback_.rail_active(tick.now);
    retries_.standby_hint(tick.now);
    return;
  }
  const bool is_down = context_.nic_down[size_t(nic)];
  const std::string why = context_.device_gone[size_t(nic)] ? "NIC " + nic_name(nic) + " is gone"
                          : is_down                         ? "port of NIC " + nic_name(nic) + " went down"
                                    : "a buffer cannot be registered on NIC " + nic_name(nic);
  for (auto& path : paths_)
    if (path->carries() && path->local_nic() == nic) mark_failed(*path, trace::DetectedBy::kEvent, why, tick);
  send(wire::Type::kNic, wire::Nic{uint32_t(nic), is_down ? wire::NicState::kDown : wire::NicState::kLeft});
  if (opening_.under_way() && opening_.local() == nic) opening_failed(why, tick);
  for (size_t i = 0; i < paths_.size();) {  // those that only stood by
    Path& path = paths_[i];
    if (path.local_nic() != nic || path.state == PathState::kFencing || path.carries())
      ++i;
    else
      drop(path.id(), true);
  }
}

void Channel::device_fatal(int nic) {
  if (context_.resilient() || closing_.peer_closed() || closing_.begun() || !active() ||
      active()->local_nic() != nic)
    return;
  fail(Error{ErrorCode::kNicFailed, rail_name(*active()) + ": the device reports a fatal error, on channel " +
                                        std::to_string(number_) + "; R2CC_MODE=0 has no other path"});
}

void Channel::queue_pair_failed(const ibv_qp* pair, const char* what, const Tick& tick) {
  Path* path = paths_.first([pair](const Path* it) { return !it->worker_busy() && it->has(pair); });
  if (path) path_failed(*path, what, tick);
}

void Channel::completion_queue_failed(const ibv_cq* queue, const Tick& tick) {
  Path* path = paths_.first([queue](const Path* it) { return it->queue.get() == queue; });
  if (!path) return;
  path->reports_nothing = true;
  path_failed(*path, "its completion queue failed", tick);
}

void Channel::path_failed(Path& path, const char* what, const Tick& tick) {
  if (!may_migrate()) return;
  if (path.state == PathState::kFencing) return;
  if (path.carries())
    mark_failed(path, trace::DetectedBy::kEvent, what, tick);
  else if (opening_.is(path.id()))
    opening_failed(what, tick);
  else
    drop(path.id(), true);
}

void Channel::on_peer_nic(const wire::Nic& change, const Tick& tick) {
  if (!peer_.known_nic(change.nic)) return;
  peer_.nic_changed(change, now_ns());
  if (change.state == wire::NicState::kUp) {
    if (int(change.nic) == peer_.home_nic()) failback_.rail_active(tick.now);
    retries_.standby_hint(tick.now);
    return;
  }
  for (auto& path : paths_)
    if (path->carries() && path->remote_nic() == int(change.nic))
      mark_failed(*path, trace::DetectedBy::kPeer,
                  "the peer's NIC " + peer_.nic_name(int(change.nic)) +
                      (peer_.nic_left(int(change.nic)) ? " takes no buffers" : " went down"),
                  tick);
}

bool Channel::home_may_work() const {
  return !peer_.nic_down(peer_.home_nic()) && context_.usable(home_nic_);
}

void Channel::step_failback(const Tick& tick) {
  if (end_.phase() != Phase::kRunning || !active() || at_home()) return;
  Path* path = failback_.path() != 0 ? paths_.find(failback_.path()) : nullptr;
  FailbackSight seen;
  seen.may_open = !opening_.under_way() && home_may_work();
  seen.has_path = path != nullptr;
  if (path) {
    seen.probe = see_probe(
        *path, [&] { return probe_limit(*path, tick); }, tick);
    seen.probe_age = path->probe_age(tick.alive);
  }
  switch (failback_.look(seen, tick.now)) {
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
