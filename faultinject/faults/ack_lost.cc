// SPDX-License-Identifier: Apache-2.0
// ack_lost: a message is delivered at the peer, but the acknowledgement never comes back.
// The program sees: RETRY_EXC_ERR for a WR that the peer has received; for everything behind it WR_FLUSH_ERR,
// delivered or not. At once (`report: at_once`, so that a test need not wait) or when the retries of the
// queue pair are exhausted (`report: after_retries`). Strikes the first successful send completion after the
// trigger whose WR carried at least `min_bytes` to the peer, once per NIC; with `qp: all` every such
// completion until it is healed. Work already posted: whatever the provider delivered is delivered. Heal:
// nothing to undo.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

bool carries_data_away(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return true;
    default:
      return false;
  }
}

class AckLost : public Fault {
  enum Own { kMinBytes, kReport };  // as declared below

 public:
  using Fault::Fault;

  bool completing(Context& context, QueuePair& qp, const Sent* sent, ibv_wc& wc, uint64_t now) override {
    if (sent == nullptr || !hits(context, qp) || !qp.reliable || !selects(entry(), qp)) return true;
    if (done_in_ == round + 1 || !entry().takes_opcode(sent->opcode)) return true;
    if (sent->bytes < entry().own[kMinBytes] || !carries_data_away(sent->opcode)) return true;
    if (entry().selector == SelectorKind::kRandom) {
      // A few that would do are let pass, how many the seed says.
      if (skipped_ == 0) to_skip_ = context.choice(*this, qp) % 8;
      if (skipped_++ < to_skip_) return true;
    }
    const bool each = entry().selector == SelectorKind::kAll;
    if (!each) done_in_ = round + 1;
    if (!each && !claim_only_strike(context, *this)) return true;
    const bool shown = context.lose_ack(qp, *this, wc, now, entry().own[kReport] != 0);
    if (!each) context.round_is_over(*this, round);
    return shown;
  }

 private:
  uint32_t done_in_ = 0;  // the round, from 1
  uint64_t skipped_ = 0, to_skip_ = 0;
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> ack_lost() {
  return {FaultKind{
      .name = "ack_lost",
      .what = "data is delivered at the peer, but the sender gets RETRY_EXC_ERR",
      .past = "lost the acknowledgement of data that had arrived",
      .present = "loses the acknowledgement of data that arrives",
      .takes = Takes::kQueuePairs,
      .ends = Ends::kAfterStrikes,
      .all_until_healed = true,
      .shared = {"qp", "peer", "opcode"},
      .own = {own_bytes("min_bytes", 1024), own_choice("report", {"at_once", "after_retries"})},
      .examples = {{.messages_late = 2, .strikes = Strikes::kMessages}},
      .make = IN_LIBRARY(made<AckLost>),
  }};
}

}  // namespace faultinject::faults
