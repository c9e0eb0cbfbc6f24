// The kinds of fault. Apart from plan.h, because the preloaded library knows kinds but no plans.
#pragma once

#include <cstdint>

namespace faultinject {

enum class FaultKind : uint32_t {
  kNoop,       // seen and witnessed, nothing changed: the baseline of overhead
  kQpError,    // a local queue pair goes to ERR, as after a fatal error of its own
  kPortDown,   // the port loses its link: traffic stops, PORT_ERR, query_port says DOWN
  kBlackhole,  // traffic to and from the port is lost; nobody is told
  kAckLost,    // delivered at the peer, but the sender sees RETRY_EXC_ERR
  kThrottle,   // the port carries at most `rate` in each direction
  kDelay,      // each send starts `delay` ± `jitter` later
};
constexpr uint32_t kFaultKinds = 7;

}  // namespace faultinject
