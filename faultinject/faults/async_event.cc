// SPDX-License-Identifier: Apache-2.0
// async_event: an async event of any type, and nothing else: the device tells of something that is not so.
// Events of queue pairs (QP_FATAL, COMM_EST, …), of completion queues (CQ_ERR) and of shared receive queues
// (SRQ_ERR, SRQ_LIMIT_REACHED) go to the selected queue pair, or to its send completion queue or shared
// receive queue; events of a port (PORT_ERR, LID_CHANGE, …) come once for each port of the target;
// DEVICE_FATAL comes once. The program sees: the event. Work already posted: untouched. Heal: nothing to
// undo.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/faults/qp_choice.h"
#include "faultinject/plan/event_element.h"

namespace faultinject {
namespace {

class QpEvent : public QpStrike {
 public:
  using QpStrike::QpStrike;

  bool has_target(const QueuePair& qp) const override {
    switch (element_of(ibv_event_type(entry().event_type))) {
      case EventElement::kCompletionQueue:
        return qp.send_cq != nullptr;
      case EventElement::kSharedReceiveQueue:
        return qp.qp->srq != nullptr;
      default:
        return true;
    }
  }

  bool strike(Context& context, QueuePair& qp, uint64_t now) override {
    ibv_async_event event{};
    event.event_type = ibv_event_type(entry().event_type);
    switch (element_of(event.event_type)) {
      case EventElement::kCompletionQueue:
        event.element.cq = qp.send_cq->cq;
        break;
      case EventElement::kSharedReceiveQueue:
        event.element.srq = qp.qp->srq;
        break;
      default:
        event.element.qp = qp.qp;
    }
    context.push_event(event);
    struck(context, Effect::kEventDelivered, qp.qp->qp_num, event.event_type, now);
    return true;
  }
};

class DeviceEvent : public Fault {
 public:
  using Fault::Fault;
  // A round is over when every process with a NIC of the target has had its event.
  bool strikes_in_each_process() const override { return true; }

  void begin(Context& context, uint64_t now) override {
    if (!hits(context)) return;
    const bool of_port = element_of(ibv_event_type(entry().event_type)) == EventElement::kPort;
    for (uint32_t port = 1; port <= (of_port ? context.ports() : 1); port++) {
      if (of_port && entry().port != 0 && entry().port != port) continue;
      ibv_async_event event{};
      event.event_type = ibv_event_type(entry().event_type);
      if (of_port) event.element.port_num = int(port);
      context.push_event(event);
      struck(context, Effect::kEventDelivered, 0, event.event_type, now);
    }
    context.round_is_over(*this, round);
  }
};

std::unique_ptr<Fault> make_async_event(FaultEntry& entry) {
  switch (element_of(ibv_event_type(entry.event_type))) {
    case EventElement::kQueuePair:
    case EventElement::kCompletionQueue:
    case EventElement::kSharedReceiveQueue:
      return std::make_unique<QpEvent>(entry);
    default:
      return std::make_unique<DeviceEvent>(entry);
  }
}

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> async_event() {
  return {FaultKind{
      .name = "async_event",
      .what = "raises an async event of any type; nothing else happens",
      .past = "reported an async event without a cause",
      .present = "reports an async event without a cause",
      .ends = Ends::kAfterStrikes,
      .shared = {"event", "qp", "peer"},
      .needs = {{{"event"}, "event: PORT_ERR"}},
      .examples = {{.parameters = "event: LID_CHANGE", .harm = Harm::kHarmless}},
      .make = IN_LIBRARY(make_async_event),
  }};
}

}  // namespace faultinject::faults
