// SPDX-License-Identifier: Apache-2.0
// A port that the program sees go down and come back: what ibv_query_port says, and the async events. What
// becomes of its traffic is another matter.
#pragma once

#include "faultinject/preload/fault.h"
#include "faultinject/preload/context.h"

namespace faultinject {

// What ibv_query_port says on the fault's own NICs (unless `query: false`).
inline void show_link(Context& context, const FaultEntry& entry, bool down) {
  if (entry.hits(context.node(), context.nic()) && entry.query != 0) context.show_port_down(down, entry.port);
}

// Is there such a port on this NIC?
inline bool has_port(const Context& context, const FaultEntry& entry) {
  return entry.hits(context.node(), context.nic()) && entry.port <= context.ports();
}

// PORT_ERR or PORT_ACTIVE for each port of the target on this NIC (unless `events: false`). True if any was
// delivered.
inline bool tell_link(Context& context, const Fault& fault, bool down, uint64_t now, bool recorded = true) {
  const FaultEntry& entry = fault.entry();
  if (!has_port(context, entry) || entry.events == 0) return false;
  for (uint32_t port = 1; port <= context.ports(); port++) {
    if (entry.port != 0 && entry.port != port) continue;
    ibv_async_event event{};
    event.event_type = down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE;
    event.element.port_num = int(port);
    context.push_event(event);
    if (recorded)
      context.witness(fault, down ? Effect::kPortErrDelivered : Effect::kPortActiveDelivered, 0, port, now);
  }
  return true;
}

}  // namespace faultinject
