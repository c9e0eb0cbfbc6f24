// Every kind of fault, one line each. A new one is added here, in make_fault() and in the plan's list.
#pragma once

#include <memory>

#include "faultinject/faults/fault.h"
#include "faultinject/plan/kind.h"

namespace faultinject {

std::unique_ptr<Fault> make_noop(FaultEntry& entry);
std::unique_ptr<Fault> make_qp_error(FaultEntry& entry);
std::unique_ptr<Fault> make_port_down(FaultEntry& entry);
std::unique_ptr<Fault> make_blackhole(FaultEntry& entry);
std::unique_ptr<Fault> make_ack_lost(FaultEntry& entry);
std::unique_ptr<Fault> make_throttle(FaultEntry& entry);
std::unique_ptr<Fault> make_delay(FaultEntry& entry);
std::unique_ptr<Fault> make_port_flap(FaultEntry& entry);
std::unique_ptr<Fault> make_device_fatal(FaultEntry& entry);
std::unique_ptr<Fault> make_cq_error(FaultEntry& entry);
std::unique_ptr<Fault> make_drop_completion(FaultEntry& entry);
std::unique_ptr<Fault> make_completion_error(FaultEntry& entry);
std::unique_ptr<Fault> make_reorder(FaultEntry& entry);
std::unique_ptr<Fault> make_post_fail(FaultEntry& entry);
std::unique_ptr<Fault> make_poll_fail(FaultEntry& entry);
std::unique_ptr<Fault> make_reg_fail(FaultEntry& entry);
std::unique_ptr<Fault> make_connect_fail(FaultEntry& entry);
std::unique_ptr<Fault> make_gid_change(FaultEntry& entry);
std::unique_ptr<Fault> make_async_event(FaultEntry& entry);
std::unique_ptr<Fault> make_freeze(FaultEntry& entry);
std::unique_ptr<Fault> make_device_removed(FaultEntry& entry);  // device_internal_error, too
std::unique_ptr<Fault> make_outside(FaultEntry& entry);         // all real_* kinds

}  // namespace faultinject
