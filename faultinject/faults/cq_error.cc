// SPDX-License-Identifier: Apache-2.0
// cq_error: a completion queue fails, as after an overrun.
// The program sees: IBV_EVENT_CQ_ERR for the completion queue of the selected queue pair (`queue: send` or
// `recv`), IBV_EVENT_QP_FATAL for every queue pair that completes there, and polls of it that find nothing.
// Work already posted: its queue pairs go to ERR; what would be completed there is lost, what completes
// elsewhere flushes. Heal: the queue shows again what comes from then on; its queue pairs stay in ERR.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/faults/qp_choice.h"

namespace faultinject {
namespace {

class CqError : public QpStrike {
 public:
  using QpStrike::QpStrike;
  bool over_when_struck() const override { return false; }  // it lasts

  bool has_target(const QueuePair& qp) const override {
    const CompletionQueue* cq = queue_of(qp);
    return cq != nullptr && !cq->is_dead_by(id());
  }

  bool strike(Context& context, QueuePair& chosen, uint64_t now) override {
    CompletionQueue* cq = queue_of(chosen);
    if (!has_target(chosen)) return false;  // another queue pair's strike has killed it
    context.kill(*cq, *this);
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = cq->cq;
    context.push_event(event);
    struck(context, Effect::kCqDead, chosen.qp->qp_num, 0, now);
    context.each_qp([&](QueuePair& qp) {
      if (qp.send_cq == cq || qp.recv_cq == cq) context.strike(qp, *this, now, true, true);
    });
    return true;
  }

  void end(Context& context, uint64_t) override {
    context.each_cq([&](CompletionQueue& cq) { context.revive(cq, *this); });
  }

 private:
  CompletionQueue* queue_of(const QueuePair& qp) const {
    return entry().receive != 0 ? qp.recv_cq : qp.send_cq;
  }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> cq_error() {
  return {FaultKind{
      .name = "cq_error",
      .what = "CQ_ERR: a completion queue delivers no more completions",
      .past = "lost a completion queue to an error",
      .present = "loses a completion queue to an error",
      .takes = Takes::kQueuePairs,
      .whole_device = true,
      .opcode_chooses = true,
      .shared = {"queue", "qp", "peer", "opcode"},
      .examples = {{.suffix = "_send", .parameters = "queue: send, qp: busiest", .messages_late = 2},
                   {.suffix = "_recv", .parameters = "queue: recv, qp: busiest", .messages_late = 2}},
      .make = IN_LIBRARY(made<CqError>),
  }};
}

}  // namespace faultinject::faults
