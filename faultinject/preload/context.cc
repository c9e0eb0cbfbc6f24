// SPDX-License-Identifier: Apache-2.0
// Objects and states of a context. What the board says is in follow.cc, posts are in send.cc, completions in
// completion.cc, what faults do to queue pairs in strikes.cc.
#include "faultinject/preload/context.h"

#include <errno.h>
#include <limits.h>

#include <algorithm>

#include "faultinject/preload/process.h"
#include "faultinject/preload/provider_call.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"

namespace faultinject {

Context::Context(Process& process, Slot& slot, ibv_context* context, uint32_t node, uint32_t nic,
                 uint32_t ports)
    : process_(process),
      slot_(slot),
      context_(context),
      node_(node),
      nic_(nic),
      ports_(ports),
      events_(std::make_shared<AsyncEvents>(context)) {}
Context::~Context() = default;

Board& Context::board() const { return process_.board(); }

void Context::witness(FaultRound fault, Effect effect, uint32_t qp_num, uint64_t value, uint64_t time_ns) {
  report(fault, effect, qp_num, value, time_ns);
  switch (effect) {  // the others say themselves what the program saw
    case Effect::kQpToErr:
    case Effect::kQpConnectedDead:
    case Effect::kWcWithheld:
    case Effect::kWrWithheld:
    case Effect::kWcDropped:
    case Effect::kPostRefused:
      break;
    default:
      return;
  }
  QueuePair* qp = find(qp_num);
  if (qp == nullptr) return;
  if (qp->next_seen_by.id == 0) watched_++;
  qp->next_seen_by = fault;
  qp->failure_due = effect == Effect::kQpToErr || effect == Effect::kQpConnectedDead;
  qp->success_seen = false;
  mode_dirty_ = true;
}

void Context::stop_watching(QueuePair& qp) {
  if (qp.next_seen_by.id == 0) return;
  qp.next_seen_by = {};
  watched_--;
  mode_dirty_ = true;
}

uint64_t Context::choice(const Fault& fault, const QueuePair& qp) const {
  // Of the place, not of the process id or an address: the same seed and program give the same choice.
  uint64_t x = fault.entry().seed;
  x = mix(x ^ (uint64_t(node_) << 40 | uint64_t(nic_) << 32 | qp.index));
  if (!qp.reliable) x = mix(x);  // their indices are the RC ones' again
  for (const char* c = environment().rank; *c != 0; c++) x = mix(x ^ uint8_t(*c));
  return x;
}

void Context::report(FaultRound fault, Effect effect, uint32_t qp_num, uint64_t value, uint64_t time_ns) {
  add_witness(board(), {fault, time_ns, process_.pid(), environment().rank, node_, nic_, qp_num,
                        uint32_t(effect), value});
}

bool Context::shows_port_down(uint32_t port) {
  const std::lock_guard lock(mutex_);
  return port_down_[0] > 0 || (port < 256 && port_down_[port] > 0);
}

bool Context::hides_gid(uint32_t port, uint32_t index) {
  const std::lock_guard lock(mutex_);
  return std::any_of(faults_.begin(), faults_.end(),
                     [&](const auto& fault) { return fault->begun && fault->hides_gid(*this, port, index); });
}

bool Context::has_gid(uint32_t port, uint64_t index) const {
  const ProviderCall call;
  const auto query_gid = FAULTINJECT_REAL(kQueryGid, ibv_query_gid);
  ibv_gid gid{};
  return query_gid != nullptr && index <= INT_MAX &&
         query_gid(context_, uint8_t(port), int(index), &gid) == 0 &&
         (gid.global.subnet_prefix != 0 || gid.global.interface_id != 0);
}

int Context::refusal(const Call& call, uint64_t now) {
  for (const auto& fault : faults_)
    if (fault->begun)
      if (const int error = fault->refuse(*this, call, now); error != 0) return error;
  return 0;
}

int Context::admit(Call::What what) {
  std::unique_lock lock(mutex_);
  catch_up();
  wait_until_thawed(lock);
  if (takes_no_commands()) {
    note_command(what == Call::What::kRegister ? Effect::kRegistrationRefused : Effect::kCreateRefused, 0,
                 EIO);
    return EIO;
  }
  return faults_.empty() ? 0 : refusal({.what = what}, monotonic_ns());
}

// --- completion queues ---

CompletionQueue* Context::queue(ibv_cq* cq) {
  if (cq == nullptr) return nullptr;
  auto& entry = cqs_[cq];
  if (entry == nullptr) {
    entry = std::make_unique<CompletionQueue>();
    entry->cq = cq;
  }
  return entry.get();
}

void Context::add_cq(ibv_cq* cq) {
  const std::lock_guard lock(mutex_);
  cqs_.erase(cq);  // an address that came again
  queue(cq);
}

std::unique_ptr<CompletionQueue> Context::take_cq(ibv_cq* cq) {
  std::unique_lock lock(mutex_);
  wait_until_thawed(lock);
  events_->forget(cq);
  const auto it = cqs_.find(cq);
  if (it == cqs_.end()) return nullptr;
  auto taken = std::move(it->second);
  cqs_.erase(it);
  const ProviderCall call;
  taken->waker.reset();  // the program's queue could not be destroyed before it
  refresh_mode();
  return taken;
}

void Context::put_back(std::unique_ptr<CompletionQueue> cq) {
  const std::lock_guard lock(mutex_);
  // What was healed while it was away.
  std::erase_if(cq->dead_by, [&](uint32_t id) {
    return std::none_of(faults_.begin(), faults_.end(),
                        [&](const auto& fault) { return fault->begun && fault->id() == id; });
  });
  cqs_[cq->cq] = std::move(cq);
  refresh_mode();
}

// --- queue pairs ---

QueuePair* Context::find(const ibv_qp* qp) {
  const auto it = qps_.find(qp);
  return it != qps_.end() ? it->second.get() : nullptr;
}

QueuePair* Context::find(uint32_t qp_num) {
  const auto it = by_number_.find(qp_num);
  return it != by_number_.end() ? it->second : nullptr;
}

QueuePair& Context::insert(ibv_qp* pointer, const ibv_qp_init_attr& attributes) {
  auto qp = std::make_unique<QueuePair>();
  qp->qp = pointer;
  qp->serial = next_serial_++;
  qp->type = attributes.qp_type;
  qp->reliable = is_reliable(attributes.qp_type);
  qp->index = process_.next_qp_index(nic_, qp->reliable);
  qp->send_cq = queue(attributes.send_cq);
  qp->recv_cq = queue(attributes.recv_cq);
  qp->max_send_wr = attributes.cap.max_send_wr;
  qp->signal_all = attributes.sq_sig_all != 0;
  QueuePair& inserted = *qp;
  by_number_[pointer->qp_num] = qp.get();
  if (QueuePair* old = find(pointer))
    set_life(*old, QueuePair::Life::kWhole);  // dying, its address came again
  qps_[pointer] = std::move(qp);
  return inserted;
}

void Context::add_ah(const ibv_ah* ah, const ibv_ah_attr& attributes) {
  const std::lock_guard lock(mutex_);
  NicAddress to{};
  if (!find_address(board(), attributes.is_global != 0 ? attributes.grh.dgid.raw : nullptr, attributes.dlid,
                    to))
    return;
  ahs_[ah] = to;
  refresh_mode();
}

void Context::forget_ah(const ibv_ah* ah) {
  const std::lock_guard lock(mutex_);
  if (ahs_.erase(ah) != 0) refresh_mode();
}

void Context::add_qp(ibv_qp* qp, const ibv_qp_init_attr& attributes) {
  const std::lock_guard lock(mutex_);
  insert(qp, attributes);
}

QueuePair* Context::find_or_adopt(ibv_qp* pointer) {
  if (QueuePair* known = find(pointer)) return known;
  // Made by a call that we do not see (a provider's own, mlx5dv_create_qp for one).
  ibv_qp_init_attr attributes{};
  attributes.qp_type = pointer->qp_type;
  attributes.send_cq = pointer->send_cq;
  attributes.recv_cq = pointer->recv_cq;
  attributes.cap.max_send_wr = UINT32_MAX;
  return &insert(pointer, attributes);
}

uint64_t Context::begin_destroy(ibv_qp* pointer) {
  std::unique_lock lock(mutex_);
  wait_until_thawed(lock);
  QueuePair* qp = find(pointer);
  if (qp == nullptr) return 0;
  stop_watching(*qp);
  drop_held(*qp);
  forget_completions(*qp);
  qp->dying = true;  // until the provider has taken its completions out of the queues
  events_->forget(pointer);
  return qp->serial;
}

void Context::end_destroy(ibv_qp* pointer, uint64_t serial, bool destroyed) {
  const std::lock_guard lock(mutex_);
  const auto it = qps_.find(pointer);
  if (it == qps_.end() || it->second->serial != serial) return;
  it->second->dying = false;
  if (destroyed) {
    set_life(*it->second, QueuePair::Life::kWhole);
    std::erase_if(by_number_, [&](const auto& pair) { return pair.second == it->second.get(); });
    qps_.erase(it);
  } else if (it->second->shown_at_ns != 0) {
    due_at(*it->second, it->second->shown_at_ns);  // passed over while it was dying
  }
  refresh_mode();
}

void Context::set_life(QueuePair& qp, QueuePair::Life life) {
  if (qp.life == QueuePair::Life::kCut) cuts_--;
  if (life == QueuePair::Life::kCut) cuts_++;
  qp.life = life;
  mode_dirty_ = true;
}

void Context::learn_address(QueuePair& qp, const ibv_qp_attr& attributes, int mask) {
  if ((mask & IBV_QP_PORT) != 0) qp.port = attributes.port_num;
  if ((mask & IBV_QP_DEST_QPN) != 0) qp.peer_qp_num = attributes.dest_qp_num;
  if ((mask & IBV_QP_AV) == 0) return;
  NicAddress peer{};
  const bool global = attributes.ah_attr.is_global != 0;
  if (find_address(board(), global ? attributes.ah_attr.grh.dgid.raw : nullptr, attributes.ah_attr.dlid,
                   peer)) {
    qp.peer = peer;
  } else {
    qp.peer.reset();
  }
}

bool Context::some_fault_is_at_work() const {
  return std::any_of(faults_.begin(), faults_.end(), [](const auto& fault) { return fault->begun; });
}

void Context::begin_new_life(QueuePair& qp) {
  drop_held(qp);
  forget_completions(qp);
  set_life(qp, QueuePair::Life::kWhole);
  stop_watching(qp);
  qp.connected = qp.retry_error_due = qp.acks_lost = qp.receives_lost = false;
  qp.shown_at_ns = qp.cut_ns = qp.deaf_from_ns = 0;
  qp.port = qp.peer_qp_num = 0;
  qp.deaf_by = {};
  qp.sent.clear();
  qp.refused = {};
  qp.peer.reset();
}

void Context::has_moved(QueuePair& qp, ibv_qp_state state, uint64_t now) {
  switch (state) {
    case IBV_QPS_RTR:
      if (some_fault_is_at_work()) slot_.raise();
      for (const auto& fault : faults_)
        if (fault->begun) fault->receives(*this, qp, now);
      break;
    case IBV_QPS_RTS:
      if (!qp.connected) {
        qp.connected = true;
        if (qp.life == QueuePair::Life::kCut) qp.cut_in = IBV_QPS_RTS;  // while the command was under way
        if (some_fault_is_at_work()) slot_.raise();
        for (const auto& fault : faults_)
          if (fault->begun) fault->connected(*this, qp, now);
      }
      break;
    case IBV_QPS_ERR: {
      // What was delivered and never acknowledged is older than what flushes now, and flushes first.
      const bool deaf = lose_acknowledgements(qp);
      // The real queue pair is in ERR by now, so all that was kept back flushes, and may be seen.
      release_all_held(qp);
      if (qp.life == QueuePair::Life::kCut) {
        drain_queues(qp, now);
        if (deaf) hide_unacknowledged(qp);
        show_hidden(qp, true);
      } else {
        qp.retry_error_due = false;
      }
      qp.connected = false;  // nothing can be cut any more: its flushes are the program's own
      break;
    }
    case IBV_QPS_RESET:
      begin_new_life(qp);
      break;
    default:
      break;
  }
}

int Context::modify_qp(ibv_qp* pointer, ibv_qp_attr* attributes, int mask) {
  const auto real = FAULTINJECT_REAL(kModifyQp, ibv_modify_qp);
  if (real == nullptr) return ENOSYS;
  std::unique_lock lock(mutex_);
  catch_up();
  wait_until_thawed(lock);
  if (takes_no_commands()) return modify_without_device(pointer, *attributes, mask);
  if (!faults_.empty()) {
    QueuePair& asked = *find_or_adopt(pointer);
    learn_address(asked, *attributes, mask);  // a target may name the port or the peer
    const int error = refusal(
        {.what = Call::What::kModify, .qp = &asked, .attributes = attributes, .mask = mask}, monotonic_ns());
    if (mode_dirty_) refresh_mode();
    if (error != 0) return error;
  }
  if (QueuePair* qp = find(pointer); qp != nullptr && goes_on_dead(*qp, *attributes, mask)) return 0;
  lock.unlock();
  const int rc = real(pointer, attributes, mask);  // without the mutex: it may take long
  if (rc != 0) {
    lock.lock();  // it may have been cut meanwhile, and then this is no failure of the program's
    QueuePair* qp = find(pointer);
    return qp != nullptr && goes_on_dead(*qp, *attributes, mask) ? 0 : rc;
  }
  const uint64_t now = monotonic_ns();
  lock.lock();
  QueuePair& qp = *find_or_adopt(pointer);
  learn_address(qp, *attributes, mask);
  if ((mask & IBV_QP_TIMEOUT) != 0) qp.timeout = attributes->timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) qp.retry_count = attributes->retry_cnt;
  if ((mask & IBV_QP_STATE) == 0) return rc;
  show_state(pointer, attributes->qp_state);  // a query_qp() may have shown an older one since

