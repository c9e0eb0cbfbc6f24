// delay: every send WR of the port (or those of some opcodes) starts `delay` ± `jitter` later, in order
// within its queue pair. The program sees: later completions, on both sides. Kept-back work fills its send
// queue as posted work would. Work already posted: untouched. Heal: what is kept back goes at once, in order.
#include <algorithm>

#include "faultinject/faults/kinds.h"
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class Delay : public Fault {
 public:
  explicit Delay(FaultEntry& entry) : Fault(entry), random_(entry.seed) {}

  bool holds(const Context& context, const QueuePair& qp) const override { return hits(context, qp); }

  void held(Context& context, QueuePair& qp, HeldWr& wr, uint64_t now) override {
    if (!entry().takes_opcode(wr.wr.opcode)) return;  // in order behind those that are delayed
    uint64_t wait = entry().delay_ns;
    if (entry().jitter_ns != 0) {
      if (!seeded_) random_ = context.choice(*this, qp), seeded_ = true;
      random_ = mix(random_);
      wait = wait - entry().jitter_ns + random_ % (2 * entry().jitter_ns + 1);
    }
    wr.not_before_ns = std::max(wr.not_before_ns, now + wait);
    if (witnessed_ == qp.serial) return;
    witnessed_ = qp.serial;
    took_effect(entry(), now);
    context.witness(*this, Effect::kWrWithheld, qp.qp->qp_num, wr.bytes, now);
  }

  uint64_t may_go_at(Context&, QueuePair&, HeldWr& wr, uint64_t) override { return wr.not_before_ns; }

 private:
  uint64_t random_;
  bool seeded_ = false;
  uint64_t witnessed_ = 0;
};

}  // namespace

std::unique_ptr<Fault> make_delay(FaultEntry& entry) { return std::make_unique<Delay>(entry); }

}  // namespace faultinject
