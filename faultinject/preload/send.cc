// SPDX-License-Identifier: Apache-2.0
// The slow path of posted sends: counting, keeping back and letting go. Within a queue pair nothing ever
// overtakes: while one WR is kept back, all later ones are.
#include <errno.h>
#include <string.h>

#include <algorithm>

#include "faultinject/preload/context.h"
#include "faultinject/preload/extended.h"
#include "faultinject/preload/opcodes.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/slots.h"

namespace faultinject {
namespace {

uint64_t bytes_in_list(const ibv_send_wr& wr) {
  uint64_t bytes = 0;
  for (int i = 0; i < wr.num_sge; i++) bytes += wr.sg_list[i].length;
  return bytes;
}

uint64_t bytes_of(const ibv_send_wr& wr) {
  if (wr.opcode == kWrAtomicWrite) return bytes_in_list(wr);
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_TSO:
      return bytes_in_list(wr);
    default:
      return 0;  // memory windows and the like carry nothing
  }
}

// A WR that its own device will refuse when its turn comes, not earlier: its data lies where there is no
// memory, under a key that nobody was given. So everything before it is done, nothing of it leaves, and what
// is behind it is flushed, all by the provider itself.
void spoil(ibv_send_wr& wr, ibv_sge& nowhere) {
  nowhere.addr = 0;
  nowhere.length = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 1;
  nowhere.lkey = 0x0badbeef;
  wr.sg_list = &nowhere;
  wr.num_sge = 1;
  wr.send_flags &= ~unsigned(IBV_SEND_INLINE);
}

// A send of an unreliable queue pair that its device carries out, in its turn and with its completion, and of
// which nothing arrives. A datagram goes to a queue pair that nobody has, with a key that none has; over a
// connection goes a write of no bytes, which takes no receive and is checked against no key.
void lose_datagram(ibv_send_wr& wr, ibv_qp_type type) {
  constexpr uint32_t kNobody = 0xfffffe, kNoKey = 0x2badbeef;
  if (type == IBV_QPT_UD) {
    wr.wr.ud.remote_qpn = kNobody;
    wr.wr.ud.remote_qkey = kNoKey;
    return;
  }
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.num_sge = 0;
  wr.sg_list = nullptr;
  wr.send_flags &= ~unsigned(IBV_SEND_INLINE);
}

bool may_send(ibv_qp_state state) {
  return state != IBV_QPS_RESET && state != IBV_QPS_INIT && state != IBV_QPS_RTR;
}

constexpr uint64_t kFullQueueRetryNs = 50000;
constexpr uint64_t kTurnRetryNs = 200000;

}  // namespace

bool Context::meets_trigger(Fault& fault, const QueuePair& qp, const Sent& sent, uint64_t now) {
  FaultEntry& entry = fault.entry();
  const bool by_count = entry.trigger == TriggerKind::kWr || entry.trigger == TriggerKind::kBytes;
  if (!entry.counts_sends()) return false;
  if (!fault.hits_here(*this, qp) || !entry.takes_opcode(sent.opcode) || !selects(entry, qp)) return false;
  const PhaseAndRound seen = entry.phase.both();
  const bool waits = seen.phase == Phase::kArmed && (seen.round == 0 || entry.every_ns == 0) &&
                     !qp.refused.has_met(fault.id());
  if (by_count) {
    // Counted while it is at work, too: a fault that repeats strikes at every count-th.
    const uint64_t step = entry.trigger == TriggerKind::kWr ? 1 : sent.bytes;
    const uint64_t now_at = entry.progress.fetch_add(step, std::memory_order_relaxed) + step;
    const bool met =
        waits && now_at >= entry.count * (uint64_t(seen.round) + 1) && meet_trigger(entry, seen, now);
    counted_.push_back({fault.id(), step, met});
    return met;
  }
  // A draw for each WR, of its place and number alone: the same seed and program meet it at the same WRs.
  const uint64_t number = ++fault.draws[qp.serial];
  const bool met =
      waits && mix(choice(fault, qp) ^ mix(number)) <= entry.probability && meet_trigger(entry, seen, now);
  counted_.push_back({fault.id(), 0, met});
  return met;
}

void Context::count_triggers(const QueuePair& qp, const Sent& sent, uint64_t now) {
  bool met = false;
  for (const auto& fault : faults_)
    met |= meets_trigger(*fault, qp, sent, now);
  if (met) process_.wake_everybody();
  if (met || sync_due_) sync_locked(now);  // here it takes effect before the WR that met the trigger
}

// A WR is counted before it is posted, because what a fault does to it comes before, too; whether its provider
// takes it shows afterwards. Where it has fired a fault, that stays: the round has moved on, and what is taken
// back is less than what the next round waits for.
void Context::take_back(QueuePair& qp, const Sent& sent) {
  for (const Counted& each : counted_) {
    FaultEntry& entry = board().faults[each.fault_id - 1];
    if (entry.trigger != TriggerKind::kProbability) {
      entry.progress.fetch_sub(each.step, std::memory_order_relaxed);
    } else {
      for (const auto& fault : faults_)
        if (fault->id() == each.fault_id) --fault->draws[qp.serial];
    }
    if (each.met) qp.refused.met.push_back(each.fault_id);
  }
  if (sent.spoiled != 0) qp.refused.struck = sent;
}

