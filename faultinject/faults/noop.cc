// SPDX-License-Identifier: Apache-2.0
// noop: looks at every send WR of its target and changes nothing. It is the template for new faults and the
// baseline of overhead: what it costs is what any fault costs before it does anything.
// The program sees: nothing. Work already posted: untouched.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include <unordered_set>

#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class Noop : public Fault {
 public:
  using Fault::Fault;

  void begin(Context&, uint64_t) override {
    last_seen_ = 0;
    seen_.clear();
  }

  void posting(Context& context, QueuePair& qp, Sent& sent, uint64_t now) override {
    if (qp.serial == last_seen_ || !hits(context, qp) || !selects(entry(), qp) ||
        !entry().takes_opcode(sent.opcode))
      return;
    last_seen_ = qp.serial;
    if (!seen_.insert(qp.serial).second) return;
    took_effect(entry(), now);
    context.witness(*this, Effect::kWrSeen, qp.qp->qp_num, sent.bytes, now);
  }

 private:
  uint64_t last_seen_ = 0;
  std::unordered_set<uint64_t> seen_;  // one record per queue pair and round, not per WR
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> noop() {
  return {FaultKind{
      .name = "noop",
      .what = "changes nothing, but its effects are recorded: for measuring the overhead",
      .past = "was touched without effect",
      .present = "is touched without effect",
      .shared = {"qp", "peer", "opcode"},
      .examples = {{.harm = Harm::kNone, .messages_late = 2, .strikes = Strikes::kWork}},
      .make = IN_LIBRARY(made<Noop>),
  }};
}

}  // namespace faultinject::faults
