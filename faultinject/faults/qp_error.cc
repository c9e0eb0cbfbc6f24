// SPDX-License-Identifier: Apache-2.0
// qp_error: a queue pair fails by itself, as after a fatal error in its NIC. `side` says whose: the target's
// own (local), that of its peer (remote), or both at one time. The program sees: IBV_EVENT_QP_FATAL, then
// WR_FLUSH_ERR for all that was outstanding. The other end is not touched (but for `both`): its sends run
// into RETRY_EXC_ERR by the provider's own timers. Work already posted: flushed by the provider; part of it
// may have been delivered. Heal: nothing to undo.
// Rounds: a round with `side: remote` or `both` ends 1 s after it was asked for, or, where the target is one
// NIC and one of its queue pairs, with the strike at the other end.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include <bit>
#include <unordered_set>

#include "faultinject/faults/qp_choice.h"

namespace faultinject {
namespace {

enum class Side : uint64_t { kLocal, kRemote, kBoth };

// The end of a connection that a process marks for the process at the other end to strike.
uint64_t mark(const Fault& fault, uint32_t node, uint32_t nic, uint32_t qp_num) {
  return mix(mix(uint64_t(fault.id()) << 32 | fault.round) ^
             (uint64_t(node) << 40 | uint64_t(nic) << 32 | qp_num)) |
         1;
}

class LocalQpError : public QpStrike {
 public:
  using QpStrike::QpStrike;
  bool strike(Context& context, QueuePair& qp, uint64_t now) override {
    return context.strike(qp, *this, now, true, true);
  }
};

// Either end may be the one whose process knows which queue pair is meant: the target's own knows its
// indices, and whoever posts knows the traffic. It strikes its own end if that is wanted, and marks the other
// one.
class FarQpError : public Fault {
 public:
  enum Own { kSide };  // as declared below

  using Fault::Fault;
  bool reaches_peers() const override { return true; }

  void begin(Context& context, uint64_t now) override {
    done_ = false;
    tried_ns_ = 0;
    struck_.clear();
    for (QueuePair* qp :
         chosen_qps(context, *this, [&](const QueuePair& each) { return mine(context, each); }))
      attempt(context, *qp, now);
    done_ = tried_ns_ != 0;
  }

  void posting(Context& context, QueuePair& qp, Sent& sent, uint64_t now) override {
    if (!done_ && !struck_.contains(qp.serial) && qp.reliable && qp.connected &&
        qp.life == QueuePair::Life::kWhole && mine(context, qp) && entry().takes_opcode(sent.opcode)) {
      attempt(context, qp, now);
      done_ = true;
    }
    strike_if_marked(context, qp, now);
  }

  uint64_t tick(Context& context, uint64_t now) override {
    context.each_qp([&](QueuePair& qp) { strike_if_marked(context, qp, now); });
    if (tried_ns_ == 0 || round + 1 >= entry().rounds) return UINT64_MAX;
    if (now < tried_ns_ + kWaitsForStrike) return tried_ns_ + kWaitsForStrike;
    tried_ns_ = 0;
    context.round_is_over(*this, round);
    return UINT64_MAX;
  }

 private:
  // The process that is to leave the mark, or to strike where it finds one, may be dead: the round ends then.
  static constexpr uint64_t kWaitsForStrike = 1000000000;  // ns

  bool both() const { return Side(entry().own[kSide]) == Side::kBoth; }

  // Can this process tell that this queue pair is meant? A number names a queue pair of the target's own NIC.
  bool mine(const Context& context, const QueuePair& qp) const {
    if (hits_here(context, qp)) return qp.peer && selects(entry(), qp);
    return hits_there(context, qp) && entry().selector != SelectorKind::kIndex;
  }

  void attempt(Context& context, QueuePair& qp, uint64_t now) {
    const bool here = hits_here(context, qp);
    if (tried_ns_ == 0) {
      tried_ns_ = now;
      context.wake_everybody();  // tick() waits for the strike
    }
    if (by_traffic(entry())) {
      const NicAddress target = here ? NicAddress{context.node(), context.nic()} : *qp.peer;
      if (!claim_nic(context, *this, target.node, target.nic)) return;
    }
    if (here || both()) {  // the other end is to fail
      claim(context.board(), mark(*this, qp.peer->node, qp.peer->nic, qp.peer_qp_num));
      context.wake_everybody();
    }
    if (here && !both()) return;
    // With `both` the round lasts until the other end has found its mark.
    if (strike(context, qp, now) && !both()) struck_far_end(context, now);
  }

  bool strike(Context& context, QueuePair& qp, uint64_t now) {
    struck_.insert(qp.serial);
    return context.strike(qp, *this, now, true, true);
  }

  // Where there are more to be struck, other processes may not have come to it yet.
  void struck_far_end(Context& context, uint64_t now) {
    if (by_traffic(entry()) && targets_one_nic()) return context.round_is_over(*this, round);
    if (tried_ns_ != 0) return;
    tried_ns_ = now;  // who left the mark may be dead by then
    context.wake_everybody();
  }

  bool targets_one_nic() const {
    int nodes = 0;
    for (const uint64_t mask : entry().node_mask) nodes += std::popcount(mask);
    return nodes == 1 && std::popcount(entry().nic_mask) == 1;
  }

  void strike_if_marked(Context& context, QueuePair& qp, uint64_t now) {
    if (!in_use(qp) || qp.life != QueuePair::Life::kWhole || struck_.contains(qp.serial)) return;
    if (!hits_here(context, qp) && !hits_there(context, qp)) return;
    if (!claimed(context.board(), mark(*this, context.node(), context.nic(), qp.qp->qp_num))) return;
    if (strike(context, qp, now)) struck_far_end(context, now);
  }

  bool done_ = false;                    // in this round: what is made later is left alone
  uint64_t tried_ns_ = 0;                // in this round; 0: not yet
  std::unordered_set<uint64_t> struck_;  // in this round; by serial
};

std::unique_ptr<Fault> make_qp_error(FaultEntry& entry) {
  if (Side(entry.own[FarQpError::kSide]) == Side::kLocal) return std::make_unique<LocalQpError>(entry);
  return std::make_unique<FarQpError>(entry);
}

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> qp_error() {
  return {FaultKind{
      .name = "qp_error",
      .what = "a queue pair goes to ERR, as after a fatal error of this queue pair",
      .past = "lost a queue pair to an error",
      .present = "loses a queue pair to an error",
      .takes = Takes::kQueuePairs,
      .ends = Ends::kAfterStrikes,
      .shared = {"qp", "peer", "opcode"},
      .own = {own_choice("side", {"local", "remote", "both"})},
      .examples = {{.parameters = "qp: all"}},
      .make = IN_LIBRARY(make_qp_error),
  }};
}

}  // namespace faultinject::faults
