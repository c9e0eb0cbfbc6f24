// SPDX-License-Identifier: Apache-2.0
// A control connection that breaks while both processes live. Data goes on meanwhile, and what a migration
// has to say waits. The sender connects again; each end also learns from trying whether the other process
// still exists, because a process that ended refuses connections at once.
//
// In set-up the same, from the first byte on: a sender that has no welcome yet says its hello again over the
// next connection. Nothing but R2CC_CONNECT_MS bounds it then as long as the peer's process lives, a
// connection that stands and brings nothing is given up for another one, and a single refusal proves no end.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"

namespace r2ccl {
namespace {

constexpr uint64_t kRetryNs = 50 * kNsPerMs;
constexpr uint64_t kConnectNs = 1000 * kNsPerMs;  // a connection that takes longer to make is tried again
// Closed so often running, and for so long: that is no network that keeps breaking connections.
constexpr uint32_t kMostTurnedAway = 8;
constexpr uint64_t kTurnedAwayNs = 2000 * kNsPerMs;
// How many times the bound a process may be silent that can be reached: it may be stopped.
constexpr uint64_t kReachedFactor = 6;
// A connection that carries nothing is given up soon, for another one. That shows that the network carries
// nothing for a second, which is no reason to take the peer for dead: its process has this much longer.
constexpr uint64_t kSilencePatienceNs = 9000 * kNsPerMs;
// In set-up: that many refusals running mean that nobody is there.
constexpr uint32_t kMostRefused = 40;

}  // namespace

void Channel::connection_broke(const Tick& tick) {
  const bool silent = link_.silent();
  const bool was_asking = link_.asking() && !silent;  // … and was turned away
  link_.close();
  const bool closing = closed_sent_ || close_requested.load(std::memory_order_acquire);
  if (peer_closed_ || (closing && !link_.resumable())) return;
  if (!link_.resumable() && !setting_up()) return;  // it has failed
  if (!context_.resilient() || (!link_.resumable() && !sender_))
    return peer_gone("closed: that process ended");
  set_up_.breaks += setting_up();
  set_up_.heard_at = 0;
  if (outage_.lasts) {
    if (was_asking && !setting_up()) {
      if (outage_.turned_away++ == 0) outage_.turned_away_since = tick.alive;
    }
    if (outage_.turned_away >= kMostTurnedAway && tick.alive - outage_.turned_away_since >= kTurnedAwayNs &&
        !closing)
      peer_gone("is closed each time: that process has given the channel up");
    return not_reached(tick);
  }
  outage_ = Outage{};
  outage_.lasts = true;
  outage_.since = tick.alive;
  outage_.patience = silent ? kSilencePatienceNs : 0;
  outage_.began = outage_.next_try = tick.now;
  step_outage(tick);
}

void Channel::peer_gone(const std::string& why) {
  if (closed_sent_ || close_requested.load(std::memory_order_acquire)) return;
  // What it has brought before is not lost. (Who tests meanwhile does not get ownership.) A path that is in a
  // worker's hands is waited for.
  const bool worker_busy = std::any_of(paths_.begin(), paths_.end(), [](const auto& path) {
    return path->state == PathState::kFencing && path->worker_busy();
  });
  if (gone_.empty()) gone_since_ = now_ns();
  gone_ = why;
  if (worker_busy && now_ns() - gone_since_ < nanoseconds(context_.config.fence_bound)) return;
  const OwnershipGuard owned(ownership_);
  fail(Error{ErrorCode::kPeerGone, "channel " + std::to_string(number_) + ": the control connection to " +
                                       peer_name() + " " + why + "; its NICs are not to blame"});
  drain_all(owned);
}

// The next try is due after a while.
void Channel::not_reached(const Tick& tick) {
  outage_.connection = control::Descriptor();
  outage_.stands = false;
  outage_.next_try = tick.now + kRetryNs;
  if (outage_.reached) outage_.since = tick.alive;
  outage_.reached = false;
}

void Channel::refused(const Tick& tick) {
  if (setting_up() && ++outage_.refused < kMostRefused) return not_reached(tick);
  outage_.lasts = false;
  peer_gone(setting_up() ? "is refused each time: that process ended" : "closed: that process ended");
}

// While a channel is set up nothing else notices that its connection carries nothing.
void Channel::look_after_set_up(const Tick& tick) {
  if (!sender_ || !context_.resilient()) return;
  if (!link_.open()) {
    if (!outage_.lasts) connection_broke(tick);  // there has been none yet
    return;
  }
  const bool waiting = !greeted_ || link_.asking() || opening_.waiting_for_peer;
  if (set_up_.heard_at == 0 || !waiting) set_up_.heard_at = tick.alive;
  if (tick.alive - set_up_.heard_at <= set_up_.patience) return;
  set_up_.patience = std::min(2 * set_up_.patience, kMostPatienceNs);
  R2_INFO("NET/R2CCL: channel %u: the control connection to %s brings nothing; it is made anew", number_,
          peer_name().c_str());
  connection_broke(tick);
}

std::string Channel::too_late() const {
  std::string what = "channel " + std::to_string(number_) + ": no connection to " + peer_name() + " within " +
                     std::to_string(context_.config.connect_bound.count()) + " ms (R2CC_CONNECT_MS)";
  if (set_up_.breaks > 0)
    what += "; its control connection broke " + std::to_string(set_up_.breaks) + " times";
  if (outage_.lasts)
    what += outage_.reached ? ", its process can be reached" : ", its process cannot be reached";
  if (!set_up_.last_error.empty()) what += "; " + set_up_.last_error;
  if (!rails_.notes().empty()) what += "; " + what_failed();
  return what;
}

void Channel::step_outage(const Tick& tick) {
  if (link_.open()) return reached_peer(tick);  // asking
  if (outage_.connection) {
    switch (control::reach(outage_.connection)) {
      case control::Reach::kReached:
        outage_.stands = true;
        return reached_peer(tick);
      case control::Reach::kRefused:
        return refused(tick);
      case control::Reach::kBroken:
        outage_.refused = 0;
        if (outage_.stands) {  // a peer that hears nothing closes it: it was reached all the same
          outage_.stands = false;
          outage_.connection = control::Descriptor();
          outage_.next_try = tick.now + kRetryNs;
        } else {
          not_reached(tick);
        }
        break;
      case control::Reach::kPending:
        if (tick.now <= outage_.next_try + kConnectNs) break;
        outage_.refused = 0;
        not_reached(tick);
        break;
    }
  } else if (tick.now >= outage_.next_try) {
    bool was_refused = false;
    auto connection = control::start_connect(peer_hello_.where, &was_refused, context_.silence());
    if (was_refused) return refused(tick);
    if (connection)
      outage_.connection = std::move(*connection);
    else if (setting_up())
      set_up_.last_error = connection.error().message;
    outage_.next_try = tick.now + (connection ? 0 : kRetryNs);
  }
  look_at_age(tick);
}

void Channel::look_at_age(const Tick& tick) {
  const uint64_t bound = nanoseconds(context_.config.control_bound);
  const uint64_t most = outage_.reached ? kReachedFactor * bound : bound + outage_.patience;
  if (setting_up() || tick.alive - outage_.since <= most) return;
  if (outage_.reached)
    peer_gone("closed, and its process, which can be reached, has not taken it up again");
  else
    peer_gone("closed, and its process could not be reached for " + std::to_string(most / kNsPerMs) +
              " ms (R2CC_CONTROL_MS" +
              (outage_.patience > 0 ? " and the " + std::to_string(outage_.patience / kNsPerMs) +
                                          " ms that a network without a word has)"
                                    : ")"));
}

// The process exists, or its kernel says so. The sender asks to go on; the receiver waits for it to.
void Channel::reached_peer(const Tick& tick) {
  if (!outage_.reached) {
    outage_.reached = true;
    outage_.since = tick.alive;
    outage_.refused = 0;
  }
  if (sender_ && !link_.open()) {
    control::Stream stream(std::move(outage_.connection));
    if (link_.resumable())
      link_.ask(std::move(stream), peer_hello_.process, peer_hello_.channel);
    else
      link_.begin_again(std::move(stream));
  }
  look_at_age(tick);
}

bool Channel::reconnected(control::Stream stream, const Tick& tick) {
  if (sender_ || !greeted_ || !context_.resilient() || !link_.accept(std::move(stream))) return false;
  if (!outage_.lasts) outage_.began = tick.now;  // the sender noticed first
  connection_restored();
  on_socket(tick);
  return true;
}

void Channel::connection_restored() {
  outage_.lasts = false;
  outage_.connection = control::Descriptor();
  emit(trace::EventType::kControlRestored, home_nic_, (now_ns() - outage_.began) / 1000);
  R2_INFO("NET/R2CCL: channel %u: the control connection to %s had broken, and is restored after %llu us",
          number_, peer_name().c_str(), static_cast<unsigned long long>((now_ns() - outage_.began) / 1000));
}

}  // namespace r2ccl
