// SPDX-License-Identifier: Apache-2.0
// How a channel carries out what channel_end.h decides. One object for each event: what happened, and when.
// It decides nothing of the protocol.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/channel.h"

namespace r2ccl {

class Channel::Actions {
 public:
  explicit Actions(Channel& channel, Tick tick = {}, trace::DetectedBy by = trace::DetectedBy::kNone,
                   std::string why = {})
      : c_(channel), tick_(tick), by_(by), why_(std::move(why)) {}

  bool planned = false;  ///< the path that is left works
  /// How the peer has noticed.
  trace::DetectedBy detected_there = trace::DetectedBy::kNone;

  static constexpr bool holds(Rule) { return true; }
  std::optional<PathState> state(uint32_t id) const {
    const Path* path = c_.paths_.find(id);
    return path ? std::optional(path->state) : std::nullopt;
  }
  bool marked_failed(uint32_t id) const {
    const Path* path = c_.paths_.find(id);
    return path && path->is_failed.load(std::memory_order_relaxed);
  }
  bool connected() const { return c_.status() != Status::kConnecting; }
  std::vector<uint32_t> paths() const {
    return ids([](const Path&) { return true; });
  }
  std::vector<uint32_t> paths_on(int nic) const {
    return ids([nic](const Path& path) { return path.local_nic() == nic; });
  }
  std::vector<uint32_t> paths_to(int nic) const {
    return ids([nic](const Path& path) { return path.remote_nic() == nic; });
  }
  bool opening(uint32_t id) const { return c_.is_opening(id); }
  uint32_t opening_over(int nic) const { return c_.opening_over(nic); }
  bool another_stands_by(uint32_t id) const {
    return c_.paths_.any([&](const auto& path) { return path->id() != id && c_.stands_by(*path); });
  }

  std::vector<uint32_t> lanes() const {
    std::vector<uint32_t> all;
    for (const Path* lane : c_.paths_.lanes()) all.push_back(lane->id());
    return all;
  }
  uint32_t active() const { return c_.paths_.active() ? c_.paths_.active()->id() : 0; }
  bool ready() const { return c_.paths_.active() && c_.status() == Status::kReady; }
  bool acknowledges() const { return c_.context_.strict_ack(); }
  template <typename F>
  auto owning(F&& f) {
    const OwnershipGuard guard(c_.ownership_);
    const Scope scope(*this, guard);
    return f();
  }
  bool failed() const { return c_.status() == Status::kFailed; }
  bool any_marked() const { return c_.suspected_.load(std::memory_order_relaxed); }
  bool is_over(uint32_t id) const { return c_.rests(*c_.paths_.find(id), *owned_); }

