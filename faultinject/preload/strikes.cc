// SPDX-License-Identifier: Apache-2.0
// What faults do to queue pairs, completion queues and the device.
#include <algorithm>

#include "faultinject/preload/context.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/provider_call.h"
#include "faultinject/preload/slots.h"

namespace faultinject {

// By the provider's own function: ibv_modify_qp would write ibv_qp::state, which the program may read at any
// time and which stays as the program knows it, as with a device that fails by itself.
bool Context::move_to_err(QueuePair& qp) {
  const ProviderCall call;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return slot_.modify_qp != nullptr && slot_.modify_qp(qp.qp, &attributes, IBV_QP_STATE) == 0;
}

bool Context::cut(QueuePair& qp, Fault& fault, uint64_t now, Effect effect, uint64_t since) {
  if (qp.life != QueuePair::Life::kWhole || !qp.reliable) return false;
  if (!qp.connected && shown_state(qp.qp) != IBV_QPS_RTR) return false;
  qp.cut_in = qp.connected ? IBV_QPS_RTS : IBV_QPS_RTR;
  set_life(qp, QueuePair::Life::kCut);
  qp.struck_by = fault.at_work();
  qp.cut_ns = now;
  qp.shown_at_ns = 0;
  const uint64_t before = monotonic_ns();
  if (!move_to_err(qp)) {
    set_life(qp, QueuePair::Life::kWhole);
    return false;
  }
  took_effect(fault.entry(), before);
  witness(fault, effect, qp.qp->qp_num, 0, before);
  qp.cut_ns = since != 0 ? since : before;
  if (!qp.sent.empty()) due_at(qp, qp.cut_ns + qp.retry_window_ns());
  release_all_held(qp);
  return true;
}

bool Context::strike(QueuePair& qp, Fault& fault, uint64_t, bool fatal_event, bool in_any_state) {
  if (qp.life != QueuePair::Life::kWhole) return false;
  const ibv_qp_state state = shown_state(qp.qp);
  const bool alive = in_any_state ? state != IBV_QPS_RESET && state != IBV_QPS_ERR : qp.connected;
  if (!alive) return false;
  const uint64_t before = monotonic_ns();
  if (!move_to_err(qp)) return false;
  set_life(qp, QueuePair::Life::kBroken);
  qp.struck_by = fault.at_work();
  took_effect(fault.entry(), before);
  witness(fault, Effect::kQpToErr, qp.qp->qp_num, 0, before);
  release_all_held(qp);
  if (fatal_event) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_FATAL;
    event.element.qp = qp.qp;
    push_event(event);
    witness(fault, Effect::kQpFatalDelivered, qp.qp->qp_num, 0, monotonic_ns());
  }
  return true;
}

bool Context::lose_ack(QueuePair& qp, Fault& fault, ibv_wc& wc, uint64_t now, bool after_retries) {
  const uint64_t before = monotonic_ns();
  move_to_err(qp);  // it may be there already; what counts is the completion
  qp.struck_by = fault.at_work();
  qp.acks_lost = true;
  took_effect(fault.entry(), before);
  release_all_held(qp);
  if (!after_retries) {
    set_life(qp, QueuePair::Life::kBroken);
    wc.status = IBV_WC_RETRY_EXC_ERR;
    wc.vendor_err = kVendorRetryExceeded;
    witness(fault, Effect::kWcRewritten, qp.qp->qp_num, wc.status, before);
    return true;
  }
  qp.cut_in = IBV_QPS_RTS;
  set_life(qp, QueuePair::Life::kCut);
  qp.cut_ns = now;
  due_at(qp, now + qp.retry_window_ns());
  witness(fault, Effect::kWcWithheld, qp.qp->qp_num, wc.status, before);
  hide(qp, *qp.send_cq, wc, true, 0);
  return false;
}

void Context::fail_receive(QueuePair& qp, ibv_wc& wc, int status) {
  move_to_err(qp);
  if (qp.life == QueuePair::Life::kWhole) set_life(qp, QueuePair::Life::kBroken);
  qp.connected = false;
  qp.receives_lost = true;
  release_all_held(qp);
  wc.status = ibv_wc_status(status);
  wc.vendor_err = 0;
}

void Context::deafen(QueuePair& qp, Fault& fault, uint64_t now) {
  if (qp.deaf_by.id != 0 || qp.life != QueuePair::Life::kWhole || !qp.connected || !qp.reliable) return;
  qp.deaf_by = qp.struck_by = fault.at_work();
  qp.deaf_from_ns = now;
  mode_dirty_ = true;
}

void Context::undeafen(QueuePair& qp, const Fault& fault) {
  if (qp.deaf_by.id != fault.id()) return;
  qp.deaf_by = {};
  mode_dirty_ = true;
  if (qp.life != QueuePair::Life::kWhole || qp.hidden_sends.empty()) return;
  for (HiddenWc& hidden : qp.hidden_sends)
    if (!hidden.silent) hidden.cq->ready.push_back(hidden.wc);
  qp.hidden_sends.clear();
  qp.shown_at_ns = 0;
  wake_sleepers(qp);
}

void Context::kill(CompletionQueue& cq, const Fault& fault) {
  if (!cq.is_dead_by(fault.id())) cq.dead_by.push_back(fault.id());
  cq.ready.clear();
  mode_dirty_ = true;
}

void Context::revive(CompletionQueue& cq, const Fault& fault) {
  if (std::erase(cq.dead_by, fault.id()) != 0) mode_dirty_ = true;
}

void Context::freeze(bool frozen) {
  frozen_ += frozen ? 1 : uint32_t(-1);
  mode_dirty_ = true;
  if (frozen_ != 0) return;
  thawed_.notify_all();
  for (const ibv_async_event& event : frozen_events_) events_->push(event);
  frozen_events_.clear();
  // What was completed meanwhile has raised its events already, and nobody was shown anything.
  const uint64_t now = monotonic_ns();
  for (auto& [pointer, cq] : cqs_) {
    if (cq->cq->channel == nullptr) continue;
    drain(*cq, now);
    if (!cq->ready.empty()) wake_sleeper(*cq);
  }
}

void Context::wait_until_thawed(std::unique_lock<std::mutex>& lock) {
  // The condition alone would do, but for an owner of the board that was killed and can heal no more, and for
  // a program that leaves: no thread of ours is there to thaw its device.
  while (frozen_ != 0 && !owner_is_gone(board())) {
    thawed_.wait_for(lock, std::chrono::milliseconds(process_.has_thread() ? 1000 : 20));
    stand_in_for_thread(monotonic_ns());
  }
}

void Context::push_event(const ibv_async_event& event) {
  if (frozen_ != 0) {
    frozen_events_.push_back(event);
  } else {
    events_->push(event);
  }
}

void Context::round_is_over(Fault& fault, uint32_t round) {
  const bool last = round + 1 >= fault.entry().rounds;
  if (fault.strikes_in_each_process() && !last) {
    process_.has_struck(fault.entry(), round);
  } else {
    finish_round(fault.entry(), round);
  }
  if (last) return;
  sync_due_ = true;
  process_.wake_everybody();
}

void Context::wake_everybody() { process_.wake_everybody(); }

}  // namespace faultinject
