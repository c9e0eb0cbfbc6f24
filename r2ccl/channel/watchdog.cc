// Suspicion: who has been silent for too long is probed, and only what a probe shows, or a queue pair that
// stands still while probes pass, begins a migration (DESIGN.md, 'The channel', point 4).
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"

namespace r2ccl {
namespace {

constexpr uint64_t kFirstProbePauseNs = 8 * kNsPerMs;
constexpr uint64_t kLongestProbePauseNs = 100 * kNsPerMs;
constexpr uint64_t kLongestProbeNs = 2000 * kNsPerMs;
constexpr uint64_t kLongestProbeShare = 4;  // no probe is waited for longer than this part of the fail bound
constexpr uint64_t kSlowPeerNs = 1000 * kNsPerMs;  // silence after which the log says so, once

}  // namespace

void Channel::look_at_silence(HasTurn) {
  if (quiet_.look(now_ns(), progress_.load(std::memory_order_relaxed),
                  nanoseconds(core_.config.suspect_after)))
    core_.kick();
}

// Silence on the active path leads to a probe, and only a probe's failure, or a QP that stands still while
// probes pass, to a migration. A stopped or slow peer answers probes: its NIC needs no CPU for that.
void Channel::step_watchdog(const Tick& tick) {
  const uint64_t step = tick.alive - last_alive_;
  last_alive_ = tick.alive;
  if (end_.phase() != Phase::kRunning || !active_) return;
  if (suspected_.load(std::memory_order_acquire)) {
    on_socket(tick);  // a peer that closed has said so before its QPs went
    if (end_.phase() != Phase::kRunning || peer_closed_ || !active_ || status() == Status::kFailed) return;
    Path* path = nullptr;
    std::optional<Path::Condemned> reason;
    {
      const TurnGuard turn(turn_);
      look_for_suspects(turn);
      for (auto& it : paths_)
        if (!path && carries(*it) && it->condemned) path = it.get(), reason = it->condemned;
      if (!path) advance(Status::kReady);
    }
    if (path) begin_migration(*path, reason->by, reason->why, tick);
    return;
  }
  const uint64_t progress = progress_.load(std::memory_order_relaxed);
  if (quiet_.asks_at(progress)) {
    if (progress != seen_progress_) silence_ = 0;
    seen_progress_ = progress;
    silence_ = std::max(silence_,
                        nanoseconds(core_.config.suspect_after));  // so long the progress thread has waited
  }
  look_if_awaited();
  if (progress != seen_progress_) crowded_.store(false, std::memory_order_relaxed);
  if (progress != seen_progress_ || !(busy() || awaited() || crowded_.load(std::memory_order_relaxed))) {
    quiet_.helped();
    if (progress != seen_progress_) stuck_bound_ = 0;
    if (progress != seen_progress_ && silence_ > 0)
      usual_gap_ = std::max(silence_, usual_gap_ - usual_gap_ / 16);
    seen_progress_ = progress;
    silence_ = 0;
    next_probe_ = 0;
    probe_pause_ = kFirstProbePauseNs;
    slow_peer_told_ = poked_ = false;
    nothing_open_at_ = tick.alive;
    for (auto& path : paths_)
      if (carries(*path)) {
        look_at_probe(*path, tick);
        path->forget_probe();
      }
    return;
  }
  silence_ += step;
  const uint64_t least = nanoseconds(core_.config.suspect_after);
  if (silence_ < std::clamp(usual_gap_ + usual_gap_ / 4, least, 2 * least)) return;

  {  // the owner may be asleep: look on its behalf before suspecting anybody
    const TurnGuard turn(turn_);
    if (active_) drain(*active_, turn);
    for (Path* lane : lanes_) drain(*lane, turn);
    if (!work_requests_open(turn)) nothing_open_at_ = tick.alive;
  }
  if (progress_.load(std::memory_order_relaxed) != seen_progress_ ||
      suspected_.load(std::memory_order_acquire))
    return;

  if (!probe_lanes(tick)) return;
  Path& path = *active_;
  switch (look_at_probe(path, tick)) {
    case ProbeState::kIdle:
      path.probe(tick.alive);
      break;
    case ProbeState::kWaiting:
      if (path.probe_age(tick.alive) > probe_limit(path, tick)) {
        on_socket(tick);
        if (peer_closed_ || end_.phase() != Phase::kRunning || &path != active_) return;
        emit(trace::EventType::kProbeFailed, path.local_nic(), path.id());
        begin_migration(path, trace::DetectedBy::kWatchdog, "silent, and a probe is not answered", tick);
      }
      break;
    case ProbeState::kFailed:
      on_socket(tick);
      if (peer_closed_ || end_.phase() != Phase::kRunning || &path != active_) return;
      emit(trace::EventType::kProbeFailed, path.local_nic(), path.id());
      begin_migration(path, trace::DetectedBy::kWatchdog,
                      "silent, and a probe failed: " + verbs::describe(path.probe_status), tick);
      break;
    case ProbeState::kAnswered:
      if (next_probe_ == 0) next_probe_ = tick.alive + probe_pause_;
      if (silence_ > kSlowPeerNs && !slow_peer_told_) {
        slow_peer_told_ = true;
        emit(trace::EventType::kPeerSlow, path.local_nic());
        R2_INFO("NET/R2CCL: channel %u: %s has been quiet for %llu ms, but its NIC answers: waiting", number_,
                peer_name().c_str(), static_cast<unsigned long long>(silence_ / kNsPerMs));
      }
      if (!poked_ || tick.alive >= next_probe_) {
        poked_ = true;
        const TurnGuard turn(turn_);
        if (active_ == &path && status() == Status::kReady)
          waited(silence_ > nanoseconds(core_.config.stuck_after) / 4, turn);
      }
      // A message that is merely slow starts over on another path: each such migration makes the next one
      // wait twice as long, so that a slow rail ends up being waited for.
      if (Path* still = nullptr; silence_ > stuck_bound() &&
                                 tick.alive - nothing_open_at_ > stuck_bound() / 2 &&
                                 (still = stands_still()) != nullptr) {
        stuck_bound_ = 2 * stuck_bound();
        begin_migration(*still, trace::DetectedBy::kWatchdog, "its QP stands still although the rail works",
                        tick);
      } else if (tick.alive >= next_probe_) {
        path.forget_probe();
        path.probe(tick.alive);
        probe_pause_ = std::min(2 * probe_pause_, kLongestProbePauseNs);
        next_probe_ = 0;
      }
      break;
  }
}

ProbeState Channel::look_at_probe(Path& path, const Tick& tick) {
  const ProbeState state = path.poll_probe(tick.alive);
  const int timeout = core_.config.ib_timeout;
  const uint64_t resend = timeout == 0 ? ~uint64_t{0} : uint64_t{4096} << timeout;
  if (const auto took = path.told_time(resend))
    probe_times_->answered(path.local_nic(), path.remote_nic(), *took, tick.alive);
  return state;
}

uint64_t Channel::probe_limit(const Path& path, const Tick& tick) const {
  const bool nothing_since = progress_.load(std::memory_order_relaxed) == silent_at_progress_;
  const uint64_t most = std::min(nanoseconds(core_.config.fail_bound) / kLongestProbeShare, kLongestProbeNs);
  return probe_times_->deadline(path.local_nic(), path.remote_nic(), nanoseconds(core_.config.probe_deadline),
                                most, nothing_since ? silent_leaves_ : 0, tick.alive);
}

uint64_t Channel::stuck_bound() const {
  const uint64_t least = nanoseconds(core_.config.stuck_after);
  return std::max({least, stuck_bound_, std::min(20 * usual_gap_, 4 * least)});
}

Path* Channel::stands_still() {
  const TurnGuard turn(turn_);
  return active_ ? standing_still(turn) : nullptr;
}

// Of a silent channel. False: a lane is being left.
bool Channel::probe_lanes(const Tick& tick) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Path& lane = *lanes_[i];
    const ProbeState probe = look_at_probe(lane, tick);
    if (probe == ProbeState::kIdle) lane.probe(tick.alive);
    if (probe == ProbeState::kAnswered && lane.probe_age(tick.alive) > kLongestProbePauseNs) {
      lane.forget_probe();
      lane.probe(tick.alive);
    }
    if (probe != ProbeState::kFailed &&
        !(probe == ProbeState::kWaiting && lane.probe_age(tick.alive) > probe_limit(lane, tick)))
      continue;
    on_socket(tick);
    if (peer_closed_ || end_.phase() != Phase::kRunning || i >= lanes_.size() || lanes_[i] != &lane)
      return false;
    emit(trace::EventType::kProbeFailed, lane.local_nic(), lane.id());
    begin_migration(lane, trace::DetectedBy::kWatchdog,
                    probe == ProbeState::kFailed
                        ? "silent, and a probe failed: " + verbs::describe(lane.probe_status)
                        : "silent, and a probe is not answered",
                    tick);
    return false;
  }
  return true;
}

}  // namespace r2ccl
