// blackhole: all packets from and to the port are lost, and nobody is told: the port stays ACTIVE.
// The program sees: silence, then RETRY_EXC_ERR on the first outstanding send when the retries of that queue
// pair (its own timeout and retry_cnt) are exhausted, WR_FLUSH_ERR for the rest.
// Work already posted: lost unless it was delivered before t0. Heal: new queue pairs work; those that were cut
// end as above.
#include "faultinject/faults/kinds.h"
#include "faultinject/faults/port_cut.h"

namespace faultinject {

std::unique_ptr<Fault> make_blackhole(FaultEntry& entry) { return std::make_unique<PortCut>(entry); }

}  // namespace faultinject
