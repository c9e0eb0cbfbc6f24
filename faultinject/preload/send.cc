// The slow path of posted sends: counting, keeping back and letting go. Within a queue pair nothing ever
// overtakes: while one WR is kept back, all later ones are.
#include <errno.h>
#include <string.h>

#include <algorithm>

#include "faultinject/preload/context.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/slots.h"

namespace faultinject {
namespace {

uint64_t bytes_of(const ibv_send_wr& wr) {
  uint64_t bytes = 0;
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      for (int i = 0; i < wr.num_sge; i++) bytes += wr.sg_list[i].length;
      break;
    default: break;  // memory windows and the like carry nothing
  }
  return bytes;
}

constexpr uint64_t kFullQueueRetryNs = 50000;

}  // namespace

void Context::count_triggers(uint32_t wrs, uint64_t bytes, uint64_t now) {
  bool met = false;
  for (const auto& fault : faults_) {
    FaultEntry& entry = fault->entry();
    if (fault->begun || !entry.hits(node_, nic_)) continue;
    const bool by_wr = entry.trigger == TriggerKind::kWr;
    if (!by_wr && entry.trigger != TriggerKind::kBytes) continue;
    const uint64_t step = by_wr ? wrs : bytes;
    const uint64_t before = entry.progress.fetch_add(step, std::memory_order_relaxed);
    if (before < entry.count && before + step >= entry.count) met |= meet_trigger(entry, now);
  }
  if (!met) return;
  process_.wake_everybody();
  sync_locked(now);  // here it takes effect before the WR that met the trigger
}

int Context::post_send(ibv_qp* pointer, ibv_send_wr* wr, ibv_send_wr** bad) {
  const uint64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  if (!first_op_seen_) {
    first_op_seen_ = true;
    mode_dirty_ = true;
    if (board().first_op_ns.load() == 0) {
      note_first_op(board(), now);
      process_.wake_everybody();  // those that wait for 'since: first_op'
    }
  }
  QueuePair& qp = *find_or_adopt(pointer);
  uint32_t wrs = 0;
  uint64_t bytes = 0;
  for (const ibv_send_wr* each = wr; each != nullptr; each = each->next) {
    wrs++;
    bytes += bytes_of(*each);
  }
  if (!faults_.empty()) {
    count_triggers(wrs, bytes, now);
    for (const ibv_send_wr* each = wr; each != nullptr; each = each->next) {
      const Sent sent{each->wr_id, bytes_of(*each), now, each->opcode, true};
      for (const auto& fault : faults_)
        if (fault->begun) fault->posting(*this, qp, sent, now);
    }
  }
  qp.posts += wrs;
  qp.bytes_posted += bytes;
  qp.last_post_ns = now;
  if (qp.life == QueuePair::Life::kCut && !qp.posted_since_cut && wr != nullptr) {
    qp.posted_since_cut = true;
    qp.first_wr_id_since_cut = wr->wr_id;
    if (qp.shown_at_ns == 0) due_at(qp, now + qp.retry_window_ns());
  }

  const auto track = [&](const ibv_send_wr& each) {
    const bool signaled = qp.signal_all || (each.send_flags & IBV_SEND_SIGNALED) != 0;
    qp.sent.push_back({each.wr_id, bytes_of(each), now, each.opcode, signaled});
    if (qp.sent.size() > uint64_t(qp.max_send_wr) * 2 + 16) qp.sent.pop_front();  // completions unseen by us
  };
  int rc = 0;
  if (qp.life == QueuePair::Life::kWhole && must_hold(qp)) {
    for (ibv_send_wr* each = wr; each != nullptr; each = each->next) {
      if (qp.sent.size() >= qp.max_send_wr) {  // kept back or not, it fills the program's send queue
        *bad = each;
        rc = ENOMEM;
        break;
      }
      hold(qp, *each, bytes_of(*each), now);
      track(*each);
    }
    const uint64_t next = pump(qp, now);
    if (next != UINT64_MAX) process_.wake_by(next == Fault::kAskAgain ? now : next);
  } else {
    rc = qp.life == QueuePair::Life::kCut ? post_bounded(qp, wr, bad) : slot_.post_send(pointer, wr, bad);
    const ibv_send_wr* end = rc == 0 ? nullptr : *bad;
    for (const ibv_send_wr* each = wr; each != end && each != nullptr; each = each->next) track(*each);
  }
  if (mode_dirty_) refresh_mode();
  return rc;
}

