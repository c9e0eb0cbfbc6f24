// SPDX-License-Identifier: Apache-2.0
// A device that was removed or has had an internal error (removal.h): which commands fail, what becomes of
// the queue pairs, and how completion channels and the async descriptor end.
//
// The order is that of Linux (ib_uverbs_free_hw_resources): commands fail first, then the objects of each
// file are destroyed, the newest first and the async descriptor last. Here all queue pairs die before the
// first completion channel ends, also one that is younger than they are. Until a queue pair is destroyed its
// NIC carries on with it: what it had been given still leaves, and what its peers send still lands.
#include "faultinject/preload/removal.h"

#include <errno.h>

#include <algorithm>

#include "faultinject/preload/context.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/provider_call.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"

namespace faultinject {
namespace {

constexpr uint32_t kMostRecords = 256;  // of commands, per device and process

ibv_async_event device_fatal() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  return event;
}

}  // namespace

void Context::remove_device(Fault& fault, const RemovalTimes& times, bool internal_error, uint64_t now) {
  if (removal_.stage != DeviceRemoval::Stage::kPresent) return;
  const FaultEntry& entry = fault.entry();
  removal_.by = fault.at_work();
  removal_.internal_error = internal_error;
  removal_.times = times;
  removal_.events = entry.events != 0;
  removal_.fails_ns = now + times.notice_ns;
  removal_.stage = DeviceRemoval::Stage::kAnnounced;
  mode_dirty_ = true;
  if (opening_) {  // it is not there any more; ibv_open_device says so
    removal_.stage = DeviceRemoval::Stage::kEnded;
    return;
  }
  if (removal_.events) {
    push_event(device_fatal());
    const uint64_t then = monotonic_ns();
    took_effect(fault.entry(), then);
    witness(fault, Effect::kEventDelivered, 0, IBV_EVENT_DEVICE_FATAL, then);
  }
  removal_goes_on(monotonic_ns());
}

uint64_t Context::removal_goes_on(uint64_t now) {
  using Stage = DeviceRemoval::Stage;
  if (removal_.stage == Stage::kAnnounced && now >= removal_.fails_ns) {
    FaultEntry& entry = board().faults[removal_.by.id - 1];
    removal_.stage = Stage::kFailing;
    // From here on, not from when it was planned: a process that is late keeps its window.
    const uint64_t then = monotonic_ns();
    removal_.dies_ns = then + removal_.times.window_ns;
    took_effect(entry, then);
    report(removal_.by, Effect::kDeviceGone, 0, 0, then);
    if (removal_.hides_completions()) stop_completions(now);
  }
  if (removal_.stage == Stage::kFailing && now >= removal_.dies_ns) kill_queue_pairs(now);
  if (removal_.stage == Stage::kDead && now >= removal_.next_ns()) {
    removal_.stage = Stage::kEnded;
    if (removal_.times.end == DescriptorEnd::kFatal) {
      push_event(device_fatal());
      report(removal_.by, Effect::kEventDelivered, 0, IBV_EVENT_DEVICE_FATAL, monotonic_ns());
    } else {
      events_->end();
      report(removal_.by, Effect::kDescriptorEnded, 0, 0, monotonic_ns());
    }
  }
  return removal_.next_ns();
}

// What is in the completion queues by now is in the program's own memory, and stays readable.
void Context::stop_completions(uint64_t now) {
  for (auto& [pointer, cq] : cqs_)
    if (!cq->is_dead()) drain(*cq, now);
}

void Context::kill_queue_pairs(uint64_t now) {
  if (!removal_.hides_completions()) stop_completions(now);
  removal_.stage = DeviceRemoval::Stage::kDead;
  for (auto& [pointer, qp] : qps_) {
    drop_held(*qp);
    if (!move_to_err(*qp)) continue;
    report(removal_.by, Effect::kQpToErr, qp->qp->qp_num, 0, monotonic_ns());
  }
  if (removal_.is_torn_down())
    for (auto& [pointer, channel] : channels_) end_channel(*channel);
  removal_.ends_ns = monotonic_ns() + removal_.times.settle_ns;
}

void Context::end_channel(CompletionChannel& channel) {
  const ProviderCall call;
  const auto make_waker = [&] {
    const AsyncEvents::RealFd shown(events_.get());  // the kernel is handed the descriptor with a new object
    ibv_pd* pd = waker_pd();
    return pd != nullptr ? ChannelWaker::make(pd, channel.channel()) : nullptr;
  };
  if (!channel.end(slot_, make_waker)) return;
  report(removal_.by, Effect::kChannelEnded, 0, uint64_t(channel.descriptor()), monotonic_ns());
}

bool Context::is_removed() {
  const std::lock_guard lock(mutex_);
  return removal_.is_failing();
}

bool Context::takes_no_commands() {
  if (removal_.stage == DeviceRemoval::Stage::kPresent) return false;
  removal_goes_on(monotonic_ns());
  return removal_.is_failing();
}

