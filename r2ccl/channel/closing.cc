// SPDX-License-Identifier: Apache-2.0
// The end of a channel: the program closes it, the peer has, or it has failed. What was sent settles first;
// the last ACK (kClose) goes out before the queue pairs do, and is kept for a peer that asks again.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"
#include "r2ccl/protocol/retirement.h"

namespace r2ccl {
void Channel::closed_early() {
  fail(Error{ErrorCode::kPeerGone, "channel " + std::to_string(number_) + ": " + peer_.name() +
                                       " closed its end while the connection was being made"});
}

// A peer that has closed brings nothing any more. What it delivered before may still lie in the completion
// queue; whatever is lacking after that is an error, not something to wait for.
Urgency Channel::step_after_peer_closed(const Tick& tick) {
  const OwnershipGuard owned(ownership_);
  drain_all(owned);
  switch (closing_.look(tick.now, lacking(owned), waits_for_nic_alone(owned))) {
    case Closing::Lacking::kNothing:
      return Urgency::kIdle;
    case Closing::Lacking::kWait:
      break;
    case Closing::Lacking::kLeave:
      // The last acknowledgement was lost, and the peer's queue pair, which would repeat it, is gone. Until
      // its own queue pair is gone, too, the NIC reads the buffer again and again.
      leave_paths(owned);
      if (paths_.retired().closed(*context_.workers)) nothing_is_sent(owned);
      break;
    case Closing::Lacking::kLost:
      fail(Error{ErrorCode::kPeerGone, "channel " + std::to_string(number_) + ": " + peer_.name() +
                                           " closed its end while messages were open"});
  }
  return Urgency::kBusy;
}

void Channel::give_set_up_up(const Tick& tick) {
  halves_.unwant_all();
  step_halves(tick);
  paths_.destroy_all(*context_.workers);
  open_no_more();
}

void Channel::say_last_word() {
  const LastWord word = closing_.last_word(status() == Status::kFailed, greeted_);
  if (word == LastWord::kClose) send(wire::Type::kClose, closing_message());
  if (word == LastWord::kFailure) send(wire::Type::kFail, sentence(error_));
  closing_.has_told();  // not before: should memory be short, this end fails, and says that
  if (word == LastWord::kFailure || word == LastWord::kRecord)
    emit(trace::EventType::kChannelFailed, home_nic_, uint64_t(error_.code));
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

void Channel::begin_closing(const Tick& tick) {
  const OwnershipGuard owned(ownership_);
  say_last_word();
  if (Closing::hangs_up(sender_, greeted_)) hang_up();
  emit(trace::EventType::kChannelClosing, home_nic_);
  halves_.unwant_all();
  leave_paths(owned);
  closing_.begin(tick.now);  // not before: should memory be short, all of it is done once more
  const std::lock_guard lock(close_mutex_);
  status_.store(Status::kClosed, std::memory_order_release);
}

// The program has its buffers of small messages back before the receiver has said that it has them; what was
// lost of those since can be sent again for as long as this channel lives.
bool Channel::settles(const Tick& tick) {
  if (closing_.begun()) return false;
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

// Torn down, it only waits for its peer, whose close the socket reports.
Urgency Channel::step_closing(const Tick& tick) {
  if (!closing_.begun()) begin_closing(tick);
  step_halves(tick);
  if (!torn_down_) {
    if (!paths_.retired().closed(*context_.workers)) return Urgency::kBusy;
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
  step_outage(tick);
  if (closing_.may_end(tick.now, link_.open(), outage_.lasts())) {
    if (link_.open()) link_.flush();
    link_.close();
    closing_.finish();
  }
  return urgency_of_ended(outage_.lasts());
}

}  // namespace r2ccl