  bool may_leave() const { return turn::may_leave(c_.sight(tick_)); }
  void leaving(uint32_t id, uint32_t /*target*/) {
    if (!planned) c_.note_leaving(*c_.paths_.find(id), by_, why_, tick_);
  }
  void told(uint32_t id) {
    if (!planned) c_.note_told(*c_.paths_.find(id), detected_there, why_);
  }
  void hear() { c_.hear(tick_); }
  bool carries_traffic() const { return turn::carries(c_.sight(tick_)); }
  void as_marked(uint32_t id) {
    const Path::Failure& failure = *c_.paths_.find(id)->failure;
    by_ = failure.by;
    why_ = failure.why;
  }
  bool begin_fence(uint32_t id) { return c_.begin_leaving(*c_.paths_.find(id), by_, planned, tick_); }
  void take_out(uint32_t id) { c_.take_out(*c_.paths_.find(id), planned, tick_, *owned_); }
  void stop(uint32_t id) { c_.stop(*c_.paths_.find(id)); }
  void fence_given_up(uint32_t) { c_.fence_given_up(tick_); }
  void prove_anew(uint32_t id) {
    Path& path = *c_.paths_.find(id);
    c_.look_at_probe(path, tick_);
    path.forget_probe();
    path.prove(tick_.alive);
  }
  void mark(uint32_t id) {
    Path& path = *c_.paths_.find(id);
    const OwnershipGuard owned(c_.ownership_);
    if (!path.failure) path.mark_failed(by_, why_, owned);
    c_.suspected_.store(true, std::memory_order_release);
  }
  void drop(uint32_t id, bool tell) { c_.drop(id, tell); }
  void forget(uint32_t id) { c_.retire(id); }
  void opening_refused(uint32_t) { c_.opening_failed(why_, tick_); }
  void lane(uint32_t id) {
    Path& path = *c_.paths_.find(id);
    {
      const OwnershipGuard owned(c_.ownership_);
      c_.paths_.add_lane(path, owned);
    }
    path.since = now_ns();
    path.forget_probe();
  }
  void stand_by(uint32_t id) {
    Path& path = *c_.paths_.find(id);
    path.state = PathState::kStandby;
    c_.remove_lane(path, *owned_);
  }
  void activate(uint32_t id, bool first, bool moved) {
    moving_since_ = std::exchange(c_.moving_since_, 0);
    comes_home_ = c_.activate(*c_.paths_.find(id), first, moved, tick_, *owned_);
  }
  void carries_on(bool moved) { c_.carries_on(moved, *owned_); }
  void look_for_marked() { c_.look_for_suspects(*owned_); }
  bool resume() { return c_.advance(Status::kReady); }
  void carried(uint32_t id, bool first) {
    c_.carried(first, tick_);
    c_.note_carried(*c_.paths_.find(id), first, moving_since_, comes_home_);
  }

  void send_migrate(uint32_t id) {
    c_.send(wire::Type::kMigrate, wire::Migrate{c_.end_.epoch(), id, uint32_t(by_), planned});
  }
  void send_nic_lost(int nic) {
    c_.send(wire::Type::kNic, wire::Nic{uint32_t(nic), state_of_lost(c_.context_.nic_down[size_t(nic)])});
  }
  int home_nic() const { return c_.home_nic_; }
  int peer_home_nic() const { return c_.peer_.home_nic(); }
  void send_nic_back(int nic) { c_.send(wire::Type::kNic, wire::Nic{uint32_t(nic), wire::NicState::kUp}); }
  void home_may_work() { c_.failback_.rail_active(tick_.now); }
  void rails_changed() { c_.rails_changed(tick_); }
  void send_drop(uint32_t id) { c_.send(wire::Type::kDrop, wire::PathMessage{id}); }
  void send_use(uint32_t id) { c_.send(wire::Type::kUse, wire::Use{c_.end_.epoch(), id}); }
  void send_lane(uint32_t id) { c_.send(wire::Type::kLane, wire::PathMessage{id}); }
  void send_rest(uint32_t id) { c_.send(wire::Type::kRest, wire::PathMessage{id}); }

 protected:
  Channel& c_;
  const Tick tick_;
  std::optional<Owned> owned_;  // within owning()

 private:
  template <class Predicate>
  std::vector<uint32_t> ids(Predicate&& wanted) const {
    std::vector<uint32_t> found;
    for (const auto& path : c_.paths_)
      if (wanted(*path)) found.push_back(path->id());
    return found;
  }

  struct Scope {
    Scope(Actions& actions, Owned owned) : actions_(actions) { actions.owned_.emplace(owned); }
    ~Scope() { actions_.owned_.reset(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Actions& actions_;
  };

  trace::DetectedBy by_;
  std::string why_;
  uint64_t moving_since_ = 0;
  bool comes_home_ = false;
};

/// The end of a fence.
class Channel::FenceActions : public Channel::Actions {
 public:
  FenceActions(Channel& channel, Owned owned) : Actions(channel), owned_(owned) {
    channel.ownership_.check(owned);
  }
  void send_fenced(bool stopped) { c_.send_fenced(stopped, owned_); }

 private:
  const Owned owned_;
};

}  // namespace r2ccl
