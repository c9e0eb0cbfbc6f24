// SPDX-License-Identifier: Apache-2.0
// delay: every send WR of the port (or those of some opcodes) starts `delay` ± `jitter` later, in order
// within its queue pair. The program sees: later completions, on both sides. Kept-back work fills its send
// queue as posted work would. Work already posted: untouched. Heal: what is kept back goes at once, in order.
#include "faultinject/plan/plan.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include <algorithm>

#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class Delay : public Fault {
  enum Own { kJitter };  // as declared below

 public:
  explicit Delay(FaultEntry& entry) : Fault(entry), random_(entry.seed) {}

  void begin(Context&, uint64_t) override { witnessed_ = 0; }

  bool holds(const Context& context, const QueuePair& qp) const override { return hits(context, qp); }

  void held(Context& context, QueuePair& qp, HeldWr& wr, uint64_t now) override {
    if (!entry().takes_opcode(wr.wr.opcode)) return;  // in order behind those that are delayed
    uint64_t wait = entry().delay_ns;
    if (entry().own[kJitter] != 0) {
      if (!seeded_) random_ = context.choice(*this, qp), seeded_ = true;
      random_ = mix(random_);
      wait = wait - entry().own[kJitter] + random_ % (2 * entry().own[kJitter] + 1);
    }
    wr.not_before_ns = std::max(wr.not_before_ns, now + wait);
    if (wait == 0) return;  // as much jitter as delay
    if (witnessed_ == qp.serial) return;
    witnessed_ = qp.serial;
    took_effect(entry(), now);
    context.witness(*this, Effect::kWrWithheld, qp.qp->qp_num, wr.bytes, now);
  }

  uint64_t may_go_at(Context&, QueuePair&, HeldWr& wr, uint64_t) override { return wr.not_before_ns; }

 private:
  uint64_t random_;
  bool seeded_ = false;
  uint64_t witnessed_ = 0;  // one record per queue pair and round
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

using namespace std::chrono_literals;

std::vector<FaultKind> delay() {
  return {FaultKind{
      .name = "delay",
      .what = "each send starts `delay` ± `jitter` later",
      .past = "delayed its sends",
      .present = "delays its sends",
      .takes = Takes::kSpeed,
      .shared = {"delay", "peer", "opcode"},
      .own = {own_time("jitter", 0ns)},
      .needs = {{{"delay"}, "delay: 1 ms"}},
      .examples = {{.parameters = "delay: 2 ms, jitter: 1 ms",
                    .harm = Harm::kHarmless,
                    .messages_late = 2,
                    .strikes = Strikes::kWork}},
      .check = [](const FaultSpec& fault) -> Complaint {
        if (fault.delay.count() == 0) return {"delay", "'delay' must be longer than 0"};
        if (fault.time("jitter") > fault.delay) return {"jitter", "'jitter' must not be larger than 'delay'"};
        return {};
      },
      .make = IN_LIBRARY(made<Delay>),
  }};
}

}  // namespace faultinject::faults
