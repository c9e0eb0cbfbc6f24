// device_removed: the device is gone for the programs that have it open, as after a PCIe error, a hot unplug or
// a fatal reset of its firmware. device_internal_error: its driver finds it dead and answers for it.
//
// The program sees, of device_removed: DEVICE_FATAL (unless `events: false`), `notice` later (0) EIO from every
// command: new objects and registrations, modify_qp, queries, and destroys too, unless
// RDMAV_ALLOW_DISASSOC_DESTROY is set. The queue pairs die only `window` (20 ms) after the first EIO: until
// then what they were given still leaves, and what is sent to them lands. `settle` (0) after their death the
// async descriptor polls as POLLERR for ever, and ibv_get_async_event fails with EIO (`end: pollerr`); or a
// last DEVICE_FATAL comes and the descriptor stays silent (`end: fatal`, Linux since 5.7).
// Of device_internal_error: DEVICE_FATAL; modify_qp to ERR or RESET and all destroys succeed, and the device
// does not hear of it; every other command fails with EIO; the async descriptor stays as it is.
//
// Posts succeed. No completion of after the first EIO is shown, not even a flush (`completions: window`: those
// of the window are, as hardware may write them like any other data; nothing is ever flushed).
// Peers: their work is done in the window, and runs into RETRY_EXC_ERR after it.
// Work already posted: carried out if it comes to its turn in the window.
// Heal: nothing comes back to those who had the device open; it can be opened anew, which fails with ENODEV
// before.
#include <errno.h>

#include "faultinject/faults/kinds.h"
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class DeviceRemoved : public Fault {
 public:
  using Fault::Fault;
  void begin(Context& context, uint64_t now) override {
    if (!hits(context)) return;
    context.remove_device(*this, now);
    if (context.opening()) struck(context, Effect::kCommandRefused, 0, ENODEV, now);
  }
};

}  // namespace

std::unique_ptr<Fault> make_device_removed(FaultEntry& entry) {
  return std::make_unique<DeviceRemoved>(entry);
}

}  // namespace faultinject
