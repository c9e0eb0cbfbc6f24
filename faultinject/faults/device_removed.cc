// SPDX-License-Identifier: Apache-2.0
// device_removed: the device is gone for the programs that have it open, as after a PCIe error, a hot unplug
// or a fatal reset of its firmware. device_internal_error: its driver finds it dead and answers for it.
//
// The program sees, of device_removed: DEVICE_FATAL (unless `events: false`), `notice` later (0) EIO from
// every command: new objects and registrations, modify_qp, resize_cq, queries, and destroys too, unless
// RDMAV_ALLOW_DISASSOC_DESTROY is set. The queue pairs die only `window` (20 ms) after the first EIO: until
// then what they were given still leaves, and what is sent to them lands. `settle` (0) after their death the
// async descriptor polls as POLLERR for ever, and ibv_get_async_event fails with EIO (`end: pollerr`); or a
// last DEVICE_FATAL comes and the descriptor stays silent (`end: fatal`, Linux since 5.7).
// Of device_internal_error: DEVICE_FATAL; modify_qp to ERR or RESET and all destroys succeed, and the device
// does not hear of it; every other command fails with EIO; the async descriptor stays as it is.
//
// Posts succeed. No completion of after the first EIO is shown, not even a flush (`completions: window`:
// those of the window are, as hardware may write them like any other data; nothing is ever flushed). Peers:
// their work is done in the window, and runs into RETRY_EXC_ERR after it. Work already posted: carried out if
// it comes to its turn in the window. Heal: nothing comes back to those who had the device open; it can be
// opened anew, which fails with ENODEV before.
#include "faultinject/plan/plan.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include <errno.h>

#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class DeviceRemoved : public Fault {
  enum Own { kWindow, kCompletions, kSettle, kEnd, kNotice };  // as declared below; kNotice of the first only

 public:
  using Fault::Fault;
  void begin(Context& context, uint64_t now) override {
    if (!hits(context)) return;
    const OwnValues& own = entry().own;
    RemovalTimes times;
    times.window_ns = own[kWindow];
    times.late_completions = own[kCompletions] != 0;
    times.settle_ns = own[kSettle];
    times.end = DescriptorEnd(own[kEnd]);
    if (!internal_error()) times.notice_ns = own[kNotice];
    context.remove_device(*this, times, internal_error(), now);
    if (context.opening()) struck(context, Effect::kCommandRefused, 0, ENODEV, now);
  }

 protected:
  virtual bool internal_error() const { return false; }
};

class DeviceInternalError : public DeviceRemoved {
 public:
  using DeviceRemoved::DeviceRemoved;

 protected:
  bool internal_error() const override { return true; }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

using namespace std::chrono_literals;

static Complaint complaint_of_end(const FaultSpec& fault) {
  if (!fault.events && fault.value("end") == 1)
    return {"end", "'end: fatal' is an event, and 'events: false' has none"};
  return {};
}

std::vector<FaultKind> device_removed() {
  return {
      FaultKind{
          .name = "device_removed",
          .what = "every command fails with EIO at once; the queue pairs are dead `window` later",
          .past = "was removed",
          .present = "is removed",
          .takes = Takes::kPort,
          .ends = Ends::kNeverForJob,
          .whole_device = true,
          .shared = {"events"},
          .own = {own_time("window", 20ms), own_choice("completions", {"none", "window"}),
                  own_time("settle", 0ns), own_choice("end", {"pollerr", "fatal"}), own_time("notice", 0ns)},
          .check = [](const FaultSpec& fault) -> Complaint {
            if (!fault.events && fault.time("notice").count() > 0)
              return {"notice", "'notice' is the time from DEVICE_FATAL on, and 'events: false' has none"};
            return complaint_of_end(fault);
          },
          .make = IN_LIBRARY(made<DeviceRemoved>),
      },
      FaultKind{
          .name = "device_internal_error",
          .what = "as device_removed, but modify and destroy succeed without touching the device",
          .past = "had an internal error",
          .present = "has an internal error",
          .takes = Takes::kPort,
          .ends = Ends::kNeverForJob,
          .whole_device = true,
          .shared = {"events"},
          .own = {own_time("window", 20ms), own_choice("completions", {"none", "window"}),
                  own_time("settle", 0ns), own_choice("end", {"pollerr", "fatal", "none"})},
          .examples = {{}, {.suffix = "_none", .parameters = "end: none", .fence = Fence::kUnstopped}},
          .check = complaint_of_end,
          .make = IN_LIBRARY(made<DeviceInternalError>),
      }};
}

}  // namespace faultinject::faults