// The real queue has room again as soon as we take its flushes; the program's has not, before it sees them.
int Context::post_bounded(QueuePair& qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  const uint64_t used = qp.hidden_sends.size() + qp.sent.size();
  uint64_t room = used < qp.max_send_wr ? qp.max_send_wr - used : 0;
  ibv_send_wr* last = nullptr;
  ibv_send_wr* rest = wr;
  for (; rest != nullptr && room > 0; rest = rest->next, room--) last = rest;
  if (rest == nullptr) return slot_.post_send(qp.qp, wr, bad);
  if (last != nullptr) {
    last->next = nullptr;
    const int rc = slot_.post_send(qp.qp, wr, bad);
    last->next = rest;
    if (rc != 0) return rc;
  }
  *bad = rest;
  return ENOMEM;
}

bool Context::must_hold(const QueuePair& qp) const {
  if (!qp.held.empty()) return true;
  return std::any_of(faults_.begin(), faults_.end(),
                     [&](const auto& fault) { return fault->begun && fault->holds(*this, qp); });
}

void Context::hold(QueuePair& qp, const ibv_send_wr& wr, uint64_t bytes, uint64_t now) {
  HeldWr& held = qp.held.emplace_back();
  held.wr = wr;
  held.wr.next = nullptr;
  held.bytes = bytes;
  held.list.assign(wr.sg_list, wr.sg_list + wr.num_sge);
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    held.inline_data.resize(bytes);
    uint64_t at = 0;
    for (ibv_sge& piece : held.list) {
      memcpy(held.inline_data.data() + at, reinterpret_cast<const void*>(piece.addr), piece.length);
      piece.addr = reinterpret_cast<uint64_t>(held.inline_data.data() + at);
      at += piece.length;
    }
  }
  held.wr.sg_list = held.list.data();
  held_++;
  for (const auto& fault : faults_)
    if (fault->begun && fault->holds(*this, qp)) fault->held(*this, qp, held, now);
}

uint64_t Context::pump(QueuePair& qp, uint64_t now) {
  while (!qp.held.empty() && !qp.dying) {
    HeldWr& head = qp.held.front();
    uint64_t at = 0;
    for (const auto& fault : faults_)
      if (fault->begun && fault->holds(*this, qp)) at = std::max(at, fault->may_go_at(*this, qp, head, now));
    if (at > now) return at;
    ibv_send_wr* bad = nullptr;
    const int rc = slot_.post_send(qp.qp, &head.wr, &bad);
    if (rc == ENOMEM) return now + kFullQueueRetryNs;  // work from before the fault still fills the real queue
    if (rc != 0) {
      // The program was told that the post succeeded; the provider's refusal can only be a completion now.
      ibv_wc wc{};
      wc.wr_id = head.wr.wr_id;
      wc.status = IBV_WC_LOC_QP_OP_ERR;
      wc.qp_num = qp.qp->qp_num;
      qp.send_cq->ready.push_back(wc);
    }
    for (const auto& fault : faults_)
      if (fault->begun) fault->went(*this, qp);
    qp.held.pop_front();
    if (--held_ == 0) mode_dirty_ = true;
  }
  return UINT64_MAX;
}

uint64_t Context::pump_all(uint64_t now) {
  // Round after round, so that no queue pair takes two turns in a row while another waits.
  for (;;) {
    uint64_t next = UINT64_MAX;
    bool again = false;
    if (held_ == 0) return next;
    for (auto& [pointer, qp] : qps_) {
      if (qp->held.empty()) continue;
      const uint64_t at = pump(*qp, now);
      if (at == Fault::kAskAgain) {
        again = true;
      } else {
        next = std::min(next, at);
      }
    }
    if (!again) return next;
  }
}

void Context::release_all_held(QueuePair& qp) {
  while (!qp.held.empty()) {
    HeldWr& head = qp.held.front();
    ibv_send_wr* bad = nullptr;
    if (slot_.post_send(qp.qp, &head.wr, &bad) != 0) {
      ibv_wc wc{};
      wc.wr_id = head.wr.wr_id;
      wc.status = IBV_WC_WR_FLUSH_ERR;
      wc.qp_num = qp.qp->qp_num;
      if (qp.life == QueuePair::Life::kCut) {
        hide(qp, *qp.send_cq, wc, true, monotonic_ns());
      } else {
        qp.send_cq->ready.push_back(wc);
      }
    }
    qp.held.pop_front();
    if (--held_ == 0) mode_dirty_ = true;
  }
}

void Context::drop_held(QueuePair& qp) {
  held_ -= uint32_t(qp.held.size());
  qp.held.clear();
  mode_dirty_ = true;
}

}  // namespace faultinject
