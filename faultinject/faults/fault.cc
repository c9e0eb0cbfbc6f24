#include "faultinject/faults/fault.h"

#include "faultinject/faults/kinds.h"
#include "faultinject/preload/context.h"
#include "faultinject/preload/queue_pair.h"

namespace faultinject {

bool Fault::hits(const Context& context) const { return entry_.hits(context.node(), context.nic()); }

bool Fault::hits(const Context& context, const QueuePair& qp) const {
  return hits(context) || (reaches_peers() && qp.peer && entry_.hits(qp.peer->node, qp.peer->nic));
}

bool selects(const FaultEntry& entry, const QueuePair& qp) {
  return entry.selector != SelectorKind::kIndex || (qp.reliable && qp.index == entry.qp_index);
}

bool claim_nic(Context& context, const Fault& fault) {
  return claim(context.board(), uint64_t(fault.id()) << 32 | uint64_t(context.node()) << 16 | context.nic());
}

std::unique_ptr<Fault> make_fault(FaultEntry& entry) {
  switch (FaultKind(entry.kind)) {
    case FaultKind::kNoop: return make_noop(entry);
    case FaultKind::kQpError: return make_qp_error(entry);
    case FaultKind::kPortDown: return make_port_down(entry);
    case FaultKind::kBlackhole: return make_blackhole(entry);
    case FaultKind::kAckLost: return make_ack_lost(entry);
    case FaultKind::kThrottle: return make_throttle(entry);
    case FaultKind::kDelay: return make_delay(entry);
  }
  return nullptr;
}

}  // namespace faultinject
