// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/runtime.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <system_error>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/base/pause_point.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/memory/staging.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/send_queue.h"
#include "harness/vhca/queues/shared_receive.h"
#include "harness/vhca/responder/responder_hold.h"

namespace vhca {
namespace {

constexpr std::uint64_t kReclaimNs = 1'000'000'000;  // how often dead processes are looked for
constexpr std::uint64_t kLeastSleepNs = 50'000;      // the engine's own wake-ups are at least this far apart
// A program that polls does the work itself, and would pay for each message once more if the engine were
// woken for it. While it posts what is due soon, the engine looks at it so often, and does what is overdue.
constexpr std::uint64_t kPolledRecentlyNs = 200'000;
constexpr std::uint64_t kLookAtPollerNs = 300'000;
constexpr std::uint64_t kPollerGraceNs = 100'000;
constexpr std::size_t kBatch = 64;

// The one process-wide object. Never destroyed: the engine and late callers may outlive static destructors.
struct Global {
  std::mutex lock;
  bool tried = false;
  std::unique_ptr<Runtime> runtime;
  std::vector<std::unique_ptr<Runtime>> inherited;  // of parents; kept for handles that still point to them
};
Global& global() {
  alignas(Global) static char storage[sizeof(Global)];
  static Global* instance = ::new (storage) Global;
  return *instance;
}

}  // namespace

Runtime* Runtime::get() {
  Global& g = global();
  const std::lock_guard guard(g.lock);
  if (!g.tried) {
    g.tried = true;
    static const int hooked = ::pthread_atfork([] { global().lock.lock(); }, [] { global().lock.unlock(); },
                                               &Runtime::after_fork_in_child);
    (void)hooked;
    if (const auto place = find_place()) g.runtime.reset(new Runtime(*place));
  }
  return g.runtime.get();
}

void Runtime::after_fork_in_child() {
  // The child has the parent's memory but none of its threads, and the fabric knows only the parent: what the
  // parent opened is dead here. The child may open devices of its own.
  Global& g = global();
  if (g.runtime) {
    g.runtime->mark_as_forked_copy();
    g.inherited.push_back(std::move(g.runtime));
  }
  g.tried = false;
  g.lock.unlock();
}

int Runtime::add_user() {
  const std::lock_guard guard(user_lock_);
  if (users_++ != 0) return 0;
  if (const int error = join()) {
    users_ = 0;
    return error;
  }
  stop_ = false;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals go to the program's threads
  int error = 0;
  try {
    engine_ = std::thread([this] { run_engine(); });
  } catch (const std::system_error& refused) {
    error = refused.code().value();
    leave();
    users_ = 0;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

void Runtime::remove_user() {
  const std::lock_guard guard(user_lock_);
  if (--users_ != 0) return;
  stop_ = true;
  wake_engine(fabric(), self());
  engine_.join();
  leave();
}

void Runtime::add_qp(Qp& qp) {
  const std::lock_guard guard(lock_);
  qps_.push_back(&qp);
  active_.reserve(qps_.capacity());  // pollers and the engine add to it, and must not allocate
}

void Runtime::remove_qp(Qp& qp) {
  for (;;) {
    {
      const std::lock_guard guard(lock_);
      if (qp.is_active) std::erase(active_, &qp);
      qp.is_active = false;
      std::erase(qps_, &qp);
      if (qp.pins == 0) return;
    }
    ::sched_yield();
  }
}

void Runtime::add_cq(Cq& cq) {
  const std::lock_guard guard(lock_);
  cqs_.push_back(&cq);
}

void Runtime::remove_cq(Cq& cq) {
  const std::lock_guard guard(lock_);
  std::erase(cqs_, &cq);
}

void Runtime::add_srq(Srq& srq) {
  const std::lock_guard guard(lock_);
  srqs_.push_back(&srq);
}

void Runtime::remove_srq(Srq& srq) {
  const std::lock_guard guard(lock_);
  std::erase(srqs_, &srq);
}

Runtime::Objects Runtime::objects_of(const Context& context) {
  const auto of_it = [&context](const auto* object) { return object->owner == &context; };
  Objects objects;
  const std::lock_guard guard(lock_);
  std::copy_if(qps_.begin(), qps_.end(), std::back_inserter(objects.qps), of_it);
  std::copy_if(cqs_.begin(), cqs_.end(), std::back_inserter(objects.cqs), of_it);
  std::copy_if(srqs_.begin(), srqs_.end(), std::back_inserter(objects.srqs), of_it);
  return objects;
}

void Runtime::schedule(Qp& qp, std::uint64_t due_ns) {
  if (due_ns == kNever && qp.due_ns.load(std::memory_order_relaxed) == kNever) return;
  {
    const std::lock_guard guard(lock_);
    qp.due_ns.store(due_ns, std::memory_order_relaxed);
    if (due_ns == kNever) return;  // progress() takes it off the list
    if (!qp.is_active) {
      active_.push_back(&qp);
      qp.is_active = true;
    }
    if (due_ns < next_due_.load(std::memory_order_relaxed)) next_due_.store(due_ns);
  }
  const std::uint64_t engine_wakes = engine_wakes_ns_.load();
  if (due_ns >= engine_wakes) return;
  const std::uint64_t now = now_ns();
  if (polls(now)) {
    posted_early_.store(true, std::memory_order_relaxed);
    if (engine_wakes <= std::max(now + kLookAtPollerNs, due_ns + kPollerGraceNs)) return;
  }
  wake_engine(fabric(), self());
}

void Runtime::stop_polling() {
  polled_ns_.store(0);  // in this order: the engine says when it wakes, and asks then
  if (next_due_.load() < engine_wakes_ns_.load()) wake_engine(fabric(), self());
}

void Runtime::gather(Qp& qp, std::uint64_t due_ns) {
  {
    const std::lock_guard guard(lock_);
    qp.gathers.store(true, std::memory_order_relaxed);
    gathers_.store(true, std::memory_order_relaxed);
    qp.due_ns.store(due_ns, std::memory_order_relaxed);
    if (!qp.is_active) {
      active_.push_back(&qp);
      qp.is_active = true;
    }
    if (due_ns < next_due_.load(std::memory_order_relaxed)) next_due_.store(due_ns);
  }
  if (due_ns < engine_wakes_ns_.load()) wake_engine(fabric(), self());
}

void Runtime::progress_if_due(bool goes_on) {
  const std::uint64_t due = next_due_.load(std::memory_order_relaxed);
  if (due == kNever) return;
  const std::uint64_t now = now_ns();
  if (goes_on && now - polled_ns_.load(std::memory_order_relaxed) > kPolledRecentlyNs / 4)
    polled_ns_.store(now, std::memory_order_relaxed);
  if (due <= now) progress(now);
}

void Runtime::progress(std::uint64_t now, bool gathered) {
  std::array<Qp*, kBatch> batch;
  std::size_t count = 0;
  {
    const std::lock_guard guard(lock_);
    for (Qp* qp : active_) {
      if (qp->due_ns.load(std::memory_order_relaxed) > now &&
          !(gathered && qp->gathers.load(std::memory_order_relaxed)))
        continue;
      ++qp->pins;
      batch[count++] = qp;
      if (count == kBatch) break;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    Qp& qp = *batch[i];
    std::unique_lock guard(qp.send_lock, std::try_to_lock);
    if (guard.owns_lock()) {  // else another thread is at it
      const std::uint64_t due = run_send_queue(qp, now_ns());
      const std::lock_guard list_guard(lock_);
      qp.due_ns.store(due, std::memory_order_relaxed);
    }
  }
  const std::lock_guard guard(lock_);
  for (std::size_t i = 0; i < count; ++i) --batch[i]->pins;
  std::uint64_t next = kNever;
  std::size_t kept = 0;
  bool any_gathers = false;
  for (Qp* qp : active_) {
    any_gathers |= qp->gathers.load(std::memory_order_relaxed);
    const std::uint64_t due = qp->due_ns.load(std::memory_order_relaxed);
    if (due == kNever) {
      qp->is_active = false;
      continue;
    }
    next = std::min(next, due);
    active_[kept++] = qp;
  }
  active_.resize(kept);
  // The QPs that were served go to the end, so that a full batch cannot starve the rest.
  if (count == kBatch && kept > kBatch) std::rotate(active_.begin(), active_.begin() + kBatch, active_.end());
  next_due_.store(next, std::memory_order_relaxed);
  gathers_.store(any_gathers, std::memory_order_relaxed);
}

std::uint64_t Runtime::sleep_until(std::uint64_t now, std::uint64_t woke_ns) const {
  const std::uint64_t due = next_due_.load();
  std::uint64_t until = std::max(due, woke_ns + kLeastSleepNs);
  if (polls(now)) {
    const bool looks = looks_at_poller_ || posted_early_.load(std::memory_order_relaxed);
    if (looks || due != kNever) until = std::max(looks ? 0 : due + kPollerGraceNs, now + kLookAtPollerNs);
  }
  return std::min(until, now + kHeartbeatNs);
}

bool Runtime::polls(std::uint64_t now) const {
  return now - polled_ns_.load(std::memory_order_relaxed) < kPolledRecentlyNs;
}

void Runtime::run_engine() {
  ::pthread_setname_np(::pthread_self(), "vhca-engine");
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  ProcessSlot& slot = fabric().processes[slot_of_process(self())];
  std::uint32_t seen = slot.doorbell.load();
  std::uint64_t woke = 0, looked = 0;
  while (!stop_.load()) {
    const std::uint64_t now = now_ns();
    std::uint64_t until = sleep_until(now, woke);
    engine_wakes_ns_.store(until);
    until = std::min(until, sleep_until(now, woke));  // who scheduled in between saw no sleeper to wake
    slot.engine_sleeps.store(1);
    if (until > now && slot.doorbell.load() == seen && !stop_.load()) {
      const timespec deadline{static_cast<time_t>(until / 1'000'000'000),
                              static_cast<long>(until % 1'000'000'000)};
      ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&slot.doorbell), FUTEX_WAIT_BITSET, seen,
                &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
    }
    slot.engine_sleeps.store(0);
    engine_wakes_ns_.store(0);
    woke = now_ns();
    looks_at_poller_ = posted_early_.exchange(false, std::memory_order_relaxed);
    seen = slot.doorbell.load();  // before the flags, which are raised before it is rung
    const bool heartbeat = woke - looked >= kHeartbeatNs;
    if (heartbeat) looked = woke;
    if (slot.flags_raised.exchange(0) != 0 || heartbeat) look_at_shared_flags(heartbeat);
    std::uint64_t reclaimed = fabric().reclaimed_ns.load();
    if (heartbeat && woke - reclaimed > kReclaimNs && reclaimed < woke &&
        fabric().reclaimed_ns.compare_exchange_strong(reclaimed, woke))
      reclaim_dead_processes(fabric());  // one process does it for all
    const std::uint64_t due = next_due_.load(std::memory_order_relaxed);
    if (due <= woke && (!polls(woke) || due + kPollerGraceNs <= woke)) progress(woke);
  }
}

void Runtime::activate(Qp& qp) {
  qp.due_ns.store(0, std::memory_order_relaxed);
  next_due_.store(0, std::memory_order_relaxed);
  if (qp.is_active) return;
  active_.push_back(&qp);
  qp.is_active = true;
}

void Runtime::look_at_shared_flags(bool heartbeat) {
  serve_staged(fabric(), self());
  const std::lock_guard guard(lock_);
  for (Cq* cq : cqs_) {
    if (heartbeat) recover_lost_signals(*cq);
    deliver_pending_cq_event(*cq);
    if (!report_overrun(*cq)) continue;
    for (Qp* qp : qps_) {
      if (qp->qp_base.send_cq != cq->handle_as_cq() && qp->qp_base.recv_cq != cq->handle_as_cq()) continue;
      // One in RESET stays there, also one that its owner moves there at this moment.
      std::uint32_t seen = qp->shared->state.word();
      VHCA_PAUSE_POINT(overrun_seen);
      while (QpState::state_of(seen) != IBV_QPS_RESET && !qp->shared->state.change(seen, IBV_QPS_ERR)) {
      }
      activate(*qp);
    }
  }
  for (Srq* srq : srqs_) deliver_limit_event(*srq);
  for (Qp* qp : qps_)
    // An initiator broke it: what it was sending is to be flushed. One that was killed then may have told
    // nobody.
    if (deliver_pending_async_events(*qp) || (heartbeat && qp->state() == IBV_QPS_ERR)) activate(*qp);
}

void Runtime::wait_for_transfers() {
  std::vector<Qp*> qps;
  {
    const std::lock_guard guard(lock_);
    qps = qps_;
    for (Qp* qp : qps) ++qp->pins;
  }
  for (Qp* qp : qps) {
    qp->send_lock.lock();
    qp->send_lock.unlock();
    wait_until_unused_once(fabric(), *qp->shared, self());
  }
  const std::lock_guard guard(lock_);
  for (Qp* qp : qps) --qp->pins;
}

}  // namespace vhca
