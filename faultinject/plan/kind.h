// The kinds of fault, and the few choices that both sides of the board know by number. Apart from plan.h,
// because the preloaded library knows kinds but no plans.
#pragma once

#include <cstdint>

namespace faultinject {

enum class FaultKind : uint32_t {
  kNoop,                 // seen and witnessed, nothing changed: the baseline of overhead
  kQpError,              // a queue pair goes to ERR, as after a fatal error of its own
  kPortDown,             // the port loses its link: traffic stops, PORT_ERR, query_port says DOWN
  kBlackhole,            // traffic to and from the port is lost; nobody is told
  kAckLost,              // delivered at the peer, but the sender sees RETRY_EXC_ERR
  kThrottle,             // the port carries at most `rate` in each direction
  kDelay,                // each send starts `delay` ± `jitter` later
  kPortFlap,             // the link goes down and comes up again, `count` times
  kDeviceFatal,          // DEVICE_FATAL: all queue pairs flush, no new objects
  kCqError,              // CQ_ERR: a completion queue shows nothing any more
  kDropCompletion,       // the work was done, its completion never comes
  kCompletionError,      // a work request fails with `status`
  kReorder,              // sends of different queue pairs go in another order
  kPostFail,             // posting refuses with `errno`
  kPollFail,             // polling refuses
  kRegFail,              // registering memory refuses with `errno`
  kConnectFail,          // ibv_modify_qp to RTR or RTS refuses with `errno`
  kGidChange,            // the port loses its addresses: GID_CHANGE, empty GID rows
  kAsyncEvent,           // an async event of any type, and nothing else
  kFreeze,               // the device stops answering and no call fails
  kDeviceRemoved,        // every command fails with EIO at once; the queue pairs die `window` later
  kDeviceInternalError,  // modify and destroy succeed without touching the device; the rest as above
  // Changes of the machine itself. The injector only triggers them: whoever made the board carries them out.
  kRealLinkDown,    // `ip link set … down`
  kRealTc,          // a netem qdisc: loss, rate, delay
  kRealOvsDrop,     // an OpenFlow rule that drops RoCE
  kRealPcieRemove,  // the PCI function is removed
  kRealSwitchPort,  // a command of the user's
};
constexpr uint32_t kFaultKinds = 27;

constexpr bool is_real(FaultKind kind) { return kind >= FaultKind::kRealLinkDown; }

// qp_error: whose end of the connection. blackhole: which packets, as the target's port sees them.
enum class Side : uint32_t { kLocal, kRemote, kBoth };
enum class Direction : uint32_t { kIn, kOut, kBoth };

// device_removed: what the async descriptor shows once the queue pairs are dead. Linux up to 5.6 closes its
// event queue (POLLERR, EIO); later ones queue a last DEVICE_FATAL and leave it open.
enum class DescriptorEnd : uint32_t { kPollErr, kFatal };

}  // namespace faultinject
