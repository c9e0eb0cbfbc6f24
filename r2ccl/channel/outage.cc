// SPDX-License-Identifier: Apache-2.0
// A control connection that breaks while both processes live: protocol/outage.h decides, from what is seen
// here, what is done here.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"

namespace r2ccl {

struct Channel::Reconnecting {
  Channel& c;

  bool setting_up() const { return c.setting_up(); }
  bool asks() const { return c.link_.open(); }
  control::Reach connect() {
    bool was_refused = false;
    auto connection = control::start_connect(c.peer_.where(), &was_refused, c.context_.silence());
    if (was_refused) return control::Reach::kRefused;
    if (connection) c.reconnection_ = std::move(*connection);
    if (!connection) c.set_up_error_ = connection.error().message;
    return connection ? control::Reach::kPending : control::Reach::kBroken;
  }
  control::Reach reach() const { return control::reach(c.reconnection_); }
  void close() { c.reconnection_ = control::Descriptor(); }
  bool sender() const { return c.sender_; }
  bool resumable() const { return c.link_.resumable(); }
  const MovedSight& moved() const { return c.moved_; }
  bool in_haste() const {
    HasteSight seen;
    seen.phase = c.end_.phase();
    seen.planned = c.end_.planned();
    seen.active = c.active() != nullptr;
    seen.suspected = c.suspected_.load(std::memory_order_acquire);
    seen.closing = c.is_closing();
    seen.failed = c.status() == Status::kFailed;
    return r2ccl::in_haste(seen);
  }
  void ask() {
    c.link_.ask(control::Stream(std::move(c.reconnection_)), c.peer_.process(), c.peer_.channel());
  }
  void begin_again() { c.link_.begin_again(control::Stream(std::move(c.reconnection_))); }
  void gone(const std::string& why) { c.peer_gone(why); }
};

void Channel::step_outage(const Tick& tick) {
  context_.data_moved.look(peer_.process(), moved_, activity_.progress(), end_.phase(), tick.alive);
  Reconnecting host{*this};
  outage_.step(host, tick);
}

void Channel::hear(const Tick& tick) {
  on_socket(tick);
  Reconnecting host{*this};
  outage_.path_fails(host);
}

void Channel::end_outage() {
  outage_.end();
  reconnection_ = control::Descriptor();
}

void Channel::connection_broke(const Tick& tick) {
  const bool silent = link_.silent();
  const bool turned_away = link_.asking() && !silent;
  link_.close();
  BreakSight seen;
  seen.sender = sender_;
  seen.resilient = context_.resilient();
  seen.setting_up = setting_up();
  seen.resumable = link_.resumable();
  seen.peer_closed = closing_.peer_closed();
  seen.closing = is_closing();
  switch (after_break(seen)) {
    case AfterBreak::kNothing:
      return;
    case AfterBreak::kPeerEnded:
      return peer_gone("closed: that process ended");
    case AfterBreak::kOutage:
      break;
  }
  set_up_.broke();
  DataMoved::broke(moved_, activity_.progress(), outage_.lasts());
  Reconnecting host{*this};
  outage_.broke(host, tick, {silent, turned_away, seen.closing});
}

bool Channel::is_closing() const {
  return closing_.is_closing(close_requested.load(std::memory_order_acquire));
}

void Channel::peer_gone(const std::string& why) {
  const bool worker_busy =
      paths_.any([](const auto& path) { return path->is_left() && path->worker_busy(); });
  if (!peer_end_.learn(why, is_closing(), worker_busy, now_ns())) return;
  const OwnershipGuard owned(ownership_);  // who tests meanwhile does not get it
  fail(Error{ErrorCode::kPeerGone, "channel " + std::to_string(number_) + ": the control connection to " +
                                       peer_.name() + " " + why + "; its NICs have not failed"});
  drain_all(owned);
}

// While a channel is set up nothing else notices that its connection carries nothing.
void Channel::look_after_set_up(const Tick& tick) {
  SetUpSight seen;
  seen.sender = sender_;
  seen.resilient = context_.resilient();
  seen.open = link_.open();
  seen.outage = outage_.lasts();
  seen.greeted = greeted_;
  seen.asks = link_.asking();
  seen.opens = peer_owes_path();
  switch (set_up_.look(seen, tick.alive)) {
    case SetUpAct::kNone:
      return;
    case SetUpAct::kReplace:
      R2_INFO("NET/R2CCL: channel %u: the control connection to %s delivers nothing; it is re-created",
              number_, peer_.name().c_str());
      break;
    case SetUpAct::kBegin:
      break;
  }
  connection_broke(tick);
}

std::string Channel::too_late() const {
  std::string what = "channel " + std::to_string(number_) + ": no connection to " + peer_.name() +
                     " within " + std::to_string(context_.config.connect_bound.count()) +
                     " ms (R2CC_CONNECT_MS)";
  if (set_up_.breaks() > 0)
    what += "; its control connection broke " + std::to_string(set_up_.breaks()) + " times";
  what += outage_.words();
  if (!set_up_error_.empty()) what += "; " + set_up_error_;
  if (!rails_.notes().empty()) what += "; " + what_failed();
  return what;
}

bool Channel::reconnected(control::Stream stream, const Tick& tick) {
  if (!may_go_on(context_.resilient(), sender_, greeted_) || !link_.accept(std::move(stream))) return false;
  connection_restored();
  on_socket(tick);
  return true;
}

void Channel::connection_restored() {
  const uint64_t took_us = outage_.restored(now_ns()) / 1000;
  reconnection_ = control::Descriptor();
  emit(trace::EventType::kControlRestored, home_nic_, took_us);
  R2_INFO("NET/R2CCL: channel %u: the control connection to %s had broken, and is restored after %llu us",
          number_, peer_.name().c_str(), static_cast<unsigned long long>(took_us));
}

}  // namespace r2ccl
