// SPDX-License-Identifier: Apache-2.0
// The end of a channel: the program closes it, the peer has, or it has failed. What was sent settles first;
// the last ACK (kClose) goes out before the queue pairs do, and is kept for a peer that asks again.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"
#include "r2ccl/protocol/retirement.h"

namespace r2ccl {
void Channel::closed_early() {
  fail(Error{ErrorCode::kPeerGone, "channel " + std::to_string(number_) + ": " + peer_.name() +
                                       " closed its end while the connection was being made"});
}

// The host of Closing.
class Channel::ClosingActions : public Channel::Actions {
 public:
  ClosingActions(Channel& channel, const Tick& tick) : Actions(channel, tick) {}

  bool sender() const { return c_.sender_; }
  bool greeted() const { return c_.greeted_; }
  bool torn_down() const { return c_.paths_.retired().closed(*c_.context_.workers); }
  bool connected() const { return c_.link_.open(); }
  bool outage() const { return c_.outage_.lasts(); }
  bool lacks() const { return c_.lacking(*owned_); }
  bool for_nic_alone() const { return c_.waits_for_nic_alone(*owned_); }
  bool has_path() const { return c_.active() != nullptr; }
  uint32_t epoch() const { return c_.end_.epoch(); }
  FailureSight see_failure() const {
    return {c_.greeted_, c_.outage_.lasts(), c_.outage_.is_in_vain(tick_.now)};
  }

  void say_last_word() { c_.say_last_word(); }
  void hang_up() { c_.hang_up(); }
  void end_connection() {
    if (c_.link_.open()) c_.link_.flush();
    c_.link_.close();
  }
  void give_halves_up() {
    c_.emit(trace::EventType::kChannelClosing, c_.home_nic_);
    c_.halves_.unwant_all();
  }
  void leave_paths() { c_.leave_paths(*owned_); }
  void closed() {
    const std::lock_guard lock(c_.close_mutex_);
    c_.status_.store(Status::kClosed, std::memory_order_release);
  }
  void take_halves() { c_.step_halves(tick_); }
  void release() { c_.release_buffers(); }
  void restore() { c_.step_outage(tick_); }
  void look() { c_.drain_all(*owned_); }
  void nothing_is_sent() { c_.nothing_is_sent(*owned_); }
  void lost() {
    c_.fail(Error{ErrorCode::kPeerGone, "channel " + std::to_string(c_.number_) + ": " + c_.peer_.name() +
                                            " closed its end while messages were open"});
  }
  void give_set_up_up() { c_.give_set_up_up(tick_); }
};

Urgency Channel::step_after_peer_closed(const Tick& tick) {
  ClosingActions host(*this, tick);
  return urgency_of_ended(closing_.step_after_peer(host, tick.now), false);
}

Urgency Channel::step_after_error(const Tick& tick) {
  ClosingActions host(*this, tick);
  closing_.step_after_error(host);
  return urgency_of_ended(true, outage_.lasts());
}

void Channel::give_set_up_up(const Tick& tick) {
  halves_.unwant_all();
  step_halves(tick);
  paths_.destroy_all(*context_.workers);
  open_no_more();
}

void Channel::say_last_word() {
  const LastWord word = closing_.last_word(status() == Status::kFailed, greeted_);
  switch (word) {
    case LastWord::kNothing:
      break;
    case LastWord::kClose:
      send(wire::Type::kClose, closing_message());
      break;
    case LastWord::kFailure:
      send(wire::Type::kFail, sentence(error_));
      [[fallthrough]];
    case LastWord::kRecord:
      emit(trace::EventType::kChannelFailed, home_nic_, uint64_t(error_.code));
  }
  closing_.has_told();  // not before: should memory be short, this end fails, and says that
}

void Channel::hang_up() {
  end_outage();
  link_.close();
}

// For good.
void Channel::leave_paths(Owned owned) {
  ownership_.check(owned);
  paths_.leave_all(owned);
  spread({}, owned);
  for (auto& path : paths_) abandon(*path, owned);
  open_no_more();
  paths_.destroy_all(*context_.workers);
}

// The program has its buffers of small messages back before the receiver has said that it has them; what was
// lost of those since can be sent again for as long as this channel lives.
bool Channel::settles(const Tick& tick) {
  const OwnershipGuard owned(ownership_);
  SettleSight seen;
  seen.greeted = greeted_;
  seen.failed = status() == Status::kFailed;
  seen.busy = busy();
  seen.unconfirmed = has_to_settle(owned);
  seen.unanswered = context_.unanswered.has(peer_.process(), tick.now);
  seen.connected = link_.up();
  seen.lacks = misses(owned);
  seen.phase = end_.phase();
  switch (closing_.settle(tick.now, seen)) {
    case Closing::Settling::kAsk:
      on_ack_query(0, owned);
      return true;
    case Closing::Settling::kUnanswered:
      context_.unanswered.note(peer_.process(), tick.now);
      [[fallthrough]];
    case Closing::Settling::kOver:
      break;
  }
  return false;
}

void Channel::release_buffers() {
  for (const RetiredPaths::Destruction& destruction : paths_.retired().destructions()) {
    const bool done = destruction.job->done();  // before what it has written
    if (Retirement::may_access(done, destruction.outcome->refused,
                               context_.device_gone[size_t(destruction.nic)]))
      R2_WARN("NET/R2CCL: channel %u: NIC %s did not destroy a queue pair and may still access its buffers",
              number_, nic_name(destruction.nic).c_str());
  }
  const std::lock_guard lock(close_mutex_);
  torn_down_ = true;
  close_done_.notify_all();
}

// Torn down, it only waits for its peer, whose close the socket reports.
Urgency Channel::step_closing(const Tick& tick) {
  ClosingActions host(*this, tick);
  const bool torn_down = closing_.step(host, tick.now);
  return urgency_of_ended(torn_down, outage_.lasts());
}

}  // namespace r2ccl
