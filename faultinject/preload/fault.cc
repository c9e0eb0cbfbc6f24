// SPDX-License-Identifier: Apache-2.0
#include "faultinject/preload/fault.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "faultinject/preload/context.h"
#include "faultinject/preload/queue_pair.h"

namespace faultinject {

bool Fault::hits(const Context& context) const { return entry_.hits(context.node(), context.nic()); }

bool Fault::hits_here(const Context& context, const QueuePair& qp) const {
  if (!hits(context) || (entry_.port != 0 && entry_.port != qp.port)) return false;
  return entry_.has_peer == 0 || (qp.peer && entry_.hits_peer(qp.peer->node, qp.peer->nic));
}

bool Fault::hits_there(const Context& context, const QueuePair& qp) const {
  if (!qp.peer || !entry_.hits(qp.peer->node, qp.peer->nic)) return false;
  if (entry_.port != 0 && entry_.port != qp.peer->port) return false;
  return entry_.has_peer == 0 || entry_.hits_peer(context.node(), context.nic());
}

bool Fault::hits(const Context& context, const QueuePair& qp) const {
  return hits_here(context, qp) || (reaches_peers() && hits_there(context, qp));
}

void Fault::struck(Context& context, Effect effect, uint32_t qp_num, uint64_t value, uint64_t now,
                   uint32_t in_round) {
  took_effect(entry_, now);
  if (recorded_ >= kMostStrikeRecords && in_round < recorded_rounds_) return;
  recorded_++;
  recorded_rounds_ = std::max(recorded_rounds_, in_round + 1);
  context.witness(FaultRound{id(), in_round}, effect, qp_num, value, now);
}

void Fault::lose(Context& context, const QueuePair& qp, Sent& sent, uint64_t now) {
  if (qp.type != IBV_QPT_UD && qp.type != IBV_QPT_UC) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true))
      fprintf(stderr,
              "faultinject[%d]: sends of queue pairs of type %d pass; only RC, XRC, UC and UD are cut\n",
              int(getpid()), int(qp.type));
    return;
  }
  sent.lost = true;
  struck(context, Effect::kDatagramLost, qp.qp->qp_num, sent.bytes, now);
}

bool Fault::strike_counted(Context& context, Effect effect, uint32_t qp_num, uint64_t value, uint64_t now) {
  bool last = false;
  const auto [phase, seen] = entry_.phase.both();
  if (phase != Phase::kFired) return false;
  const bool taken = take_strike(entry_, seen, last);
  if (taken) struck(context, effect, qp_num, value, now, seen);
  if (last || !taken) context.round_is_over(*this, seen);
  return taken;
}

bool selects(const FaultEntry& entry, const QueuePair& qp) {
  return entry.selector != SelectorKind::kIndex || (qp.reliable && qp.index == entry.qp_index);
}

bool claim_nic(Context& context, const Fault& fault) {
  return claim_nic(context, fault, context.node(), context.nic());
}

bool claim_nic(Context& context, const Fault& fault, uint32_t node, uint32_t nic) {
  return claim(context.board(), strike_key(fault.id(), fault.round, node, nic));
}

bool claim_only_strike(Context& context, Fault& fault) {
  if (claim_nic(context, fault)) return true;
  // Not where the table of claims is full: then nobody strikes.
  if (claimed(context.board(), strike_key(fault.id(), fault.round, context.node(), context.nic())))
    context.round_is_over(fault, fault.round);
  return false;
}

std::unique_ptr<Fault> make_fault(FaultEntry& entry) {
  const FaultKind* kind = find_fault_kind(entry.kind);
  return kind == nullptr ? nullptr : kind->make(entry);
}

}  // namespace faultinject
