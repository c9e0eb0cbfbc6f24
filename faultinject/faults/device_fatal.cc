// SPDX-License-Identifier: Apache-2.0
// device_fatal: the device fails as a whole, as after a firmware assertion or a PCIe error.
// The program sees: IBV_EVENT_DEVICE_FATAL (unless `events: false`), WR_FLUSH_ERR for all that was
// outstanding and for all that is posted later, IBV_PORT_DOWN from ibv_query_port (unless `query: false`).
// New queue pairs, completion queues and registrations fail with EIO, and so does every ibv_modify_qp but to
// RESET and ERR. Its peers run into RETRY_EXC_ERR by their provider's own timers. Work already posted:
// flushed by the provider; part of it may have been delivered. Heal: new objects can be made and used, as
// after a reset of the device; its queue pairs stay in ERR (RESET makes them usable).
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include <errno.h>

#include "faultinject/faults/port_show.h"

namespace faultinject {
namespace {

class DeviceFatal : public Fault {
 public:
  using Fault::Fault;

  void begin(Context& context, uint64_t now) override {
    if (!hits(context)) return;
    show_link(context, entry(), true);
    context.each_qp([&](QueuePair& qp) { context.strike(qp, *this, now, false, true); });
    if (context.opening() || entry().events == 0) return;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_DEVICE_FATAL;
    context.push_event(event);
    struck(context, Effect::kEventDelivered, 0, IBV_EVENT_DEVICE_FATAL, monotonic_ns());
  }

  int refuse(Context& context, const Call& call, uint64_t now) override {
    if (!hits(context)) return 0;
    switch (call.what) {
      case Call::What::kCreate:
        struck(context, Effect::kCreateRefused, 0, EIO, now);
        return EIO;
      case Call::What::kRegister:
        struck(context, Effect::kRegistrationRefused, 0, EIO, now);
        return EIO;
      case Call::What::kModify:
        if ((call.mask & IBV_QP_STATE) != 0 &&
            (call.attributes->qp_state == IBV_QPS_ERR || call.attributes->qp_state == IBV_QPS_RESET))
          return 0;
        struck(context, Effect::kModifyRefused, call.qp->qp->qp_num, EIO, now);
        return EIO;
      default:
        return 0;
    }
  }

  void end(Context& context, uint64_t) override { show_link(context, entry(), false); }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> device_fatal() {
  return {FaultKind{
      .name = "device_fatal",
      .what = "DEVICE_FATAL: all queue pairs flush, and no objects can be created",
      .past = "failed as a whole",
      .present = "fails as a whole",
      .takes = Takes::kPort,
      .whole_device = true,
      .shared = {"events", "query"},
      .make = IN_LIBRARY(made<DeviceFatal>),
  }};
}

}  // namespace faultinject::faults
