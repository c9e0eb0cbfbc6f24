// SPDX-License-Identifier: Apache-2.0
// The slow path of completions. What a queue pair's real flushes say is true but too early; they are hidden
// until a program on real hardware would see them, and then shown in the order and with the status that it
// would see: sends first, the first of them as RETRY_EXC_ERR.
#include <algorithm>

#include "faultinject/preload/context.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/slots.h"

namespace faultinject {
namespace {

// Not every provider fills in the opcode of a failed completion; this value says that it did not.
constexpr auto kOpcodeUnset = ibv_wc_opcode(0x7ead0000);

}  // namespace

bool Context::is_send(const QueuePair& qp, const CompletionQueue& cq, const ibv_wc& wc) const {
  if (qp.send_cq != qp.recv_cq) return &cq == qp.send_cq;
  if (wc.opcode != kOpcodeUnset) return (wc.opcode & IBV_WC_RECV) == 0;
  return qp.sent.empty() || std::any_of(qp.sent.begin(), qp.sent.end(),
                                        [&](const Sent& sent) { return sent.wr_id == wc.wr_id; });
}

Sent Context::retire(QueuePair& qp, const ibv_wc& wc, bool& known) {
  // Completions come in order, so everything up to the first such WR is done; only a failure completes an
  // unsignaled one. A WR posted before tracking began is not in the list.
  const bool failed = wc.status != IBV_WC_SUCCESS;
  auto it = qp.sent.end();
  if (failed && wc.status != IBV_WC_WR_FLUSH_ERR)  // the one that we made to fail, if its number is no name
    it = std::find_if(qp.sent.begin(), qp.sent.end(),
                      [&](const Sent& sent) { return sent.wr_id == wc.wr_id && sent.spoiled != 0; });
  if (it == qp.sent.end())
    it = std::find_if(qp.sent.begin(), qp.sent.end(),
                      [&](const Sent& sent) { return sent.wr_id == wc.wr_id && (failed || sent.signaled); });
  known = it != qp.sent.end();
  if (!known) return {};
  const Sent sent = *it;
  if (qp.deaf_by.id != 0 && qp.life != QueuePair::Life::kBroken)
    hide_silent(qp, size_t(it - qp.sent.begin()));
  qp.sent.erase(qp.sent.begin(), it + 1);
  return sent;
}

// Unsignaled WRs that were delivered and never acknowledged: they flush when the retries are exhausted.
void Context::hide_silent(QueuePair& qp, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (qp.sent[i].signaled || qp.sent[i].posted_ns < qp.deaf_from_ns) continue;
    ibv_wc wc{};
    wc.wr_id = qp.sent[i].wr_id;
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.qp_num = qp.qp->qp_num;
    qp.hidden_sends.push_back({qp.send_cq, wc, true});
  }
}

bool Context::lose_acknowledgements(QueuePair& qp) {
  if (qp.life != QueuePair::Life::kWhole || qp.deaf_by.id == 0) return false;
  set_life(qp, QueuePair::Life::kCut);
  qp.cut_in = IBV_QPS_RTS;
  qp.struck_by = qp.deaf_by;
  qp.acks_lost = true;
  return true;
}

void Context::hide_unacknowledged(QueuePair& qp) {
  hide_silent(qp, qp.sent.size());
  qp.sent.clear();
}

