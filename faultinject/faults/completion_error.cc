// SPDX-License-Identifier: Apache-2.0
// completion_error: a work request fails with `status`, whatever that is; on the send side or (`queue: recv`)
// on the receive side. The program sees: for the send WR that is struck, signaled or not, a completion with
// that status; before it all earlier completions, after it WR_FLUSH_ERR for everything behind it. Nothing of
// the WR or of what is behind it reaches the peer: the WR goes to the provider with an address where there is
// no memory, so that the device itself fails it in its turn and flushes the rest; only the status is changed.
// A receive that is struck has taken its message; it and the receives behind it fail, and the queue pair goes
// to ERR. Work already posted: a send that is posted before the fault fires is not struck. Heal: WRs struck
// already still fail; others are let pass. The peer's queue pair is not touched: its sends run into
// RETRY_EXC_ERR.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

bool has_data(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
    case IBV_WR_TSO:
      return false;
    default:
      return true;
  }
}

class CompletionError : public Fault {
 public:
  using Fault::Fault;

  void posting(Context& context, QueuePair& qp, Sent& sent, uint64_t now) override {
    if (entry().receive != 0 || sent.spoiled != 0 || qp.life != QueuePair::Life::kWhole || !qp.connected)
      return;
    if (!has_data(sent.opcode) || !entry().takes_opcode(sent.opcode) || !hits(context, qp) ||
        !selects(entry(), qp))
      return;
    bool last = false;
    const auto [phase, seen] = entry().phase.both();
    if (phase != Phase::kFired) return;
    if (!take_strike(entry(), seen, last)) return context.round_is_over(*this, seen);
    sent.spoiled = entry().status;
    sent.spoiled_by = {id(), seen};
    // Its effect, and t0, is the completion.
    context.witness(sent.spoiled_by, Effect::kWrSpoiled, qp.qp->qp_num, uint64_t(entry().status), now);
    if (last) context.round_is_over(*this, seen);
  }

  bool received(Context& context, QueuePair& qp, ibv_wc& wc, uint64_t now) override {
    if (entry().receive == 0 || !hits(context, qp) || !selects(entry(), qp)) return true;
    if (strike_counted(context, Effect::kWcRewritten, qp.qp->qp_num, uint64_t(entry().status), now))
      context.fail_receive(qp, wc, entry().status);
    return true;
  }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> completion_error() {
  return {FaultKind{
      .name = "completion_error",
      .what = "a work request fails with `status`",
      .past = "failed a work request",
      .present = "fails a work request",
      .takes = Takes::kQueuePairs,
      .ends = Ends::kAfterStrikes,
      .shared = {"status", "count", "queue", "qp", "peer", "opcode"},
      .needs = {{{"status"}, "status: REM_ACCESS_ERR"}},
      .examples = {{.parameters = "status: REM_ACCESS_ERR",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kWork}},
      .make = IN_LIBRARY(made<CompletionError>),
  }};
}

}  // namespace faultinject::faults
