// SPDX-License-Identifier: Apache-2.0
// Which queue pairs a fault strikes that names them by a selector: those that carry traffic already, or the
// next that posts. For faults that strike whole queue pairs once.
#pragma once

#include <algorithm>
#include <vector>

#include "faultinject/preload/context.h"
#include "faultinject/preload/fault.h"

namespace faultinject {

inline bool by_traffic(const FaultEntry& entry) {
  return entry.selector == SelectorKind::kBusiest || entry.selector == SelectorKind::kRandom;
}

// Can it send, or only receive? A program that sends nothing may leave its queue pair in RTR for good.
inline bool in_use(const QueuePair& qp) { return qp.connected || shown_state(qp.qp) == IBV_QPS_RTR; }

// Those that can be struck now, in the order of their index. For the busiest and a random one: at most one,
// and only among those that have posted sends that the fault counts.
template <typename Eligible>
std::vector<QueuePair*> chosen_qps(Context& context, const Fault& fault, Eligible eligible) {
  const FaultEntry& entry = fault.entry();
  std::vector<QueuePair*> candidates;
  context.each_qp([&](QueuePair& qp) {
    if (qp.reliable && in_use(qp) && qp.life == QueuePair::Life::kWhole && eligible(qp) &&
        (!by_traffic(entry) || qp.posted.counted_by(entry).sends > 0))
      candidates.push_back(&qp);
  });
  std::sort(candidates.begin(), candidates.end(), [](auto* a, auto* b) { return a->index < b->index; });
  if (candidates.empty() || !by_traffic(entry)) return candidates;
  if (entry.selector == SelectorKind::kRandom)
    return {candidates[context.choice(fault, *candidates[0]) % candidates.size()]};
  // By bytes: a queue pair that only carries a heartbeat may well have posted last.
  return {*std::max_element(candidates.begin(), candidates.end(), [&](auto* a, auto* b) {
    const Traffic::Posted of_a = a->posted.counted_by(entry), of_b = b->posted.counted_by(entry);
    return of_a.bytes != of_b.bytes ? of_a.bytes < of_b.bytes : of_a.last_ns < of_b.last_ns;
  })};
}

// A fault that strikes one queue pair of each NIC (or all of them, or one by index) once in each round: at
// begin() if there is one, else the next that posts. A round is over when every process with a NIC of the
// target has begun it and one has struck; or, where over_when_struck() says no, with its time.
class QpStrike : public Fault {
 public:
  using Fault::Fault;
  bool strikes_in_each_process() const override { return true; }

  void begin(Context& context, uint64_t now) override {
    done_ = false;
    if (!hits(context)) {
      done_ = true;
      return;
    }
    bool any = false;
    for (QueuePair* qp :
         chosen_qps(context, *this, [&](const QueuePair& each) { return can_be_struck(context, each); }))
      any |= attempt(context, *qp, now);
    if (any) over(context);
  }

  void posting(Context& context, QueuePair& qp, Sent& sent, uint64_t now) override {
    if (done_ || !qp.reliable || !qp.connected || qp.life != QueuePair::Life::kWhole ||
        !can_be_struck(context, qp) || !entry().takes_opcode(sent.opcode))
      return;
    if (attempt(context, qp, now)) over(context);
  }

 protected:
  // Is there, at a queue pair that is whole, what it strikes?
  virtual bool has_target(const QueuePair&) const { return true; }
  // True if it was struck.
  virtual bool strike(Context&, QueuePair&, uint64_t now_ns) = 0;
  virtual bool over_when_struck() const { return true; }

 private:
  bool can_be_struck(const Context& context, const QueuePair& qp) const {
    return hits(context, qp) && selects(entry(), qp) && has_target(qp);
  }
  // True if this process has done what it has to do in this round.
  bool attempt(Context& context, QueuePair& qp, uint64_t now) {
    if (!by_traffic(entry())) return strike(context, qp, now);
    done_ = true;
    // Where the strike is another process's, it is taken, since that one may be dead; and so it is where the
    // provider refuses it. Not where the table of claims is full: then nobody strikes.
    if (claim_nic(context, *this)) {
      strike(context, qp, now);
      return true;
    }
    return claimed(context.board(), strike_key(id(), round, context.node(), context.nic()));
  }
  void over(Context& context) {
    done_ = true;
    if (over_when_struck()) context.round_is_over(*this, round);
  }

  bool done_ = false;
};

}  // namespace faultinject