  has_moved(qp, attributes->qp_state, now);
  refresh_mode();
  return rc;
}

// Cut in RTR, so that nothing reached it, and now to RTS: that succeeds over a dead port, while the real
// queue pair stays where it is.
bool Context::goes_on_dead(QueuePair& qp, const ibv_qp_attr& attributes, int mask) {
  if (qp.life != QueuePair::Life::kCut || qp.cut_in != IBV_QPS_RTR || (mask & IBV_QP_STATE) == 0 ||
      attributes.qp_state != IBV_QPS_RTS)
    return false;
  if ((mask & IBV_QP_TIMEOUT) != 0) qp.timeout = attributes.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) qp.retry_count = attributes.retry_cnt;
  qp.connected = true;
  qp.cut_in = IBV_QPS_RTS;
  show_state(qp.qp, qp.cut_in);
  return true;
}

int Context::query_qp(ibv_qp* pointer, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) {
  if (slot_.query_qp == nullptr) return ENOSYS;
  std::unique_lock lock(mutex_);
  catch_up();
  wait_until_thawed(lock);
  if (takes_no_commands()) {
    note_command(Effect::kCommandRefused, pointer->qp_num, EIO);
    return EIO;
  }
  lock.unlock();
  // Not by ibv_query_qp, which would write the real state of a queue pair that is cut into ibv_qp::state.
  const int rc = slot_.query_qp(pointer, attributes, mask, init);
  if (rc != 0) return rc;
  lock.lock();
  const QueuePair* qp = find(pointer);
  if (qp != nullptr && qp->life == QueuePair::Life::kCut)
    attributes->qp_state = attributes->cur_qp_state = qp->cut_in;
  if ((mask & IBV_QP_STATE) != 0) show_state(pointer, attributes->qp_state);
  return rc;
}

}  // namespace faultinject
