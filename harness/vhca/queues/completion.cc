// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/queues/completion.h"

#include <sched.h>

#include <algorithm>
#include <bit>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/base/pause_point.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/async.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/responder/receive_signal.h"
#include "harness/vhca/responder/responder_hold.h"
#include "harness/vhca/responder/shared_request.h"

namespace vhca {
namespace {

// Whoever is waited for may need the core of a thread whose polls find nothing. It yields when it has been
// round its CQs so often, however many there are: a NIC's empty poll costs next to nothing, a yield does not.
constexpr unsigned kEmptyRoundsPerYield = 8;
constexpr unsigned kEmptyPollsPerYield = 512;  // if it does not come back to the CQ that it began with

// The calling thread's polls in a row that found nothing.
class EmptyPolls {
 public:
  void found_something() { *this = {}; }
  void found_nothing(const Cq& cq) {
    if (!first_) first_ = &cq;
    ++polls_;
    if (first_ == &cq) ++rounds_;
    if (rounds_ < kEmptyRoundsPerYield && polls_ < kEmptyPollsPerYield) return;
    *this = {};
    ::sched_yield();
  }

 private:
  const Cq* first_ = nullptr;  // compared only; it may be gone
  unsigned rounds_ = 0, polls_ = 0;
};

void push_channel_event(Cq& cq) {
  if (!cq.channel) return;
  auto& channel = *static_cast<Channel*>(cq.channel);
  const std::lock_guard guard(channel.lock);
  add_channel_event(channel, cq);
  raise_eventfd(channel.fd);
}

void note_sends(Cq& cq) {
  // Whoever arms the CQ and then finds none here must be seen by take_arm(), which follows: both in one order.
  cq.shared->sends.store(static_cast<std::uint32_t>(cq.sent_head - cq.sent_tail));
}

// The QP is in ERR and at rest: what it has posted is flushed, and takes its room in the CQ at once, whenever
// it is polled. Returns how many requests were posted.
std::uint64_t make_room_for_flushed(Runtime& runtime, Cq& cq, Qp& qp) {
  QpSlot& slot = *qp.shared;
  if (slot.srq != 0) close_taking(runtime.fabric(), slot);
  const std::uint64_t posted = slot.recv_posted.load(std::memory_order_acquire);
  const std::uint64_t completed = slot.recv_completed.load();
  leave_room_to_holder(cq, qp, completed);
  if (posted > std::max(completed, qp.flush_end)) {
    count_receives(*cq.shared, posted - std::max(completed, qp.flush_end));
    qp.flush_end = posted;
    if (cq.shared->overrun.load() == 1) ring_doorbell(runtime.fabric(), runtime.self());
  }
  return posted;
}

int take_sent(Cq& cq, int count, ibv_wc* wc) {
  int taken = 0;
  for (; taken < count && cq.sent_tail != cq.sent_head; ++taken, ++cq.sent_tail) {
    const SendCompletion& done = cq.sent[cq.sent_tail & (cq.sent.size() - 1)];
    wc[taken] = done.wc;
    done.qp->send_tail.store(done.send_index + 1, std::memory_order_release);
  }
  if (taken != 0) note_sends(cq);
  return taken;
}

void fill_receive(const Qp& qp, const RecvEntry& entry, ibv_wc& wc) {
  wc = {};
  wc.wr_id = entry.wr_id;
  wc.status = static_cast<ibv_wc_status>(entry.status);
  wc.opcode = static_cast<ibv_wc_opcode>(entry.opcode);
  wc.byte_len = entry.byte_count;
  wc.imm_data = entry.imm_data;
  wc.qp_num = qp.qp_base.qp_num;
  wc.src_qp = entry.source_qp;
  wc.wc_flags = entry.wc_flags;
  wc.slid = entry.slid;
  wc.sl = entry.sl;
}

// Takes up to count receive completions of one QP. `again`: there is, or soon will be, more.
int take_received(Runtime& runtime, Cq& cq, Qp& qp, int count, ibv_wc* wc, bool& again) {
  Fabric& fabric = runtime.fabric();
  QpSlot& slot = *qp.shared;
  again = false;
  // In this order: once the state is ERR and nobody is at it, the ring cannot get another completion.
  const bool flushing = slot.state.load() == IBV_QPS_ERR;
  const bool at_rest = flushing && is_at_rest(fabric, qp);
  const std::uint64_t completed = slot.recv_completed.load(std::memory_order_acquire);
  std::uint64_t tail = qp.recv_tail.load(std::memory_order_relaxed);
  int taken = 0;
  for (; taken < count && tail < completed; ++tail)
    fill_receive(qp, qp.recv_entry(fabric, tail), wc[taken++]);
  if (taken != 0) cq.shared->outstanding.fetch_sub(taken, std::memory_order_relaxed);
  if (tail < completed || (flushing && !at_rest)) again = true;
  if (at_rest && !again) {
    const std::uint64_t posted = make_room_for_flushed(runtime, cq, qp);
    // Flushed first, told afterwards: a holder that was revoked may still want to complete the first of them.
    const std::uint64_t flushed_to = std::min(posted, tail + static_cast<std::uint64_t>(count - taken));
    std::uint64_t expected = completed;
    VHCA_PAUSE_POINT(flushing);
    if (flushed_to > tail && !slot.recv_completed.compare_exchange_strong(expected, flushed_to)) {
      again = true;
    } else {
      if (flushed_to > tail) qp.flush_begin = flushed_to;
      cq.shared->outstanding.fetch_sub(static_cast<std::int64_t>(flushed_to - tail));
      for (; tail < flushed_to; ++tail) {
        ibv_wc& flushed = wc[taken++];
        flushed = {};
        flushed.wr_id = qp.recv_entry(fabric, tail).wr_id;
        flushed.status = IBV_WC_WR_FLUSH_ERR;
        flushed.opcode = IBV_WC_RECV;
        flushed.vendor_err = 0xf5;
        flushed.qp_num = qp.qp_base.qp_num;
      }
      again = tail < posted;
    }
  }
  if (taken != 0 && slot.srq != 0)
    srq_of(qp.qp_base.srq).freed.fetch_add(static_cast<unsigned>(taken), std::memory_order_release);
  qp.recv_tail.store(tail, std::memory_order_release);
  return taken;
}

int take_all_received(Runtime& runtime, Cq& cq, int count, ibv_wc* wc) {
  CqSlot& slot = *cq.shared;
  int taken = 0;
  std::uint64_t summary = slot.ready_summary.load(std::memory_order_acquire);
  if (summary == 0) return 0;
  // Each poll begins at another word, and takes from each QP at most what is asked for: none is served last
  // for ever.
  summary = std::rotr(summary, static_cast<int>(cq.next_receiver_word));
  cq.takings.fetch_add(1);  // odd: marks of what stays in the queue are away for a moment
  for (std::size_t i = 0; summary != 0 && taken < count; ++i, summary >>= 1) {
    if (!(summary & 1)) continue;
    const std::size_t w = (cq.next_receiver_word + i) % kReadyWords;
    slot.ready_summary.fetch_and(~(1ull << w));
    std::uint64_t bits = slot.ready[w].exchange(0);
    std::uint64_t left = 0;
    VHCA_PAUSE_POINT(marks_taken);
    for (; bits != 0; bits &= bits - 1) {
      const std::uint64_t bit = bits & -bits;
      const std::size_t index = w * 64 + static_cast<std::size_t>(std::countr_zero(bits));
      if (index >= cq.receivers.size() || !cq.receivers[index]) continue;
      if (taken == count) {
        left |= bit;
        continue;
      }
      bool again = false;
      taken += take_received(runtime, cq, *cq.receivers[index], count - taken, wc + taken, again);
      if (again) left |= bit;
    }
    if (left != 0) {
      slot.ready[w].fetch_or(left);
      slot.ready_summary.fetch_or(1ull << w);
    }
  }
  cq.next_receiver_word = (cq.next_receiver_word + 1) % kReadyWords;
  cq.takings.fetch_add(1);
  return taken;
}

// Without the CQ's lock. False where another thread's poll hides for a moment what is there.
bool is_empty(const Cq& cq) {
  const std::uint32_t takings = cq.takings.load();
  return takings % 2 == 0 && cq.shared->sends.load() == 0 && cq.shared->ready_summary.load() == 0 &&
         cq.takings.load() == takings;
}

}  // namespace

int poll_cq(ibv_cq* ibcq, int count, ibv_wc* wc) {
  Cq& cq = cq_of(ibcq);
  Runtime& runtime = *cq.owner->runtime;
  if (runtime.is_forked_copy()) return -1;
  // Who has armed the CQ looks once more and then waits for the event, as ibv_get_cq_event(3) prescribes.
  const bool goes_on = (cq.shared->notify.load(std::memory_order_relaxed) & kArmedMask) == 0;
  runtime.progress_if_due(goes_on);
  const auto take = [&] {
    if (is_empty(cq)) return 0;
    const std::lock_guard guard(cq.lock);
    const int sent = take_sent(cq, count, wc);
    return sent < count ? sent + take_all_received(runtime, cq, count - sent, wc + sent) : sent;
  };
  int taken = take();
  if (taken == 0 && runtime.gathers()) {
    runtime.progress(now_ns(), true);
    taken = take();
  }
  thread_local EmptyPolls empty_polls;
  if (taken != 0)
    empty_polls.found_something();
  else
    empty_polls.found_nothing(cq);
  return taken;
}

int req_notify_cq(ibv_cq* ibcq, int solicited_only) {
  Cq& cq = cq_of(ibcq);
  Runtime& runtime = *cq.owner->runtime;
  if (runtime.is_forked_copy()) return ENODEV;
  // "Any" stays "any" when solicited-only is asked for on top of it.
  std::uint32_t seen = cq.shared->notify.load(), armed;
  do {
    armed = seen & kArmedMask;
    if (!solicited_only)
      armed = kArmedForAny;
    else if (armed == 0)
      armed = kArmedForSolicited;
  } while (!cq.shared->notify.compare_exchange_weak(seen, (seen & ~kArmedMask) | armed));
  // It is going to sleep.
  if (runtime.gathers()) runtime.progress(now_ns(), true);
  runtime.stop_polling();
  return 0;
}

std::int64_t unread_completions(const Cq& cq) {
  const auto sends = static_cast<std::int64_t>(cq.sent_head - cq.sent_tail);
  return sends + std::max<std::int64_t>(0, cq.shared->outstanding.load(std::memory_order_relaxed));
}

void leave_room_to_holder(Cq& cq, Qp& qp, std::uint64_t completed) {
  const std::uint64_t end = std::min(completed, qp.flush_end);
  if (end > qp.flush_begin) cq.shared->outstanding.fetch_sub(static_cast<std::int64_t>(end - qp.flush_begin));
  qp.flush_begin = std::max(completed, qp.flush_begin);
}

void push_send_completion(Cq& cq, const ibv_wc& wc, Qp& qp, std::uint64_t send_index) {
  {
    const std::lock_guard guard(cq.lock);
    if (unread_completions(cq) >= cq.cqe) {
      cq.shared->overrun.store(1);
      ring_doorbell(cq.owner->runtime->fabric(), cq.owner->runtime->self());
      return;
    }
    cq.sent[cq.sent_head++ & (cq.sent.size() - 1)] = {wc, &qp, send_index};
    note_sends(cq);
  }
  if (take_arm(*cq.shared, wc.status != IBV_WC_SUCCESS)) push_channel_event(cq);
}

std::size_t attach_receiver(Cq& cq, Qp& qp) {
  const std::lock_guard guard(cq.lock);
  auto free = std::find(cq.receivers.begin(), cq.receivers.end(), nullptr);
  if (free == cq.receivers.end()) {
    if (cq.receivers.size() == kReadyWords * 64) return cq.receivers.size();
    free = cq.receivers.insert(free, nullptr);
  }
  *free = &qp;
  return static_cast<std::size_t>(free - cq.receivers.begin());
}

void detach_receiver(Cq& cq, Qp& qp) {
  const std::lock_guard guard(cq.lock);
  std::replace(cq.receivers.begin(), cq.receivers.end(), &qp, static_cast<Qp*>(nullptr));
}

void purge_completions(Cq& cq, const Qp& qp) {
  const std::lock_guard guard(cq.lock);
  std::uint64_t kept = cq.sent_tail;
  for (std::uint64_t i = cq.sent_tail; i != cq.sent_head; ++i) {
    const SendCompletion done = cq.sent[i & (cq.sent.size() - 1)];
    if (done.qp != &qp) cq.sent[kept++ & (cq.sent.size() - 1)] = done;
  }
  cq.sent_head = kept;
  note_sends(cq);
}

void deliver_pending_cq_event(Cq& cq) {
  if ((cq.shared->notify.load() & kEventPending) &&
      (cq.shared->notify.fetch_and(~kEventPending) & kEventPending))
    push_channel_event(cq);
}

void recover_lost_signals(Cq& cq) {
  bool found = false;
  {
    const std::lock_guard guard(cq.lock);
    for (std::size_t i = 0; i < cq.receivers.size(); ++i) {
      Qp* qp = cq.receivers[i];
      if (!qp) continue;
      const std::uint64_t tail = qp->recv_tail.load();
      const bool flushes = qp->state() == IBV_QPS_ERR && qp->shared->recv_posted.load() > tail &&
                           is_at_rest(cq.owner->runtime->fabric(), *qp);
      if (flushes) make_room_for_flushed(*cq.owner->runtime, cq, *qp);
      if (!flushes && qp->shared->recv_completed.load() <= tail) continue;
      mark_ready(*cq.shared, i);
      found = true;
    }
  }
  if (found && take_arm(*cq.shared, false)) push_channel_event(cq);
}

bool report_overrun(Cq& cq) {
  if (cq.shared->overrun.load() == 0 || cq.overrun_reported) return false;
  cq.overrun_reported = true;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = cq.handle_as_cq();
  push_async_event(*cq.owner, event);
  cq.shared->overrun.store(2);
  return true;
}

}  // namespace vhca