bool Context::process(CompletionQueue& cq, ibv_wc& wc, uint64_t now) {
  if (cq.waker_qp_num != 0 && wc.qp_num == cq.waker_qp_num) {
    if (cq.wakes > 0) cq.wakes--;
    mode_dirty_ = true;
    return false;
  }
  QueuePair* qp = find(wc.qp_num);
  if (qp == nullptr) return true;
  if (qp->destroyed || (qp->dying && qp->life != QueuePair::Life::kWhole)) return false;
  const bool send = is_send(*qp, cq, wc);
  bool known = false;
  const Sent sent = send ? retire(*qp, wc, known) : Sent{};
  // What went nowhere went as another operation (lose_datagram in send.cc).
  if (known && sent.lost && wc.status == IBV_WC_SUCCESS)
    wc.opcode =
        sent.opcode == IBV_WR_SEND || sent.opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
  if ((send ? qp->acks_lost : qp->receives_lost) && wc.status == IBV_WC_SUCCESS)
    wc.status = IBV_WC_WR_FLUSH_ERR;

  switch (qp->life) {
    case QueuePair::Life::kWhole:
      return process_whole(*qp, cq, wc, known ? &sent : nullptr, send, now);
    case QueuePair::Life::kCut:
      if (wc.status == IBV_WC_SUCCESS) return true;  // it arrived before the cut
      hide(*qp, cq, wc, send, known ? sent.posted_ns : 0);
      return false;
    case QueuePair::Life::kBroken:
      if (send && qp->retry_error_due && wc.status != IBV_WC_SUCCESS) {
        qp->retry_error_due = false;
        mode_dirty_ = true;
        wc.status = IBV_WC_RETRY_EXC_ERR;
        wc.vendor_err = kVendorRetryExceeded;
      }
      return true;
  }
  return true;
}

bool Context::process_whole(QueuePair& qp, CompletionQueue& cq, ibv_wc& wc, const Sent* sent, bool send,
                            uint64_t now) {
  if (wc.status != IBV_WC_SUCCESS) {
    if (sent == nullptr || sent->spoiled == 0 || wc.status == IBV_WC_WR_FLUSH_ERR) return true;
    wc.status = ibv_wc_status(sent->spoiled);
    wc.vendor_err = 0;
    qp.connected = false;
    set_life(qp, QueuePair::Life::kBroken);
    took_effect(board().faults[sent->spoiled_by.id - 1], now);
    report(sent->spoiled_by, Effect::kWcRewritten, qp.qp->qp_num, wc.status, now);
    return true;
  }
  if (send && qp.deaf_by.id != 0) {
    if (qp.hidden_sends.empty()) {
      // Its acknowledgement was lost from when it was posted on; only that is what shows here.
      const uint64_t since = std::max(qp.deaf_from_ns, sent != nullptr ? sent->posted_ns : 0);
      took_effect(board().faults[qp.deaf_by.id - 1], since);
      report(qp.deaf_by, Effect::kWcWithheld, qp.qp->qp_num, wc.status, now);
      if (qp.shown_at_ns == 0) due_at(qp, since + qp.retry_window_ns());
    }
    qp.hidden_sends.push_back({&cq, wc});
    return false;
  }
  for (const auto& fault : faults_) {
    if (!fault->begun) continue;
    if (!(send ? fault->completing(*this, qp, sent, wc, now) : fault->received(*this, qp, wc, now)))
      return false;
    if (wc.status != IBV_WC_SUCCESS) return true;  // it is a failure now, and the others strike successes
  }
  return true;
}

void Context::hide(QueuePair& qp, CompletionQueue& cq, const ibv_wc& wc, bool send, uint64_t posted_ns) {
  // The oldest send that was lost. The retries of one from before the cut began with the cut.
  if (send && qp.hidden_sends.empty() && !qp.acks_lost)
    due_at(qp, std::max(qp.cut_ns, posted_ns) + qp.retry_window_ns());
  (send ? qp.hidden_sends : qp.hidden_receives).push_back({&cq, wc});
}

void Context::due_at(QueuePair& qp, uint64_t time_ns) {
  qp.shown_at_ns = time_ns;
  if (time_ns < next_due_ns_) {
    next_due_ns_ = time_ns;
    process_.wake_by(time_ns);
  }
}

