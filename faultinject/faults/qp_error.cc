// qp_error: a queue pair of the target fails by itself, as after a fatal error in the NIC.
// The program sees: IBV_EVENT_QP_FATAL, then WR_FLUSH_ERR for all that was outstanding. Its peer is not
// touched: the peer's sends run into RETRY_EXC_ERR by the provider's own timers.
// Work already posted: flushed by the provider; part of it may have been delivered. Heal: nothing to undo.
#include <algorithm>
#include <vector>

#include "faultinject/faults/kinds.h"
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class QpError : public Fault {
 public:
  using Fault::Fault;

  void begin(Context& context, uint64_t now) override {
    done_ = !hits(context);
    if (done_) return;
    std::vector<QueuePair*> candidates;
    const bool by_traffic = entry().selector == SelectorKind::kBusiest || entry().selector == SelectorKind::kRandom;
    context.each_qp([&](QueuePair& qp) {
      if (qp.reliable && qp.connected && qp.life == QueuePair::Life::kWhole && selects(entry(), qp) &&
          (!by_traffic || qp.posts > 0))
        candidates.push_back(&qp);
    });
    if (candidates.empty()) return;  // then the next one that posts
    if (!by_traffic) {
      for (QueuePair* qp : candidates) done_ |= context.strike(*qp, *this, now, true);
      return;
    }
    std::sort(candidates.begin(), candidates.end(), [](auto* a, auto* b) { return a->index < b->index; });
    // By bytes: a queue pair that only carries a heartbeat may well have posted last.
    QueuePair* chosen = *std::max_element(candidates.begin(), candidates.end(), [](auto* a, auto* b) {
      return a->bytes_posted != b->bytes_posted ? a->bytes_posted < b->bytes_posted : a->last_post_ns < b->last_post_ns;
    });
    if (entry().selector == SelectorKind::kRandom)
      chosen = candidates[context.choice(*this, *candidates[0]) % candidates.size()];
    strike_once(context, *chosen, now);
  }

  void posting(Context& context, QueuePair& qp, const Sent&, uint64_t now) override {
    if (done_ || !qp.reliable || !qp.connected || !selects(entry(), qp)) return;
    if (entry().selector == SelectorKind::kBusiest || entry().selector == SelectorKind::kRandom) {
      strike_once(context, qp, now);
    } else {
      done_ = context.strike(qp, *this, now, true);
    }
  }

 private:
  void strike_once(Context& context, QueuePair& qp, uint64_t now) {
    done_ = true;
    if (claim_nic(context, *this)) context.strike(qp, *this, now, true);
  }

  bool done_ = false;
};

}  // namespace

std::unique_ptr<Fault> make_qp_error(FaultEntry& entry) { return std::make_unique<QpError>(entry); }

}  // namespace faultinject
