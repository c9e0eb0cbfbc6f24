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
constexpr uint64_t kProbationProbeNs = 5 * kNsPerMs;

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
  if (id == probation_path_) {
    probation_path_ = 0;
    home_rail_.try_failed(now_ns());
  }
  if (id == spread_path_) spread_path_ = 0;
  retire(id);
}

int Channel::standbys() const {
  if (!sender_ || !active()) return 0;
  return int(std::count_if(paths_.begin(), paths_.end(),
                           [](const auto& path) { return path->state == PathState::kStandby; })) +
         opening_.is_for(Purpose::kStandby);
}

// Rails that have not failed since traffic flowed before those that have, straight ones first, beginning with
// home; then every cross rail. A standby shares no NIC with the active path unless there is no other way.
bool Channel::candidate(Purpose purpose, uint64_t now, int& local, int& remote) const {
  const int locals = int(context_.devices.size()), remotes = peer_.nics();
  const std::vector<Backup> order = by_load(now);
  const auto usable = [&](int l, int r, bool disjoint) {
    if (!context_.usable(l) || peer_.nic_down(r) || rails_.barred(l, r, now)) return false;
    if (!context_.resilient() && (l != home_nic_ || r != peer_.home_nic())) return false;
    if (l == home_nic_ && r == peer_.home_nic() && purpose == Purpose::kStandby &&
        home_rail_.state() != health::RailState::kUp)
      return false;
    if (disjoint && active() && (active()->local_nic() == l || active()->remote_nic() == r)) return false;
    return !paths_.any([&](const auto& path) {
      return path->local_nic() == l && path->remote_nic() == r && !path->is_failed;
    });
  };
  bool found = false;
  std::pair<unsigned, unsigned> least{};
  const auto consider = [&](int l, int r, bool disjoint) {
    if (!usable(l, r, disjoint)) return;
    const std::pair<unsigned, unsigned> failures{rails_.count(l, r), rails_.count_near(l, r)};
    if (found && failures >= least) return;
    found = true, least = failures, local = l, remote = r;
  };
  for (const bool disjoint : {true, false}) {
    for (int k = 0; k < locals; ++k) {  // straight
      const int l = order[size_t(k)].nic;
      consider(l, (peer_.home_nic() + l - home_nic_ + locals * remotes) % remotes, disjoint);
    }
    if (found && least.first == 0) return true;
    for (int k = 0; k < locals; ++k)  // cross
      for (int j = 0; j < remotes; ++j)
        consider(order[size_t(k)].nic, (peer_.home_nic() + j) % remotes, disjoint);
    if (found) return true;
  }
  return false;
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
    if (nic == home_nic_) home_rail_.hint_active(tick.now);
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
    if (int(change.nic) == peer_.home_nic()) home_rail_.hint_active(tick.now);
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
  if (end_.phase() != Phase::kRunning || !active()) return;
  if (at_home()) return;
  if (Path* path = probation_path_ ? paths_.find(probation_path_) : nullptr) {
    const ProbeState probe = look_at_probe(*path, tick);
    if (probe == ProbeState::kFailed ||
        (probe == ProbeState::kWaiting && path->probe_age(tick.alive) > probe_limit(*path, tick)))
      return drop(path->id(), true);
    if (probe == ProbeState::kWaiting) return;
    if (probe == ProbeState::kAnswered && home_rail_.settled(tick.now))
      return begin_migration(*active(), trace::DetectedBy::kNone, "its home rail works again", tick,
                             path->id());
    if (probe == ProbeState::kIdle || path->probe_age(tick.alive) >= kProbationProbeNs)
      path->probe(tick.alive);
    return;
  }
  if (!opening_.under_way() && home_rail_.should_try(tick.now) && home_may_work()) {
    home_rail_.trying();
    start_opening(Purpose::kFailback, home_nic_, peer_.home_nic(), tick);
  }
}

}  // namespace r2ccl