// A strike that the provider refused, by a fault that lasts.
void Context::strike_again(QueuePair& qp, Sent& sent) {
  Sent& struck = qp.refused.struck;
  if (struck.spoiled == 0 || struck.opcode != sent.opcode || qp.life != QueuePair::Life::kWhole ||
      !qp.connected)
    return;
  if (board().faults[struck.spoiled_by.id - 1].phase.load() != Phase::kHealed) {
    sent.spoiled = struck.spoiled;
    sent.spoiled_by = struck.spoiled_by;
  }
  struck = {};
}

int Context::post_send(ibv_qp* pointer, ibv_send_wr* wr, ibv_send_wr** bad) {
  const uint64_t now = monotonic_ns();
  const auto lock = lock_in_turn();
  stand_in_for_thread(now);
  if (board().first_op_ns.load() == 0) {
    note_first_op(board(), now);
    process_.wake_everybody();  // those that wait for 'since: first_op', and those that wait for nothing more
    mode_dirty_ = true;
  }
  QueuePair& qp = *find_or_adopt(pointer);
  int rc = 0;
  for (ibv_send_wr* each = wr; each != nullptr && rc == 0; each = each->next) {
    rc = post_one(qp, *each, now);
    if (rc != 0) *bad = each;
  }
  if (!qp.held.empty()) {
    const uint64_t next = pump(qp, now);
    if (next != UINT64_MAX) process_.wake_by(next == Fault::kAskAgain ? now : next);
  }
  if (mode_dirty_) refresh_mode();
  if (slot_.slow.load() == 0) qp.sent.clear();  // tracking ended while this post was on its way here
  return rc;
}

int Context::post_one(QueuePair& qp, const ibv_send_wr& original, uint64_t now) {
  ibv_send_wr wr = original;
  wr.next = nullptr;
  const bool signaled = qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  Sent sent{wr.wr_id, bytes_of(wr), now, wr.opcode, signaled};
  if (qp.type == IBV_QPT_UD) {  // each datagram has a peer of its own
    const auto to = ahs_.find(wr.wr.ud.ah);
    qp.peer = to != ahs_.end() ? std::optional(to->second) : std::nullopt;
  }
  // What its queue pair may not send yet is no WR to count or to strike; the provider refuses it.
  const bool refused_by_state = !may_send(shown_state(qp.qp));
  counted_.clear();
  if (!faults_.empty() && !refused_by_state) {
    count_triggers(qp, sent, now);
    // One that a fault refuses is counted: it was struck.
    const int refused = refusal({.what = Call::What::kPostSend, .qp = &qp, .sent = &sent}, now);
    if (refused != 0) return refused;
    strike_again(qp, sent);
    for (const auto& fault : faults_)
      if (fault->begun) fault->posting(*this, qp, sent, now);
  }
  const int rc = hand_over(qp, wr, sent, refused_by_state, now);
  if (rc == 0) {
    qp.refused.met.clear();
  } else {
    take_back(qp, sent);
  }
  return rc;
}

int Context::hand_over(QueuePair& qp, ibv_send_wr& wr, const Sent& sent, bool refused_by_state,
                       uint64_t now) {
  const bool cut = qp.life == QueuePair::Life::kCut;
  const bool held = qp.life == QueuePair::Life::kWhole && must_hold(qp);
  const bool gone = removal_.stage != DeviceRemoval::Stage::kPresent;
  // No provider looks at this one as it is posted, or one whose queue pair is in ERR.
  if ((cut || held || gone) && refused_by_state) return EINVAL;
  // The real queue has room again as soon as its completions are taken; the program's has not, before it sees
  // them, and what is kept back fills it too.
  if ((cut || held || qp.deaf_by.id != 0) && qp.hidden_sends.size() + qp.sent.size() >= qp.max_send_wr)
    return ENOMEM;
  if (gone) {
    removal_goes_on(now);
    // Nobody takes its completions any more, so its queue fills up.
    if (removal_.hides_completions() && qp.sent.size() >= qp.max_send_wr) return ENOMEM;
    if (removal_.is_dead()) {
      qp.sent.push_back(sent);
      return 0;
    }
  }
  ibv_sge nowhere{};
  if (sent.spoiled != 0) spoil(wr, nowhere);
  if (sent.lost) lose_datagram(wr, qp.type);
  if (held) {
    hold(qp, wr, sent.bytes, now);
  } else if (const int rc = real_post(qp, wr); rc != 0) {
    return rc;
  }
  qp.posted.add(sent.opcode, sent.bytes, now);
  if (cut && qp.shown_at_ns == 0) due_at(qp, now + qp.retry_window_ns());
  if (qp.deaf_by.id != 0 && qp.shown_at_ns == 0 && qp.life == QueuePair::Life::kWhole)
    due_at(qp, std::max(qp.deaf_from_ns, now) + qp.retry_window_ns());
  qp.sent.push_back(sent);
  if (qp.sent.size() > uint64_t(qp.max_send_wr) * 2 + 16) qp.sent.pop_front();  // completions unseen by us
  return 0;
}

