// SPDX-License-Identifier: Apache-2.0
// The fence: nothing comes over a path that is left any more, and nothing more is sent (DESIGN.md, 'The
// channel', point 5). Each end stops its own half if it can, and says so; where one cannot, because its
// device is gone or does not answer, the other end's fence and a packet's lifetime do. PROTOCOL.md gives the
// reasons.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/deeds.h"

namespace r2ccl {
namespace {

// Flushes have this part of the fence's bound; then the QP is destroyed. As long an event that says that the
// device has failed may take to follow a command that it only pretended to carry out.
constexpr uint64_t kFlushShare = 5;
// What the managers of a network assume: 4.096 µs · 2^16 on Ethernet (Linux, CMA_IBOE_PACKET_LIFETIME; 2^18
// until 2022), 4.096 µs · 2^18 on InfiniBand (OpenSM, packet_life_time).
constexpr uint64_t kEthernetLifetimeNs = uint64_t{4096} << 16, kInfiniBandLifetimeNs = uint64_t{4096} << 18;

}  // namespace

uint64_t Channel::packet_lifetime_ns() const {
  if (core_.config.packet_lifetime.count() > 0) return nanoseconds(core_.config.packet_lifetime);
  return core_.devices[size_t(left_nic_)].link_layer() == IBV_LINK_LAYER_ETHERNET ? kEthernetLifetimeNs
                                                                                  : kInfiniBandLifetimeNs;
}

void Channel::begin_fence(const Tick& tick) {
  phase_since_ = tick.alive;
  migration_started_ = tick.now;
  silent_since_ = destroyed_at_ = fence_known_at_ = 0;
  retire_unfenced();
}

void Channel::start_fence(Path& path, trace::DetectedBy by, bool planned, const Tick& tick, bool tell_peer) {
  const TurnGuard turn(turn_);
  if (!advance(Status::kMigrating)) return;
  begin_fence(tick);
  begin_search(tick);
  left_nic_ = path.local_nic();
  emit(trace::EventType::kFenceStarted, path.local_nic(), uint64_t(by), path.id(), planned);
  emit(trace::EventType::kMigrationStarted, path.local_nic(), end_.epoch(), path.id());
  // After the event, so that who noticed first is on record first; before the fence, which takes longer.
  if (tell_peer) send(wire::Type::kMigrate, wire::Migrate{end_.epoch(), path.id(), uint32_t(by), planned});
  if (!planned) {
    rails_.failed(path.local_nic(), path.remote_nic(), tick.now + bar_ns());
    if (path.local_nic() == home_nic_ && path.remote_nic() == peer_home_nic_) home_rail_.failed(tick.now);
  }
  if (&path == active_) active_ = nullptr;
  core_.load_stale = true;
  path.state = PathState::kFencing;
  path.absolve(turn);
  abandon(path, turn);
  remove_lane(path, turn);
  look_for_suspects(turn);
  hand(path, "ibv_modify_qp to ERR", &Path::start_fence);
  if (sender_)  // whether the others still work is known by the time the ledgers have been exchanged
    for (auto& other : paths_)
      if (!active_ && (other->state == PathState::kStandby || other->state == PathState::kLane)) {
        look_at_probe(*other, tick);
        other->forget_probe();
        other->prove(tick.alive);
      }
}

void Channel::unfenceable(const std::string& why) {
  fail(Error{ErrorCode::kUnfenceable, "channel " + std::to_string(number_) + ": " + why +
                                          "; what its NIC still holds may be written later, so its messages "
                                          "cannot be sent again"});
}

// Nothing that its driver says of the path counts any more but flushes, which come from the NIC itself.
bool Channel::device_failed(const Path& path) const {
  const auto nic = size_t(path.local_nic());
  return path.refused_with_eio || path.device_fatals != core_.device_fatals[nic] || core_.device_gone[nic];
}

// Of a device that works. What a sender's NIC may still send meets the receiver's fence; a receiver's NIC
// that stands still with its driver may place what it has taken in at any time.
void Channel::no_fence(const std::string& why, const Tick& tick) {
  sender_ ? cannot_fence(why, tick) : unfenceable(why);
}

void Channel::step_fence(const Tick& tick) {
  if (tick.alive - phase_since_ < nanoseconds(core_.config.fence_delay)) return;  // 0 but for debugging
  Path* path = find(end_.leaving());
  if (!path) return step_fence_of_grave(tick);
  const uint64_t bound = nanoseconds(core_.config.fence_bound);
  if (path->in_hand()) {
    silent_since_ = 0;  // the NIC's time begins when the driver has returned
    if (tick.alive - phase_since_ > bound && core_.workers->stuck(path->local_nic()))
      no_fence(rail_name(*path) + ": " + core_.workers->explain(path->local_nic(), *path->job, tick.alive),
               tick);
    return;
  }
  bool empty = false;
  {
    const TurnGuard turn(turn_);
    const bool flush = path->retry_sentinels();
    for (uint32_t handled = 0; !empty && handled < Path::kReceiveDepth + Path::kSendDepth; handled += kBatch)
      empty = !drain(*path, turn);
    if (flush) hand(*path, "ibv_modify_qp to ERR", &Path::flush_again);
  }
  if (path->in_hand()) return;
  if (path->flushed()) return fence_done(tick);
  if (!path->data) {
    if (device_failed(*path))
      return cannot_fence(rail_name(*path) + ": its QP was destroyed by a device that has failed", tick);
    if (destroyed_at_ == 0) destroyed_at_ = tick.alive;
    if (tick.alive - destroyed_at_ >= bound / kFlushShare) fence_done(tick);
    return;
  }
  if (path->destroying_failed && device_failed(*path))
    return cannot_fence(rail_name(*path) + ": " + path->outcome.error().message, tick);
  if (!empty) return;  // what is there is read before silence counts
  if (silent_since_ == 0) silent_since_ = tick.alive;
  const uint64_t silent = tick.alive - silent_since_;
  if (!path->reports_nothing && !path->destroying_failed && silent <= bound / kFlushShare) return;
  if (device_failed(*path))
    return cannot_fence(rail_name(*path) + ": no flushes come from a device that has failed", tick);
  if (path->destroying_failed) {
    if (silent > bound)
      no_fence(rail_name(*path) + ": no flushes came within " +
                   std::to_string(core_.config.fence_bound.count()) + " ms (R2CC_FENCE_MS), and " +
                   path->outcome.error().message,
               tick);
    return;
  }
  R2_INFO("NET/R2CCL: channel %u: %s: no flushes for %llu ms; destroying its QP instead", number_,
          rail_name(*path).c_str(), static_cast<unsigned long long>(silent / kNsPerMs));
  const TurnGuard turn(turn_);
  hand(*path, "ibv_destroy_qp", &Path::fence_by_destroying);
}

// The path was given up before, and is being destroyed.
void Channel::step_fence_of_grave(const Tick& tick) {
  const Graveyard::Grave* grave = graveyard_.grave_of(end_.leaving());
  if (!grave) return fence_done(tick);
  const bool too_long = tick.alive - phase_since_ > nanoseconds(core_.config.fence_bound);
  const std::string path = "a path over NIC " + nic_name(grave->nic) + ": ";
  if (!grave->job->done()) {
    if (too_long && core_.workers->stuck(grave->nic))
      no_fence(path + core_.workers->explain(grave->nic, *grave->job, tick.alive), tick);
    return;
  }
  if (graveyard_.doubtful(*grave) || grave->outcome->with_eio)
    return cannot_fence(path + "its device has failed", tick);
  if (!grave->outcome->refused) return fence_done(tick);
  if (too_long) no_fence(path + "the driver refuses to destroy its QP", tick);
}

void Channel::say_fenced(bool stopped, HasTurn turn) {
  wire::Fenced fenced{};
  fenced.epoch = end_.epoch();
  fenced.path = end_.leaving();
  fenced.stopped = stopped;
  forget_unflushed(fenced.path, turn);
  fill_ledger(fenced, turn);
  send(wire::Type::kFenced, fenced);
}

void Channel::fence_done(const Tick& tick) {
  const TurnGuard turn(turn_);
  emit(trace::EventType::kFenceDone, left_nic_, end_.leaving(), (now_ns() - migration_started_) / 1000);
  bury(end_.leaving());
  retire_unfenced();
  FenceDeeds deeds(*this, turn);
  Conduct(end_, deeds).fenced();
  phase_since_ = tick.alive;
  fence_known_at_ = tick.now;
}

// The path is taken out of reach with its completion queue: the ledger is said, and what comes later is
// written once more.
void Channel::cannot_fence(const std::string& why, const Tick& tick) {
  R2_INFO("NET/R2CCL: channel %u: %s; the fence of the other end has to do", number_, why.c_str());
  const TurnGuard turn(turn_);
  no_fence_since_ = why;
  const auto it = std::find_if(paths_.begin(), paths_.end(),
                               [this](const auto& path) { return path->id() == end_.leaving(); });
  if (it != paths_.end()) {
    unfenced_ = std::move(*it);
    paths_.erase(it);
  }
  FenceDeeds deeds(*this, turn);
  Conduct(end_, deeds).cannot_fence();
  phase_since_ = tick.alive;
}

// Nothing is asked of a path that this end could not fence any more.
void Channel::retire_unfenced() {
  if (unfenced_) graveyard_.bury(std::move(unfenced_), now_ns() + retired_for_ns());
}

// Of an end that could not fence. The kernel destroys the queue pairs of a device that goes; when it has, the
// context is closed. That is the only word of such a device that counts: EIO comes before it.
bool Channel::stopped_by_removal() {
  if (unfenced_) {
    if (!core_.device_gone[size_t(unfenced_->local_nic())] || unfenced_->in_hand() || !unfenced_->data)
      return false;
    if (unfenced_->destroying_failed) return unfenced_->refused_with_eio;
    hand(*unfenced_, "ibv_destroy_qp", &Path::fence_by_destroying);
    return false;
  }
  const Graveyard::Grave* grave = graveyard_.grave_of(end_.leaving());
  return grave && grave->job->done() && grave->outcome->with_eio && core_.device_gone[size_t(grave->nic)];
}

void Channel::step_other_fence(const Tick& tick) {
  if (end_.own_fence() == MigrationEnd::Fence::kCannot && stopped_by_removal()) fence_done(tick);
  if (end_.phase() == Phase::kSettling && tick.now - fence_known_at_ >= packet_lifetime_ns()) {
    end_.settled();
    phase_since_ = tick.alive;
  }
  if (end_.phase() == Phase::kUnfenced && tick.alive - phase_since_ > nanoseconds(core_.config.fence_bound))
    unfenceable(no_fence_since_ + "; and " + peer_name() + " cannot fence it either");
}

// The peer may have used a path that this end has given up meanwhile: moved to ERR (see drop()), but what its
// NIC had taken in by then is over only when the sentinels are back, or the queue pair is destroyed.
void Channel::fence_given_up(const Tick& tick) {
  if (!advance(Status::kMigrating)) return;
  begin_fence(tick);
  begin_search(tick);
  Path* path = exhume(end_.leaving());
  if (!path) return step_fence(tick);
  left_nic_ = path->local_nic();
  path->state = PathState::kFencing;
  hand(*path, "ibv_modify_qp to ERR", &Path::start_fence);
}

void Channel::on_fenced(const wire::Fenced& fenced, const Tick& tick) {
  if (!hear_fenced(fenced, tick)) return;
  if (fenced.stopped)
    fence_known_at_ = tick.now;
  else
    R2_INFO("NET/R2CCL: channel %u: %s cannot fence its half of the path that is left", number_,
            peer_name().c_str());
  if (end_.phase() == Phase::kUnfenced) phase_since_ = tick.alive;
  if (end_.phase() == Phase::kChoosing) {
    phase_since_ = tick.alive;
    choose_path(tick);
  }
}

}  // namespace r2ccl
