// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/responder/receive_signal.h"

#include "harness/vhca/base/pause_point.h"
#include "harness/vhca/fabric/process_table.h"

namespace vhca {

void announce_receive(Fabric& fabric, const QpSlot& qp, bool solicited, unsigned completions) {
  CqSlot& cq = fabric.completion_queues[qp.recv_cq];
  if (completions != 0) count_receives(cq, completions);
  mark_ready(cq, qp.recv_cq_bit);
  const bool overrun = cq.overrun.load(std::memory_order_relaxed) == 1;
  if (!take_arm(cq, solicited, kEventPending) && !overrun) return;
  VHCA_PAUSE_POINT(disarmed);
  ring_doorbell(fabric, qp.owner.load());
}

}  // namespace vhca
