// SPDX-License-Identifier: Apache-2.0
// One turn of the service thread with a channel: protocol/turn.h says what is due, in which order, and how
// soon the next one is.
#include "r2ccl/protocol/turn.h"

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"

namespace r2ccl {

void Channel::look_for_owner(const Tick& tick) {
  if (!claim_.look(tick.now, nanoseconds(context_.config.connect_bound))) return;
  R2_INFO("NET/R2CCL: channel %u: NCCL has not polled it for %lld ms (R2CC_CONNECT_MS); it is closed",
          number_, static_cast<long long>(context_.config.connect_bound.count()));
  close_requested.store(true, std::memory_order_release);
}

// In place, so that before each act only what that one depends on is looked at.
[[gnu::always_inline]] inline TurnSight Channel::look(const Tick& tick, bool closes) const {
  TurnSight seen;
  seen.closes = closes;
  seen.failed = status() == Status::kFailed;
  seen.setting_up = setting_up();
  seen.late = is_late(created_, nanoseconds(context_.config.connect_bound), tick.now);
  seen.peer_ended = peer_end_.known();
  seen.outage = outage_.lasts();
  seen.greeted = greeted_;
  seen.peer_closed = closing_.peer_closed();
  seen.resilient = context_.resilient();
  seen.balances = context_.balances();
  seen.active = active() != nullptr;
  seen.suspected = suspected_.load(std::memory_order_acquire);
  seen.phase = end_.phase();
  seen.own_fence = end_.own_fence();
  return seen;
}

Urgency Channel::step(const Tick& tick) {
  look_for_owner(tick);
  const Closing::Ending ending =
      closing_.ending(close_requested.load(std::memory_order_acquire), [&] { return settles(tick); });
  const bool closes = ending == Closing::Ending::kCloses;
  Urgency last = Urgency::kBusy;
  const bool ended = until_turn_ends([&](auto due) {
    if (!is_due(due, look(tick, closes))) return false;
    last = act(due, tick);
    return ends_turn(due);
  });
  return ended ? last : urgency(look(tick, closes), ending == Closing::Ending::kSettles, tick);
}

TurnSight Channel::sight(const Tick& tick) const { return look(tick, closing_.begun()); }

// What it returns counts where ends_turn() holds.
[[gnu::always_inline]] inline Urgency Channel::act(TurnAct act, const Tick& tick) {
  switch (act) {
    case TurnAct::kClose:
      context_.failure_log.gave_up(this);
      return step_closing(tick);
    case TurnAct::kAfterError:
      context_.failure_log.gave_up(this);
      return step_after_error(tick);
    case TurnAct::kTooLate:
      fail(Error{ErrorCode::kSystem, too_late()});
      break;
    case TurnAct::kPeerEnded:
      peer_gone(peer_end_.why());
      break;
    case TurnAct::kSetUp:
      look_after_set_up(tick);
      break;
    case TurnAct::kOutage:
      step_outage(tick);
      break;
    case TurnAct::kClosedEarly:
      closed_early();
      break;
    case TurnAct::kPeerClosed:
      return step_after_peer_closed(tick);
    case TurnAct::kHalves:
      step_halves(tick);
      break;
    case TurnAct::kPaths:
      step_paths(tick);
      break;
    case TurnAct::kTime:
      watchdog_.tick(tick.alive);
      activity_.look(tick.now);
      look_for_whole_packets(tick);
      break;
    case TurnAct::kLeave:
      leave_suspects(tick);
      break;
    case TurnAct::kWatch:
      step_watchdog(tick);
      break;
    case TurnAct::kProbes:
      look_at_probes(tick);
      break;
    case TurnAct::kFence:
      step_fence(tick);
      break;
    case TurnAct::kRemoval:
      look_at_removal(tick);
      break;
    case TurnAct::kUnfenced:
      look_at_unfenced(tick);
      break;
    case TurnAct::kChoose:
      choose(tick);
      break;
    case TurnAct::kSearch:
      search(tick);
      break;
    case TurnAct::kComeHome:
      come_home(tick);
      break;
    case TurnAct::kSpread:
      step_spread(tick);
      break;
    case TurnAct::kBalance:
      step_balance(tick);
      break;
    case TurnAct::kRetired:
      for (auto& path : paths_.retired().retired()) look_at_probe(*path, tick);
      paths_.retired().destroy_expired(*context_.workers, tick.now, is_calm(end_.phase()));
      break;
  }
  return Urgency::kBusy;
}

Urgency Channel::urgency(const TurnSight& turn, bool settles, const Tick& tick) const {
  UrgencySight seen{turn};
  seen.settles = settles;
  seen.probing = paths_.any([](const auto& path) { return path->probe_state() == ProbeState::kWaiting; });
  seen.asked = activity_.asks();
  seen.awaited = awaited();
  seen.keeps = !paths_.retired().retired().empty();
  seen.looks_soon = looks_soon(tick);
  seen.migrates_for_ns = tick.now - migration_started_;
  return r2ccl::urgency(seen);
}

}  // namespace r2ccl