void Context::note_command(Effect effect, uint32_t qp_num, uint64_t value) {
  if (removal_.refused == kMostRecords) return;
  removal_.refused++;
  report(removal_.by, effect, qp_num, value, monotonic_ns());
}

int Context::command() {
  std::unique_lock lock(mutex_);
  catch_up();
  if (!takes_no_commands()) return 0;
  note_command(Effect::kCommandRefused, 0, EIO);
  return EIO;
}

int Context::modify_without_device(ibv_qp* pointer, const ibv_qp_attr& attributes, int mask) {
  const bool ends = (mask & IBV_QP_STATE) != 0 &&
                    (attributes.qp_state == IBV_QPS_ERR || attributes.qp_state == IBV_QPS_RESET);
  if (!removal_.driver_answers() || !ends) {
    note_command(Effect::kModifyRefused, pointer->qp_num, EIO);
    return EIO;
  }
  note_command(Effect::kCommandIgnored, pointer->qp_num, 0);
  show_state(pointer, attributes.qp_state);  // as libibverbs does after a success
  if (QueuePair* qp = attributes.qp_state == IBV_QPS_RESET ? find(pointer) : nullptr; qp != nullptr)
    forget_completions(*qp);
  return 0;
}

std::optional<int> Context::destroy_without_device(Undestroyed::Kind kind, void* object) {
  std::unique_lock lock(mutex_);
  catch_up();
  if (!takes_no_commands()) return std::nullopt;
  if (std::none_of(undestroyed_.begin(), undestroyed_.end(),
                   [&](const Undestroyed& each) { return each.object == object; }))
    undestroyed_.push_back({kind, object});
  const auto* qp = kind == Undestroyed::Kind::kQp ? static_cast<const ibv_qp*>(object) : nullptr;
  const uint32_t qp_num = qp != nullptr ? qp->qp_num : 0;
  if (!removal_.driver_answers() && !environment().destroys_disassociated) {
    note_command(Effect::kCommandRefused, qp_num, EIO);
    return EIO;
  }
  note_command(Effect::kCommandIgnored, qp_num, 0);
  if (QueuePair* known = qp != nullptr ? find(qp) : nullptr; known != nullptr) {
    stop_watching(*known);
    forget_completions(*known);
    known->destroyed = true;
    events_->forget(qp);
  }
  if (kind == Undestroyed::Kind::kCq) {
    auto* cq = static_cast<ibv_cq*>(object);
    events_->forget(cq);
    queue(cq)->ready.clear();
    queue(cq)->destroyed = true;
  }
  return 0;
}

// No command: libibverbs counts the completion queues that use it, and closes its descriptor.
std::optional<int> Context::destroy_channel_without_device(ibv_comp_channel* channel) {
  const std::lock_guard lock(mutex_);
  catch_up();
  if (!takes_no_commands()) return std::nullopt;
  for (const auto& [pointer, cq] : cqs_)
    if (cq->cq->channel == channel && !cq->destroyed) return EBUSY;
  const auto known = channels_.extract(channel);
  if (!known) return std::nullopt;
  const ProviderCall call;
  known.mapped()->drop_waker();
  known.mapped()->give_up_descriptor();
  undestroyed_.push_back({Undestroyed::Kind::kChannel, channel});  // its real queues still use it
  return 0;
}

std::vector<Undestroyed> Context::take_undestroyed() {
  const std::lock_guard lock(mutex_);
  std::stable_sort(undestroyed_.begin(), undestroyed_.end(),
                   [](const Undestroyed& a, const Undestroyed& b) { return a.kind < b.kind; });
  return std::move(undestroyed_);
}

void destroy_for_real(const std::vector<Undestroyed>& objects) {
  for (const auto& [kind, object] : objects) {
    switch (kind) {
      case Undestroyed::Kind::kQp:
        extended_take(static_cast<ibv_qp*>(object));
        FAULTINJECT_REAL(kDestroyQp, ibv_destroy_qp)(static_cast<ibv_qp*>(object));
        break;
      case Undestroyed::Kind::kSrq:
        FAULTINJECT_REAL(kDestroySrq, ibv_destroy_srq)(static_cast<ibv_srq*>(object));
        break;
      case Undestroyed::Kind::kCq:
        extended_take(static_cast<ibv_cq*>(object));
        FAULTINJECT_REAL(kDestroyCq, ibv_destroy_cq)(static_cast<ibv_cq*>(object));
        break;
      case Undestroyed::Kind::kChannel:
        FAULTINJECT_REAL(kDestroyCompChannel, ibv_destroy_comp_channel)
        (static_cast<ibv_comp_channel*>(object));
        break;
      case Undestroyed::Kind::kMr:
        FAULTINJECT_REAL(kDeregMr, ibv_dereg_mr)(static_cast<ibv_mr*>(object));
        break;
      case Undestroyed::Kind::kPd:
        FAULTINJECT_REAL(kDeallocPd, ibv_dealloc_pd)(static_cast<ibv_pd*>(object));
        break;
    }
  }
}

}  // namespace faultinject
