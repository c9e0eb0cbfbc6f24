// SPDX-License-Identifier: Apache-2.0
// Suspicion: who has been silent for too long is probed, and only what a probe shows, or a queue pair that
// stands still while probes pass, begins a migration (DESIGN.md, 'The channel', point 4).
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"

namespace r2ccl {
namespace {

constexpr uint64_t kLongestProbeNs = 2000 * kNsPerMs;
constexpr uint64_t kLongestProbeShare = 4;  // no probe is waited for longer than this part of the fail bound

}  // namespace

void Channel::look_at_silence() {
  if (activity_.silent_for(nanoseconds(context_.config.suspect_after), now_ns())) context_.kick();
}

// protocol/stall_timer.h says what silence leads to.
void Channel::step_watchdog(const Tick& tick) {
  stall_.tick(tick.alive);
  if (end_.phase() != Phase::kRunning || !active()) return;
  if (suspected_.load(std::memory_order_acquire)) return leave_suspects(tick);
  if (!silent(tick) || !probe_lanes(tick)) return;
  Path& path = *active();
  switch (look_at_probe(path, tick)) {
    case ProbeState::kIdle:
      path.probe(tick.alive);
      break;
    case ProbeState::kWaiting:
      if (path.probe_age(tick.alive) <= probe_limit(path, tick)) break;
      [[fallthrough]];
    case ProbeState::kFailed:
      leave_silent(path, tick);
      break;
    case ProbeState::kAnswered:
      wait_on(path, tick);
      break;
  }
}

// What an error has marked failed.
void Channel::leave_suspects(const Tick& tick) {
  on_socket(tick);  // a peer that closed has said so before its QPs went
  if (end_.phase() != Phase::kRunning || closing_.peer_closed() || !active() || status() == Status::kFailed)
    return;
  Path* path = nullptr;
  std::optional<Path::Failure> reason;
  {
    const OwnershipGuard owned(ownership_);
    look_for_suspects(owned);
    for (auto& it : paths_)
      if (!path && it->carries() && it->failure) path = it.get(), reason = it->failure;
    if (!path) advance(Status::kReady);
  }
  if (path) begin_migration(*path, reason->by, reason->why, tick);
}

// Has it been silent for so long, while something is open, that its paths are to be probed?
bool Channel::silent(const Tick& tick) {
  const uint64_t progress = activity_.progress();
  if (activity_.asks_now()) stall_.polled_in_vain(progress);
  look_if_awaited();
  const bool moved = stall_.moved(progress);
  if (moved) activity_.has_room();
  if (moved || !(activity_.waits() || awaited())) {
    activity_.helped();
    stall_.restart(progress);
    for (auto& path : paths_)
      if (path->carries()) {
        look_at_probe(*path, tick);
        path->forget_probe();
      }
    return false;
  }
  if (!stall_.suspicious()) return false;
  {  // the owner may be asleep: look on its behalf before suspecting anybody
    const OwnershipGuard owned(ownership_);
    if (active()) drain(*active(), owned);
    for (Path* lane : paths_.lanes()) drain(*lane, owned);
    if (!work_requests_open(owned)) stall_.nothing_open();
  }
  return !stall_.moved(activity_.progress()) && !suspected_.load(std::memory_order_acquire);
}

// Silent, and its probe has failed or is not answered.
void Channel::leave_silent(Path& path, const Tick& tick) {
  const bool failed = path.probe_state() == ProbeState::kFailed;
  const uint32_t id = path.id();
  on_socket(tick);
  if (closing_.peer_closed() || end_.phase() != Phase::kRunning || carrying(id) != &path) return;
  emit(trace::EventType::kProbeFailed, path.local_nic(), path.id());
  begin_migration(path, trace::DetectedBy::kWatchdog,
                  failed ? "silent, and a probe failed: " + verbs::describe(path.probe_status)
                         : "silent, and a probe is not answered",
                  tick);
}

// Silent, and its probe is answered.
void Channel::wait_on(Path& path, const Tick& tick) {
  stall_.answered();
  if (stall_.slow_peer()) {
    emit(trace::EventType::kPeerSlow, path.local_nic());
    R2_INFO("NET/R2CCL: channel %u: %s has been quiet for %llu ms, but its NIC answers: waiting", number_,
            peer_.name().c_str(), static_cast<unsigned long long>(stall_.silence() / kNsPerMs));
  }
  if (stall_.request_retransmit_due()) {
    const OwnershipGuard owned(ownership_);
    if (active() == &path && status() == Status::kReady) waited(stall_.patient(), owned);
  }
  if (Path* still = stall_.stuck() ? stands_still() : nullptr) {
    stall_.left_standing_still();
    begin_migration(*still, trace::DetectedBy::kWatchdog, "its QP stands still although the rail works",
                    tick);
  } else if (stall_.probe_due()) {
    path.forget_probe();
    path.probe(tick.alive);
  }
}

ProbeState Channel::look_at_probe(Path& path, const Tick& tick) {
  const ProbeState state = path.poll_probe(tick.alive);
  const int timeout = context_.config.ib_timeout;
  const uint64_t resend = timeout == 0 ? ~uint64_t{0} : uint64_t{4096} << timeout;
  if (const auto took = path.told_time(resend))
    probe_times_->answered(path.local_nic(), path.remote_nic(), *took, tick.alive);
  return state;
}

uint64_t Channel::probe_limit(const Path& path, const Tick& tick) const {
  const uint64_t most =
      std::min(nanoseconds(context_.config.fail_bound) / kLongestProbeShare, kLongestProbeNs);
  return probe_times_->deadline(path.local_nic(), path.remote_nic(),
                                nanoseconds(context_.config.probe_deadline), most,
                                stall_.leaves(activity_.progress()), tick.alive);
}

Path* Channel::stands_still() {
  const OwnershipGuard owned(ownership_);
  return active() ? standing_still(owned) : nullptr;
}

// Of a silent channel. False: a lane is being left.
bool Channel::probe_lanes(const Tick& tick) {
  for (size_t i = 0; i < paths_.lanes().size(); ++i) {
    Path& lane = *paths_.lanes()[i];
    const ProbeState probe = look_at_probe(lane, tick);
    if (probe == ProbeState::kIdle) lane.probe(tick.alive);
    if (probe == ProbeState::kAnswered && lane.probe_age(tick.alive) > StallTimer::kLongestProbePauseNs) {
      lane.forget_probe();
      lane.probe(tick.alive);
    }
    if (probe != ProbeState::kFailed &&
        !(probe == ProbeState::kWaiting && lane.probe_age(tick.alive) > probe_limit(lane, tick)))
      continue;
    leave_silent(lane, tick);
    return false;
  }
  return true;
}

}  // namespace r2ccl
