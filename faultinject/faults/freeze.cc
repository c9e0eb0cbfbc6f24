// SPDX-License-Identifier: Apache-2.0
// freeze: the device stops answering, and no call fails.
// The program sees: posts that succeed until the send queue is full, polls that find nothing, no events. What
// asks something of the device (modify_qp, query_qp, destroy_qp, destroy_cq, resize_cq, making queue pairs
// and completion queues, registering memory) does not return before the heal or the end of the process. Its
// peers get no answer: their sends wait, and end in RETRY_EXC_ERR when their retries are exhausted. Work
// already posted: what the provider has, passes; its completions are shown after the heal. Heal: calls that
// wait return, what was posted goes in order, and completions and events come, those of other faults
// included.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/faults/stall.h"

namespace faultinject {
namespace {

class Freeze : public Stall {
 public:
  using Stall::Stall;
  bool reaches_peers() const override { return true; }

  void begin(Context& context, uint64_t now) override {
    blocked(context, now);
    if (!hits(context)) return;
    context.freeze(true);
    struck(context, Effect::kFrozen, 0, 0, now);
  }

  void end(Context& context, uint64_t now) override {
    if (!hits(context)) return;
    context.freeze(false);
    context.witness(*this, Effect::kThawed, 0, 0, now);
  }

 protected:
  bool stalls(const Context& context, const QueuePair& qp) const override { return hits(context, qp); }
  // The device itself keeps no time while it is frozen.
  bool gives_up(const Context& context, const QueuePair&) const override { return !hits(context); }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> freeze() {
  return {FaultKind{
      .name = "freeze",
      .what = "the device stops responding, but no call fails",
      .past = "stopped responding",
      .present = "stops responding",
      .takes = Takes::kPort,
      .whole_device = true,
      .examples = {{.parameters = "for: 300 ms", .harm = Harm::kMayBreak},
                   {.suffix = "_for_ever", .fence = Fence::kNoAnswer}},
      .make = IN_LIBRARY(made<Freeze>),
  }};
}

}  // namespace faultinject::faults
