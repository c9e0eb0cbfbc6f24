// SPDX-License-Identifier: Apache-2.0
// Suspicion, carried out: protocol/watchdog.h decides. And probes, as all of a channel's paths have them.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"

namespace r2ccl {
void Channel::look_at_silence() {
  if (activity_.silent_for(nanoseconds(context_.config.suspect_after), now_ns())) context_.kick();
}

class Channel::WatchActions : public Channel::Actions {
 public:
  WatchActions(Channel& channel, const Tick& tick) : Actions(channel, tick) {}

  uint64_t progress() const { return c_.activity_.progress(); }
  bool polled_in_vain() const { return c_.activity_.asks_now(); }
  bool waits() const { return c_.activity_.waits(); }
  bool awaited() const { return c_.awaited(); }
  ProbeSight probe(uint32_t id) {
    Path& path = *c_.paths_.find(id);
    return c_.see_probe(
        path, [&] { return c_.probe_limit(path, tick_); }, tick_);
  }
  uint64_t probe_age(uint32_t id) const { return c_.paths_.find(id)->probe_age(tick_.alive); }
  uint32_t stands_still() const {
    const OwnershipGuard owned(c_.ownership_);
    return c_.standing_still(owned);
  }
  uint64_t work_ns(uint32_t id) const {
    const OwnershipGuard owned(c_.ownership_);
    const int nic = c_.paths_.find(id)->local_nic();
    return longest_work_ns(c_.longest_work(id, owned), c_.context_.capacities.capacity(size_t(nic)));
  }
  bool whole_packets_pass(uint32_t id, uint64_t span) const {
    const Path& path = *c_.paths_.find(id);
    return c_.peer_rails_->whole_packets(c_.sender_)
        .passed_within(path.local_nic(), path.remote_nic(), span, tick_.alive);
  }
  bool marked_failed() const { return c_.suspected_.load(std::memory_order_acquire); }

  void moved() { c_.activity_.has_room(); }
  void rests() {
    c_.activity_.helped();
    for (auto& path : c_.paths_)
      if (path->carries()) {
        c_.look_at_probe(*path, tick_);
        path->forget_probe();
      }
  }
  bool look() {
    const OwnershipGuard owned(c_.ownership_);
    if (c_.active()) c_.drain(*c_.active(), owned);
    for (Path* lane : c_.paths_.lanes()) c_.drain(*lane, owned);
    return c_.standing_still(owned) != 0;
  }
  void begin_probe(uint32_t id) { c_.paths_.find(id)->probe(tick_.alive); }
  void begin_full_probe(uint32_t id) { c_.paths_.find(id)->prove(tick_.alive); }
  void forget_probe(uint32_t id) { c_.paths_.find(id)->forget_probe(); }
  using Actions::hear;
  void hear(uint32_t id) {
    failed_ = c_.paths_.find(id)->probe_state() == ProbeState::kFailed;
    hear();
  }
  bool still_carries(uint32_t id) const { return carries_traffic() && c_.carrying(id) != nullptr; }
  void leave_silent(uint32_t id) {
    Path& path = *c_.paths_.find(id);
    c_.emit(trace::EventType::kProbeFailed, path.local_nic(), id);
    c_.begin_migration(path, trace::DetectedBy::kWatchdog,
                       failed_ ? "stalled, and a probe failed: " + verbs::describe(path.probe_status)
                               : "stalled, and a probe is not answered",
                       tick_);
  }
  void leave_standing_still(uint32_t id) {
    c_.begin_migration(*c_.paths_.find(id), trace::DetectedBy::kWatchdog,
                       "its QP makes no progress although the rail works", tick_);
  }
  void slow_peer(uint64_t silence) {
    c_.emit(trace::EventType::kPeerSlow, c_.active()->local_nic());
    R2_INFO("NET/R2CCL: channel %u: %s has stalled for %llu ms, but its NIC answers: waiting", c_.number_,
            c_.peer_.name().c_str(), static_cast<unsigned long long>(silence / kNsPerMs));
  }
  void request_retransmit(bool patient) {
    const uint32_t path = active();
    const OwnershipGuard owned(c_.ownership_);
    if (active() == path && c_.status() == Status::kReady) c_.waited(patient, owned);
  }

 private:
  bool failed_ = false;  // the probe of the path that is about to be left
};

void Channel::step_watchdog(const Tick& tick) {
  look_if_awaited();
  WatchActions host(*this, tick);
  watchdog_.look(host);
}

void Channel::look_for_whole_packets(const Tick& tick) {
  health::WholePackets& whole = peer_rails_->whole_packets(sender_);
  for (const auto& path : paths_)
    if (path->carries())
      whole.look(path->local_nic(), path->remote_nic(), path->whole_packets_seen,
                 path->whole_packets.load(std::memory_order_relaxed), tick.alive);
}

// What an error has marked failed.
void Channel::leave_suspects(const Tick& tick) {
  Actions actions(*this, tick);
  ChannelEnd(end_, actions).leave_marked();
}

ProbeState Channel::look_at_probe(Path& path, const Tick& tick) {
  const ProbeState state = path.poll_probe(tick.alive);
  if (const auto told = path.told_time(resend_after(context_.config.ib_timeout)))
    peer_rails_->probe_times.answered(path.local_nic(), path.remote_nic(), told->took, tick.alive,
                                      told->since_push);
  return state;
}

uint64_t Channel::probe_limit(const Path& path, const Tick& tick) const {
  return peer_rails_->probe_times.deadline(path.local_nic(), path.remote_nic(),
                                           watchdog_.leaves(activity_.progress()), tick.alive,
                                           context_.plans.queue_ns(size_t(path.local_nic())));
}

}  // namespace r2ccl
