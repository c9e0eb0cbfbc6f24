// SPDX-License-Identifier: Apache-2.0
// The fence of a path that is left, carried out: protocol/fence.h decides, from what is seen here, what is
// done here.
#include <algorithm>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/channel/actions.h"

namespace r2ccl {
void Channel::begin_fence(const Tick& tick) {
  fence_.begin(tick.alive);
  migration_started_ = tick.now;
  if (moving_since_ == 0) moving_since_ = tick.now;
  retire_unfenced();
}

bool Channel::begin_leaving(const Path& path, trace::DetectedBy by, bool planned, const Tick& tick) {
  if (!advance(Status::kMigrating)) return false;
  begin_fence(tick);
  begin_search(tick);
  left_nic_ = path.local_nic();
  emit(trace::EventType::kFenceStarted, path.local_nic(), uint64_t(by), path.id(), planned);
  emit(trace::EventType::kMigrationStarted, path.local_nic(), end_.epoch(), path.id());
  return true;
}

void Channel::take_out(Path& path, bool planned, const Tick& tick, Owned owned) {
  ownership_.check(owned);
  rails_.left(path.local_nic(), path.remote_nic(), planned, tick.now + bounds_.bar());
  failback_.left(is_home(path), planned, tick.now);
  context_.load_stale = true;
  paths_.leave(path, owned);
  path.clear_failure(owned);
  abandon(path, owned);
  spread({}, owned);
  look_for_suspects(owned);
}

void Channel::stop(Path& path) { run_on_worker(path, "ibv_modify_qp to ERR", &Path::start_fence); }

void Channel::unfenceable(const std::string& why) {
  fail(Error{ErrorCode::kUnfenceable,
             "channel " + std::to_string(number_) + ": " + why +
                 "; its NIC may still write, so its messages cannot be retransmitted"});
}

DeviceSight Channel::see_device(const Path& path) const {
  const auto nic = size_t(path.local_nic());
  DeviceSight seen;
  seen.refused = path.refused_with_eio;
  seen.reported = path.device_fatals != context_.device_fatals[nic];
  seen.removed = context_.device_gone[nic];
  return seen;
}

FenceSight Channel::see_left_path() {
  Path* path = paths_.find(end_.leaving());
  if (!path) return of_given_up(see_destruction());
  FenceSight seen;
  if (!path->worker_busy()) {
    const OwnershipGuard owned(ownership_);
    const bool flush = path->retry_sentinels();
    for (uint32_t handled = 0; !seen.empty && handled < Path::kReceiveDepth + Path::kSendDepth;
         handled += kBatch)
      seen.empty = !drain(*path, owned);
    if (flush) run_on_worker(*path, "ibv_modify_qp to ERR", &Path::flush_again);
  }
  seen.worker_busy = path->worker_busy();
  seen.stuck = seen.worker_busy && context_.workers->stuck(path->local_nic());
  if (seen.worker_busy) return seen;
  seen.flushed = path->flushed();
  seen.mute = path->reports_nothing;
  seen.destroyed = !path->data;
  seen.refused = path->destroying_failed;
  seen.failed = has_failed(see_device(*path));
  return seen;
}

// The path was given up before, and is being destroyed, or it is gone.
DestructionSight Channel::see_destruction() const {
  DestructionSight seen;
  const RetiredPaths::Destruction* destruction = paths_.retired().destruction_of(end_.leaving());
  seen.gone = destruction == nullptr;
  if (!destruction) return seen;
  seen.done = destruction->job->done();
  seen.stuck = context_.workers->stuck(destruction->nic);
  if (!seen.done) return seen;
  seen.refused = destruction->outcome->refused;
  seen.device.refused = destruction->outcome->with_eio;
  seen.device.reported = paths_.retired().doubtful(*destruction);
  seen.device.removed = context_.device_gone[size_t(destruction->nic)];
  return seen;
}

// For the log, and for the error.
std::string Channel::words(NoFence why, const Tick& tick) {
  const Path* path = paths_.find(end_.leaving());
  const RetiredPaths::Destruction* destruction =
      path ? nullptr : paths_.retired().destruction_of(end_.leaving());
  if (!path && !destruction) return {};
  const std::string text =
      path ? rail_name(*path) + ": " : "a path over NIC " + nic_name(destruction->nic) + ": ";
  const auto refusal = [&] {
    return path ? path->outcome.error().message : "the driver refuses to destroy its QP";
  };
  switch (why) {
    case NoFence::kNone:
      break;
    case NoFence::kDriverKeepsCall:
      return text + context_.workers->explain(path ? path->local_nic() : destruction->nic,
                                              path ? *path->job : *destruction->job, tick.alive);
    case NoFence::kDestroyedByFailed:
      return text + "its QP was destroyed by a device that has failed";
    case NoFence::kRefusedByFailed:
      return text + (path ? refusal() : "its device has failed");
    case NoFence::kNoFlushesByFailed:
      return text + "no flushes come from a device that has failed";
    case NoFence::kNoFlushesAndRefused:
      if (!path) return text + refusal();
      return text + "no flushes came within " + std::to_string(context_.config.fence_bound.count()) +
             " ms (R2CC_FENCE_MS), and " + refusal();
  }
  return text;
}

void Channel::step_fence(const Tick& tick) {
  if (!fence_.may_look(tick.alive)) return;
  const Actions actions(*this, tick);
  const FenceStep step = fence_.look(actions, tick.alive, see_left_path());
  switch (step.act) {
    case FenceAct::kWait:
    case FenceAct::kStop:
      return;
    case FenceAct::kDone:
      return fence_done(tick);
    case FenceAct::kDestroy: {
      Path& path = *paths_.find(end_.leaving());
      R2_INFO("NET/R2CCL: channel %u: %s: no flushes for %llu ms; destroying its QP instead", number_,
              rail_name(path).c_str(),
              static_cast<unsigned long long>(fence_.silence(tick.alive) / kNsPerMs));
      const OwnershipGuard owned(ownership_);
      return run_on_worker(path, "ibv_destroy_qp", &Path::fence_by_destroying);
    }
    case FenceAct::kCannot:
      return cannot_fence(words(step.why, tick), tick);
    case FenceAct::kUnfenceable:
      return unfenceable(words(step.why, tick));
  }
}

void Channel::send_fenced(bool stopped, Owned owned) {
  ownership_.check(owned);
  wire::Fenced fenced{};
  fenced.epoch = end_.epoch();
  fenced.path = end_.leaving();
  fenced.stopped = stopped;
  fill_ledger(fenced, owned);
  send(wire::Type::kFenced, fenced);
}

void Channel::fence_done(const Tick& tick) {
  const OwnershipGuard owned(ownership_);
  emit(trace::EventType::kFenceDone, left_nic_, end_.leaving(), (now_ns() - migration_started_) / 1000);
  retire(end_.leaving());
  retire_unfenced();
  FenceActions actions(*this, owned);
  ChannelEnd(end_, actions).fenced();
  fence_.over(tick.alive);
}

// The path is taken out of reach with its completion queue: the ledger is said, and what comes later is
// written once more.
void Channel::cannot_fence(const std::string& why, const Tick& tick) {
  R2_INFO("NET/R2CCL: channel %u: %s; %s", number_, why.c_str(),
          sender_ ? "the receiver's fence is enough"
                  : "so nothing is retransmitted before the kernel has stopped the device");
  const OwnershipGuard owned(ownership_);
  no_fence_since_ = why;
  paths_.set_aside(end_.leaving());
  FenceActions actions(*this, owned);
  ChannelEnd(end_, actions).cannot_fence();
  fence_.over(tick.alive);
}

// Nothing is asked of a path that this end could not fence any more.
void Channel::retire_unfenced() { paths_.retire_aside(now_ns() + bounds_.retired()); }

// Of an end that could not fence.
void Channel::look_at_removal(const Tick& tick) {
  FenceSight seen;
  bool removed = false;
  if (Path* aside = paths_.aside()) {
    removed = context_.device_gone[size_t(aside->local_nic())];
    seen.worker_busy = aside->worker_busy();
    if (!seen.worker_busy) {
      aside->look_for_sentinels();
      seen.flushed = aside->flushed();
      seen.destroyed = !aside->data;
      seen.refused = aside->destroying_failed;
      seen.failed = aside->refused_with_eio;
    }
  } else if (const RetiredPaths::Destruction* destruction = paths_.retired().destruction_of(end_.leaving())) {
    removed = context_.device_gone[size_t(destruction->nic)];
    seen = of_removed(see_destruction());
  }
  switch (fence_.look_at_removal(removed, seen)) {
    case FenceAct::kDone:
      return fence_done(tick);
    case FenceAct::kDestroy:
      return run_on_worker(*paths_.aside(), "ibv_destroy_qp", &Path::fence_by_destroying);
    default:
      return;
  }
}

void Channel::look_at_unfenced(const Tick& tick) {
  if (fence_.look_at_unfenced(end_.phase(), tick.alive) != FenceAct::kUnfenceable) return;
  const std::string own =
      end_.own_fence() == MigrationEnd::Fence::kCannot ? no_fence_since_ + "; and " : std::string();
  unfenceable(own + "the device of " + peer_.name() +
              " at the other end of the path has failed, and its kernel has not "
              "stopped it within " +
              std::to_string(context_.config.removal_bound.count()) + " ms (R2CC_REMOVAL_MS)");
}

// The peer may have used a path that this end has given up meanwhile: moved to ERR (see drop()), but what its
// NIC had taken in by then is over only when the sentinels are back, or the queue pair is destroyed.
void Channel::fence_given_up(const Tick& tick) {
  if (!advance(Status::kMigrating)) return;
  begin_fence(tick);
  begin_search(tick);
  Path* path = paths_.reclaim(end_.leaving());
  const Actions actions(*this, tick);
  switch (fence_.begin_given_up(actions, tick.alive, path != nullptr)) {
    case FenceAct::kDone:
      return fence_done(tick);
    case FenceAct::kStop:
      left_nic_ = path->local_nic();
      path->state = PathState::kFencing;
      return stop(*path);
    default:
      return step_fence(tick);
  }
}

void Channel::on_fenced(const wire::Fenced& fenced, const Tick& tick) {
  if (!peer_fenced(fenced, tick)) return;
  fence_.peer_over(tick.alive, end_.phase());
  if (!fenced.stopped)
    R2_INFO("NET/R2CCL: channel %u: %s cannot fence its half of the old path%s", number_,
            peer_.name().c_str(), sender_ ? "; waiting until its kernel has stopped the device" : "");
  choose(tick);
}

}  // namespace r2ccl