void Context::show_hidden(QueuePair& qp, bool program_moved_it) {
  // Where a queue pair that was deaf has sent nothing, the fault has changed nothing.
  const bool changed = !qp.acks_lost || !qp.hidden_sends.empty();
  set_life(qp, QueuePair::Life::kBroken);
  qp.retry_error_due = !program_moved_it;
  const uint64_t now = monotonic_ns();
  for (auto* list : {&qp.hidden_sends, &qp.hidden_receives}) {
    for (HiddenWc& hidden : *list) {
      hidden.wc.status = IBV_WC_WR_FLUSH_ERR;
      if (qp.retry_error_due && list == &qp.hidden_sends) {
        qp.retry_error_due = false;
        hidden.wc.status = IBV_WC_RETRY_EXC_ERR;
        hidden.wc.vendor_err = kVendorRetryExceeded;
      }
      hidden.cq->ready.push_back(hidden.wc);
    }
    list->clear();
  }
  if (changed)
    report(qp.struck_by, program_moved_it ? Effect::kFlushShown : Effect::kWcShown, qp.qp->qp_num,
           program_moved_it ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR, now);
  wake_sleepers(qp);
}

void Context::drain_queues(QueuePair& qp, uint64_t now) {
  if (qp.send_cq != nullptr) drain(*qp.send_cq, now);
  if (qp.recv_cq != nullptr && qp.recv_cq != qp.send_cq) drain(*qp.recv_cq, now);
}

void Context::show_due(uint64_t now) {
  if (now < next_due_ns_) return;
  next_due_ns_ = UINT64_MAX;  // what is drained below may bring earlier ones
  uint64_t next = UINT64_MAX;
  for (auto& [pointer, qp] : qps_) {
    const bool deaf = qp->life == QueuePair::Life::kWhole && qp->deaf_by.id != 0;
    if ((qp->life != QueuePair::Life::kCut && !deaf) || qp->shown_at_ns == 0 || qp->dying) continue;
    if (qp->shown_at_ns <= now) {
      if (deaf) {  // its retries are exhausted; whatever it sent, delivered or not, counts as lost
        took_effect(board().faults[qp->deaf_by.id - 1], qp->shown_at_ns - qp->retry_window_ns());
        lose_acknowledgements(*qp);
        move_to_err(*qp);
        report(qp->deaf_by, Effect::kQpToErr, qp->qp->qp_num, 0, monotonic_ns());
        release_all_held(*qp);
      }
      drain_queues(*qp, now);
      if (deaf) hide_unacknowledged(*qp);
      if (deaf || (!qp->hidden_sends.empty() && qp->shown_at_ns <= now)) {
        show_hidden(*qp, false);
        continue;
      }
      // What was outstanding as far as was known had been delivered; the oldest that was not is younger, or
      // there is none.
      if (qp->hidden_sends.empty()) {
        qp->shown_at_ns = 0;
        qp->sent.clear();
      }
      wake_sleepers(*qp);
    }
    if (qp->shown_at_ns != 0) next = std::min(next, qp->shown_at_ns);
  }
  next_due_ns_ = std::min(next_due_ns_, next);
}

void Context::drain(CompletionQueue& cq, uint64_t now) {
  ibv_wc wcs[16];
  for (;;) {
    for (ibv_wc& wc : wcs) wc.opcode = kOpcodeUnset;
    const int count = slot_.poll_cq(cq.cq, 16, wcs);
    for (int i = 0; i < count; i++) {
      if (!process(cq, wcs[i], now)) continue;
      if (wcs[i].opcode == kOpcodeUnset) wcs[i].opcode = IBV_WC_SEND;
      cq.ready.push_back(wcs[i]);
    }
    if (count < 16) return;
  }
}

int Context::take_ready(CompletionQueue& cq, int entries, ibv_wc* wcs) {
  int count = 0;
  while (count < entries && !cq.ready.empty()) {
    wcs[count++] = cq.ready.front();
    cq.ready.pop_front();
    if (cq.ready.empty()) mode_dirty_ = true;
  }
  return count;
}