int Context::real_post(QueuePair& qp, ibv_send_wr& wr) {
  bool extended = false;
  const int rc = extended_post(qp.qp, wr, extended);
  if (extended) return rc;
  ibv_send_wr* bad = nullptr;
  return slot_.post_send(qp.qp, &wr, &bad);
}

// Each receive goes alone, so that one of a list can be refused.
int Context::post_recv(ibv_qp* pointer, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const auto lock = lock_in_turn();
  if (sync_due_) sync_locked(monotonic_ns());
  removal_goes_on(monotonic_ns());
  if (removal_.is_dead()) return 0;
  QueuePair& qp = *find_or_adopt(pointer);
  int rc = 0;
  for (ibv_recv_wr* each = wr; each != nullptr && rc == 0; each = each->next) {
    rc = refusal({.what = Call::What::kPostReceive, .qp = &qp}, monotonic_ns());
    ibv_recv_wr one = *each, *unused = nullptr;
    one.next = nullptr;
    if (rc == 0) rc = slot_.post_recv(pointer, &one, &unused);
    if (rc != 0) *bad = each;
  }
  if (mode_dirty_) refresh_mode();
  return rc;
}

int Context::post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const auto lock = lock_in_turn();
  if (sync_due_) sync_locked(monotonic_ns());
  removal_goes_on(monotonic_ns());
  if (removal_.is_dead()) return 0;
  int rc = 0;
  for (ibv_recv_wr* each = wr; each != nullptr && rc == 0; each = each->next) {
    rc = refusal({.what = Call::What::kPostReceive}, monotonic_ns());
    ibv_recv_wr one = *each, *unused = nullptr;
    one.next = nullptr;
    if (rc == 0) rc = slot_.post_srq_recv(srq, &one, &unused);
    if (rc != 0) *bad = each;
  }
  return rc;
}

bool Context::must_hold(const QueuePair& qp) const {
  if (!qp.held.empty()) return true;
  if (shown_state(qp.qp) == IBV_QPS_ERR) return false;  // the program has moved it there: it flushes at once
  return std::any_of(faults_.begin(), faults_.end(),
                     [&](const auto& fault) { return fault->begun && fault->holds(*this, qp); });
}

void Context::hold(QueuePair& qp, const ibv_send_wr& wr, uint64_t bytes, uint64_t now) {
  HeldWr& held = qp.held.emplace_back();
  held.serial = next_held_++;
  held.peer = qp.peer;
  held.wr = wr;
  held.wr.next = nullptr;
  held.bytes = bytes;
  held.posted_ns = now;
  held.list.assign(wr.sg_list, wr.sg_list + wr.num_sge);
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    held.inline_data.resize(bytes_in_list(wr));
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
    if (qp.type == IBV_QPT_UD) qp.peer = head.peer;
    uint64_t at = 0;
    for (const auto& fault : faults_)
      if (fault->begun && fault->holds(*this, qp)) at = std::max(at, fault->may_go_at(*this, qp, head, now));
    if (at > now) return at;
    const int rc = real_post(qp, head.wr);
    if (rc == ENOMEM)
      return now + kFullQueueRetryNs;  // work from before the fault still fills the real queue
    if (rc != 0) {
      // The program was told that the post succeeded; the provider's refusal can only be a completion now.
      ibv_wc wc{};
      wc.wr_id = head.wr.wr_id;
      wc.status = IBV_WC_LOC_QP_OP_ERR;
      wc.qp_num = qp.qp->qp_num;
      qp.send_cq->ready.push_back(wc);
      wake_sleeper(*qp.send_cq);
    }
    pumped_++;
    for (const auto& fault : faults_)
      if (fault->begun) fault->went(*this, qp);
    qp.held.pop_front();
    if (--held_ == 0) mode_dirty_ = true;
  }
  return UINT64_MAX;
}

uint64_t Context::pump_all(uint64_t now) {
  // Round after round, so that no queue pair takes two turns in a row while another waits.
  for (uint32_t idle = 0;;) {
    uint64_t next = UINT64_MAX;
    bool again = false;
    if (held_ == 0) return next;
    const uint64_t before = pumped_;
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
    // Two rounds without any movement: it waits for one that waits for something else.
    idle = pumped_ != before ? 0 : idle + 1;
    if (idle == 2) return std::min(next, now + kTurnRetryNs);
  }
}

void Context::release_all_held(QueuePair& qp) {
  while (!qp.held.empty()) {
    HeldWr& head = qp.held.front();
    if (real_post(qp, head.wr) != 0) {
      ibv_wc wc{};
      wc.wr_id = head.wr.wr_id;
      wc.status = IBV_WC_WR_FLUSH_ERR;
      wc.qp_num = qp.qp->qp_num;
      if (qp.life == QueuePair::Life::kCut) {
        hide(qp, *qp.send_cq, wc, true, head.posted_ns);
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
