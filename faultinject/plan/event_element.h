// SPDX-License-Identifier: Apache-2.0
// What an asynchronous event of verbs is about: which member of ibv_async_event::element is set.
#pragma once

#include <infiniband/verbs.h>

namespace faultinject {

enum class EventElement { kQueuePair, kCompletionQueue, kSharedReceiveQueue, kWorkQueue, kDevice, kPort };

constexpr EventElement element_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return EventElement::kQueuePair;
    case IBV_EVENT_CQ_ERR:
      return EventElement::kCompletionQueue;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return EventElement::kSharedReceiveQueue;
    case IBV_EVENT_WQ_FATAL:
      return EventElement::kWorkQueue;
    case IBV_EVENT_DEVICE_FATAL:
      return EventElement::kDevice;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      break;
  }
  return EventElement::kPort;
}

/// The same event of the same thing.
inline bool same_event(const ibv_async_event& a, const ibv_async_event& b) {
  if (a.event_type != b.event_type) return false;
  switch (element_of(a.event_type)) {
    case EventElement::kQueuePair:
      return a.element.qp == b.element.qp;
    case EventElement::kCompletionQueue:
      return a.element.cq == b.element.cq;
    case EventElement::kSharedReceiveQueue:
      return a.element.srq == b.element.srq;
    case EventElement::kWorkQueue:
      return a.element.wq == b.element.wq;
    case EventElement::kDevice:
      return true;
    case EventElement::kPort:
      break;
  }
  return a.element.port_num == b.element.port_num;
}

}  // namespace faultinject
