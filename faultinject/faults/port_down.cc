// port_down: the port loses its link.
// The program sees: on the port's node, IBV_EVENT_PORT_ERR (unless `events: false`) and IBV_PORT_DOWN from
// ibv_query_port (unless `query: false`); on every queue pair of the port, and on every one that is connected
// to it, what blackhole shows. Other nodes get no event, as behind a switch.
// Work already posted: lost unless it was delivered before t0. Heal: IBV_EVENT_PORT_ACTIVE, ACTIVE again, new
// queue pairs work; those that were cut end in RETRY_EXC_ERR even if the flap was shorter than their retries.
#include "faultinject/faults/kinds.h"
#include "faultinject/faults/port_cut.h"

namespace faultinject {
namespace {

class PortDown : public PortCut {
 public:
  using PortCut::PortCut;

  void begin(Context& context, uint64_t now) override {
    if (hits(context) && entry().query != 0) context.show_port_down(true);
    PortCut::begin(context, now);
    if (!context.opening()) tell(context, IBV_EVENT_PORT_ERR, Effect::kPortErrDelivered);
  }

  void end(Context& context, uint64_t) override {
    if (hits(context) && entry().query != 0) context.show_port_down(false);
    tell(context, IBV_EVENT_PORT_ACTIVE, Effect::kPortActiveDelivered);
  }

 private:
  void tell(Context& context, ibv_event_type type, Effect effect) {
    if (!hits(context) || entry().events == 0) return;
    const uint64_t now = monotonic_ns();
    if (effect == Effect::kPortErrDelivered) took_effect(entry(), now);
    for (uint32_t port = 1; port <= context.ports(); port++) {
      ibv_async_event event{};
      event.event_type = type;
      event.element.port_num = int(port);
      context.push_event(event);
      context.witness(*this, effect, 0, port, now);
    }
  }
};

}  // namespace

std::unique_ptr<Fault> make_port_down(FaultEntry& entry) { return std::make_unique<PortDown>(entry); }

}  // namespace faultinject
