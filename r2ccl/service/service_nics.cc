// SPDX-License-Identifier: Apache-2.0
// What this process's NICs say of themselves, or fail to do, and which channels have to know.
#include <sys/epoll.h>

#include <memory>

#include "r2ccl/base/clock.h"
#include "r2ccl/base/log.h"
#include "r2ccl/service/service.h"

namespace r2ccl {
namespace {

constexpr uint64_t kPortLookNs = 500 * kNsPerMs;

}  // namespace

void Service::read_async_events(size_t nic, const Tick& tick) {
  verbs::Device& device = context_.devices[nic];
  ibv_async_event event;
  while (ibv_get_async_event(device.context(), &event) == 0) {
    const ibv_event_type type = event.event_type;
    const ibv_qp* pair = event.element.qp;  // after the acknowledgement only to be compared, as the next
    const ibv_cq* queue = event.element.cq;
    ibv_ack_async_event(&event);
    switch (type) {
      case IBV_EVENT_PORT_ERR:
        if (event.element.port_num == device.port()) port_changed(nic, false, tick);
        break;
      case IBV_EVENT_DEVICE_FATAL:
        ++context_.device_fatals[nic];
        port_changed(nic, false, tick);
        for (Entry& entry : entries_) with(*entry.channel, [&] { entry.channel->device_fatal(int(nic)); });
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        queue_pair_failed(pair, type, tick);
        break;
      case IBV_EVENT_CQ_ERR:
        for (Entry& entry : entries_)
          with(*entry.channel, [&] { entry.channel->completion_queue_failed(queue, tick); });
        break;
      case IBV_EVENT_PORT_ACTIVE:
        if (event.element.port_num == device.port()) port_changed(nic, true, tick);
        break;
      default:
        R2_INFO("NET/R2CCL: NIC %s: %s", device.name().c_str(), ibv_event_type_str(type));
    }
  }
}

// It polls so for ever, and reads as EIO.
void Service::device_gone(size_t nic, const Tick& tick) {
  if (context_.device_gone[nic]) return;
  context_.device_gone[nic] = true;
  const verbs::Device& device = context_.devices[nic];
  for (const int fd : {device.context()->async_fd, device.removal_fd()})
    if (fd >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  R2_WARN(
      "NET/R2CCL: NIC %s of %s is gone: its device was removed, or did not recover from a "
      "reset; it is not used any more",
      device.name().c_str(), context_.host.c_str());
  if (!context_.nic_down[nic]) {
    context_.nic_down[nic] = true;
    context_.nic_down_at[nic] = tick.now;
    context_.capacities.forget(nic);
    trace::Writer::instance().emit(trace::EventType::kNicDown, uint16_t(nic), 0,
                                   uint64_t(trace::DetectedBy::kEvent));
  }
  context_.nic_unusable[nic] = true;  // see leave_unusable_nics()
  context_.workers->let_go(int(nic));
}

void Service::port_changed(size_t nic, bool up, const Tick& tick) {
  if (context_.nic_down[nic] == !up) return;
  context_.nic_down[nic] = !up;
  context_.nic_down_at[nic] = tick.now;
  context_.capacities.forget(nic);
  trace::Writer::instance().emit(up ? trace::EventType::kNicUp : trace::EventType::kNicDown, uint16_t(nic), 0,
                                 uint64_t(trace::DetectedBy::kEvent));
  if (!left_[nic])
    for (Entry& entry : entries_)
      with(*entry.channel, [&] { entry.channel->nic_changed(int(nic), up, tick); });
  if (!up && context_.failure_log.open(int(nic))) return;  // which is told when it is over
  R2_WARN("NET/R2CCL: port of NIC %s of %s %s", context_.devices[nic].name().c_str(), context_.host.c_str(),
          up ? "is active again"
             : (context_.resilient() ? "went down" : "went down; R2CC_MODE=0 takes no action"));
}

void Service::queue_pair_failed(const ibv_qp* pair, ibv_event_type event, const Tick& tick) {
  for (Entry& entry : entries_)
    with(*entry.channel, [&] { entry.channel->queue_pair_failed(pair, ibv_event_type_str(event), tick); });
}

// An event may be lost; a port that was said to be down is looked at now and then.
void Service::look_at_downed_ports(const Tick& tick) {
  for (size_t nic = 0; nic < context_.devices.size(); ++nic) {
    std::shared_ptr<PortLook>& look = port_looks_[nic];
    if (!look || !look->job->done()) continue;
    if (look->active && context_.nic_down[nic]) port_changed(nic, true, tick);
    look = nullptr;
  }
  if (tick.now < next_port_look_) return;
  next_port_look_ = tick.now + kPortLookNs;
  for (size_t nic = 0; nic < context_.devices.size(); ++nic) {
    if (!context_.nic_down[nic] || context_.device_gone[nic] || port_looks_[nic]) continue;
    auto look = port_looks_[nic] = std::make_shared<PortLook>();
    look->job = context_.workers->give(int(nic), "ibv_query_port", [look, nic, &context = context_](Job&) {
      look->active = context.devices[nic].refresh_port(context.config);
    });
  }
}

// Some buffer is not registered with them, so no channel can rely on them, whatever their ports say.
void Service::leave_unusable_nics(const Tick& tick) {
  for (size_t nic = 0; nic < context_.devices.size(); ++nic) {
    if (left_[nic] || !context_.nic_unusable[nic]) continue;
    left_[nic] = true;
    for (Entry& entry : entries_)
      with(*entry.channel, [&] { entry.channel->nic_changed(int(nic), false, tick); });
  }
}

}  // namespace r2ccl
