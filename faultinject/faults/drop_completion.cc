// SPDX-License-Identifier: Apache-2.0
// drop_completion: the work was done, and its completion never comes; `count` of them, on the send side or
// (`queue: recv`) on the receive side.
// The program sees: nothing for that WR; the completions behind it come as ever. Its peer sees nothing
// unusual. Work already posted: done. Heal: no more are taken away; those that were do not come back.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class DropCompletion : public Fault {
 public:
  using Fault::Fault;

  bool completing(Context& context, QueuePair& qp, const Sent* sent, ibv_wc& wc, uint64_t now) override {
    if (entry().receive != 0 ||
        (entry().opcodes != 0 && (sent == nullptr || !entry().takes_opcode(sent->opcode))))
      return true;
    return !drop(context, qp, wc, now);
  }

  bool received(Context& context, QueuePair& qp, ibv_wc& wc, uint64_t now) override {
    return entry().receive == 0 || !drop(context, qp, wc, now);
  }

 private:
  bool drop(Context& context, QueuePair& qp, const ibv_wc& wc, uint64_t now) {
    return hits(context, qp) && selects(entry(), qp) &&
           strike_counted(context, Effect::kWcDropped, qp.qp->qp_num, wc.status, now);
  }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> drop_completion() {
  return {FaultKind{
      .name = "drop_completion",
      .what = "work is done, but its completion never comes",
      .past = "lost a completion of work that was done",
      .present = "loses a completion of work that was done",
      .ends = Ends::kAfterStrikes,
      .shared = {"count", "queue", "qp", "peer", "opcode"},
      .examples = {{.suffix = "_send",
                    .parameters = "queue: send",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kWork},
                   {.suffix = "_recv",
                    .parameters = "queue: recv",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kReceives}},
      .make = IN_LIBRARY(made<DropCompletion>),
  }};
}

}  // namespace faultinject::faults