int Context::poll_cq(ibv_cq* pointer, int entries, ibv_wc* wcs) {
  const uint64_t now = monotonic_ns();
  const auto lock = lock_in_turn();
  stand_in_for_thread(now);
  if (sync_due_) sync_locked(now);
  CompletionQueue& cq = *queue(pointer);
  pump_all(now);
  if (frozen_ != 0) return 0;
  const int refused = faults_.empty() ? 0 : refusal({.what = Call::What::kPoll, .cq = &cq}, now);
  if (refused != 0) {
    if (mode_dirty_) refresh_mode();
    return -refused;
  }
  if (cq.is_dead()) {
    drain(cq, now);
    cq.ready.clear();
    return 0;
  }
  if (removal_.stage != DeviceRemoval::Stage::kPresent) {
    removal_goes_on(now);
    if (removal_.hides_completions()) {
      ibv_wc unseen[16];
      while (slot_.poll_cq(pointer, 16, unseen) == 16) {
      }
      const int shown = take_ready(cq, entries, wcs);
      note_seen(wcs, shown);
      if (mode_dirty_) refresh_mode();
      return shown;
    }
  }
  show_due(now);
  if (cuts_ != 0) {
    // A receive queue may be polled alone: whether sends are outstanding is in the other queue.
    for (auto& [address, qp] : qps_)
      if (qp->life == QueuePair::Life::kCut && qp->shown_at_ns == 0 && qp->send_cq != nullptr &&
          qp->send_cq != &cq && qp->recv_cq == &cq)
        drain(*qp->send_cq, now);
  }
  int shown = take_ready(cq, entries, wcs);
  while (shown < entries) {
    const int wanted = entries - shown;
    for (int i = 0; i < wanted; i++) wcs[shown + i].opcode = kOpcodeUnset;
    const int count = slot_.poll_cq(pointer, wanted, wcs + shown);
    if (count < 0) {
      if (shown == 0) return count;
      break;
    }
    int kept = shown;
    for (int i = 0; i < count; i++) {
      ibv_wc wc = wcs[shown + i];
      if (!process(cq, wc, now)) continue;
      if (wc.opcode == kOpcodeUnset) wc.opcode = IBV_WC_SEND;
      wcs[kept++] = wc;
    }
    shown = kept;
    if (count < wanted) break;
  }
  note_seen(wcs, shown);
  if (mode_dirty_) refresh_mode();
  return shown;
}

void Context::note_seen(const ibv_wc* wcs, int count) {
  for (int i = 0; i < count && watched_ != 0; i++) {
    QueuePair* qp = find(wcs[i].qp_num);
    if (qp == nullptr || qp->next_seen_by.id == 0) continue;
    const bool success = wcs[i].status == IBV_WC_SUCCESS;
    if (!success || !qp->success_seen)
      report(qp->next_seen_by, Effect::kNextSeen, wcs[i].qp_num, wcs[i].status, monotonic_ns());
    qp->success_seen = success;
    if (!success || !qp->failure_due) stop_watching(*qp);
  }
}

int Context::review(ibv_cq* pointer, int count, ibv_wc* wcs) {
  const uint64_t now = monotonic_ns();
  const auto lock = lock_in_turn();
  CompletionQueue& cq = *queue(pointer);
  int kept = 0;
  for (int i = 0; i < count; i++) {
    ibv_wc wc = wcs[i];
    if (!process(cq, wc, now)) continue;
    if (frozen_ != 0) {
      cq.ready.push_back(wc);
    } else if (!cq.is_dead()) {
      wcs[kept++] = wc;
    }
  }
  note_seen(wcs, kept);
  if (mode_dirty_) refresh_mode();
  return kept;
}

void Context::keep(ibv_cq* pointer, ibv_wc wc, bool late) {
  const uint64_t now = monotonic_ns();
  const auto lock = lock_in_turn();
  if (sync_due_) sync_locked(now);
  CompletionQueue& cq = *queue(pointer);
  if (late && removal_.hides_completions()) return;
  if (process(cq, wc, now) && !cq.is_dead()) {
    cq.ready.push_back(wc);
    mode_dirty_ = true;
  }
  if (mode_dirty_) refresh_mode();
}

void Context::forget_completions(QueuePair& qp) {
  qp.hidden_sends.clear();
  qp.hidden_receives.clear();
  for (CompletionQueue* cq : {qp.send_cq, qp.recv_cq}) {
    if (cq == nullptr) continue;
    std::erase_if(cq->ready, [&](const ibv_wc& wc) { return wc.qp_num == qp.qp->qp_num; });
  }
  mode_dirty_ = true;
}

}  // namespace faultinject
