// real_*: changes of the machine itself, which whoever made the board carries out and reports
// (BoardHost::report). A process only lets its sends and events count for their triggers.
// The program sees: what the machine then does, nothing of the injector's.
#include "faultinject/faults/kinds.h"

namespace faultinject {

std::unique_ptr<Fault> make_outside(FaultEntry& entry) { return std::make_unique<Fault>(entry); }

}  // namespace faultinject
