// SPDX-License-Identifier: Apache-2.0
// A context follows the board: faults that were armed, fired or healed take effect in it, and with none of
// them at work its device leaves the slow path.
#include <algorithm>

#include "faultinject/preload/context.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/slots.h"

namespace faultinject {

std::unique_lock<std::mutex> Context::lock_in_turn() {
  while (const uint32_t first = wait_first_.load()) wait_first_.wait(first);
  return std::unique_lock(mutex_);
}

std::unique_lock<std::mutex> Context::lock_first() {
  wait_first_.fetch_add(1);
  std::unique_lock lock(mutex_);
  if (wait_first_.fetch_sub(1) == 1) wait_first_.notify_all();
  return lock;
}

void Context::sync(uint64_t now) {
  const auto lock = lock_first();
  sync_locked(now);
  opening_ = false;
}

void Context::end_fault(Fault& fault, uint64_t now) {
  fault.begun = false;
  fault.end(*this, now);
  if (watched_ == 0) return;
  // A queue pair that was broken is not mended by that: what its program sees of it is still to be told.
  for (auto& [pointer, qp] : qps_)
    if (qp->next_seen_by.id == fault.id() && !qp->failure_due) stop_watching(*qp);
}

void Context::sync_locked(uint64_t now) {
  sync_due_ = false;
  const uint32_t count = std::min(board().fault_count.load(), kMaxFaults);
  for (; faults_seen_ < count; faults_seen_++) {
    FaultEntry& entry = board().faults[faults_seen_];
    if (entry.phase.load() == Phase::kHealed) continue;
    if (auto fault = make_fault(entry)) faults_.push_back(std::move(fault));
  }
  for (const auto& fault : faults_) {
    const auto [phase, round] = fault->entry().phase.both();
    if (fault->begun && (phase != Phase::kFired || fault->round != round)) end_fault(*fault, now);
    if (phase != Phase::kFired || fault->begun) continue;
    fault->begun = true;
    fault->round = round;
    slot_.raise();  // before anything is touched; see the fast path of poll
    fault->begin(*this, now);
  }
  // One that heals only now, after the loop, still has its end() to come.
  std::erase_if(faults_, [](const auto& fault) {
    return !fault->begun && fault->entry().phase.load() == Phase::kHealed;
  });
  pump_all(now);  // what a healed fault kept back goes at once
  refresh_mode();
}

void Context::catch_up() {
  if (sync_due_ || !faults_.empty() || board().fault_count.load() != faults_seen_)
    sync_locked(monotonic_ns());
}

bool Context::is_on_target(const Fault& fault) const {
  if (fault.entry().hits(node_, nic_)) return true;
  if (!fault.reaches_peers()) return false;
  for (const auto& [pointer, qp] : qps_)
    if (qp->peer && fault.entry().hits(qp->peer->node, qp->peer->nic)) return true;
  for (const auto& [pointer, to] : ahs_)
    if (fault.entry().hits(to.node, to.nic)) return true;
  return false;
}

bool Context::needs_slow_path() const {
  if (board().first_op_ns.load() == 0 || held_ != 0 || cuts_ != 0 || frozen_ != 0) return true;
  if (removal_.stage != DeviceRemoval::Stage::kPresent) return true;
  for (const auto& fault : faults_)
    if (is_on_target(*fault) && fault->watches(*this)) return true;
  for (const auto& [pointer, qp] : qps_)
    if (qp->special()) return true;
  for (const auto& [pointer, cq] : cqs_)
    if (!cq->ready.empty() || cq->is_dead() || cq->wakes != 0) return true;
  return false;
}

void Context::refresh_mode() {
  mode_dirty_ = false;
  const bool slow = needs_slow_path();
  if (slow == (slot_.slow.load() != 0)) return;
  if (slow) return slot_.raise();
  for (auto& [pointer, qp] : qps_) qp->sent.clear();  // from here on it would be out of date
  slot_.lower();
}

uint64_t Context::tick(uint64_t now) {
  const auto lock = lock_first();
  return tick_locked(now);
}

void Context::stand_in_for_thread(uint64_t now) {
  if (process_.has_thread()) return;
  bool changed = false;
  advance(board(), now, changed);
  if (changed) process_.wake_everybody();
  sync_locked(now);
  tick_locked(now);
}

uint64_t Context::tick_locked(uint64_t now) {
  if (sync_due_) sync_locked(now);
  uint64_t next = UINT64_MAX;
  for (const auto& fault : faults_)
    if (fault->begun) next = std::min(next, fault->tick(*this, now));
  next = std::min(next, removal_goes_on(now));
  if (!removal_.hides_completions()) {
    show_due(now);
    next = std::min(next, next_due_ns_);
  }
  next = std::min(next, pump_all(now));
  if (mode_dirty_) refresh_mode();
  return next;
}

}  // namespace faultinject
