// SPDX-License-Identifier: Apache-2.0
// What a fault can do that is worth a record on the board. Known to the creator's side and to the preloaded
// library.
#pragma once

#include <cstdint>

namespace faultinject {

enum class Effect : uint32_t {
  kNone,
  kQpToErr,           // a real queue pair was moved to ERR
  kQpConnectedDead,   // a queue pair reached RTS over a dead port and was cut off
  kPortErrDelivered,  // PORT_ERR was put before the program
  kPortActiveDelivered,
  kQpFatalDelivered,
  kWcWithheld,   // first completion of a queue pair withheld from the program
  kWcShown,      // an emulated RETRY_EXC_ERR (value: the status) was shown to the program
  kFlushShown,   // withheld flushes were released because the program moved the queue pair to ERR itself
  kWcRewritten,  // a successful completion was rewritten (value: the new status)
  kWrWithheld,   // a queue pair's first send WR was withheld (value: its bytes)
  kWrSeen,       // noop: a send WR passed by (value: its bytes)
  kNextSeen,   // the first completion that the program saw of a queue pair after something else of this list
               // (value: its status); after a move to ERR also the first one that failed
  kWcDropped,  // a completion was taken away (value: its status)
  kWrSpoiled,  // a send WR was made to fail (value: the status to come)
  kReordered,  // sends went in another order than they were posted in (value: how many)
  kPostRefused,  // value: the errno, as for the next three
  kPollRefused,
  kRegistrationRefused,
  kModifyRefused,
  kCreateRefused,
  kEventDelivered,  // an async event was put before the program (value: its type)
  kLinkDown,        // port_flap: an outage begins (value: which one, from 1)
  kLinkUp,
  kFrozen,  // the device answers no more
  kThawed,
  kGidHidden,        // an address of the port was lost (value: its row; UINT64_MAX: all)
  kCqDead,           // a completion queue shows nothing any more
  kDatagramLost,     // a send of an unreliable queue pair went nowhere (value: its bytes); the first 256 per
                     // process
  kDeviceGone,       // from here on the device carries out no command
  kCommandRefused,   // another command than those above failed (value: the errno)
  kCommandIgnored,   // modify_qp or destroy succeeded without touching the device
  kDescriptorEnded,  // the async descriptor polls as POLLERR
  kChannelEnded,     // the same of a completion channel (value: its descriptor)
  // Of the machine, by its own word afterwards.
  kKernelLinkDown,  // the interface is down, or has lost its carrier
  kQdiscSet,        // tc shows the qdisc
  kFlowRuleSet,     // the switch shows the rule
  kPciDeviceGone,   // sysfs has the device no more
  kCommandChecked,  // the user's own check says so
  kPutBack,         // and it is again as it was
};
const char* to_string(Effect effect);  // e.g. "QP moved to ERR"

}  // namespace faultinject
