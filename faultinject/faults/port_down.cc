// SPDX-License-Identifier: Apache-2.0
// port_down: the port loses its link.
// The program sees: on the port's node, IBV_EVENT_PORT_ERR (unless `events: false`) and IBV_PORT_DOWN from
// ibv_query_port (unless `query: false`); on every queue pair of the port, and on every one that is connected
// to it, what blackhole shows. Other nodes get no event, as behind a switch.
// Work already posted: lost unless it was delivered before t0. Heal: IBV_EVENT_PORT_ACTIVE, ACTIVE again, new
// queue pairs work; those that were cut end in RETRY_EXC_ERR even if the flap was shorter than their retries.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/faults/port_cut.h"
#include "faultinject/faults/port_show.h"

namespace faultinject {
namespace {

class PortDown : public PortCut {
 public:
  using PortCut::PortCut;

  void begin(Context& context, uint64_t now) override {
    show_link(context, entry(), true);
    PortCut::begin(context, now);
    const uint64_t told = monotonic_ns();
    if (!context.opening() && tell_link(context, *this, true, told)) took_effect(entry(), told);
  }

  void end(Context& context, uint64_t) override {
    show_link(context, entry(), false);
    tell_link(context, *this, false, monotonic_ns());
  }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> port_down() {
  return {FaultKind{
      .name = "port_down",
      .what = "the port loses its link: traffic stops, PORT_ERR, query_port returns DOWN",
      .past = "lost its link",
      .present = "loses its link",
      .takes = Takes::kPort,
      .shared = {"events", "query"},
      .examples = {{}, {.suffix = "_silent", .parameters = "events: false, query: false"}},
      .make = IN_LIBRARY(made<PortDown>),
  }};
}

}  // namespace faultinject::faults
