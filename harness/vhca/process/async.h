// SPDX-License-Identifier: Apache-2.0
// Async events: queued per context, counted in the eventfd that programs find as async_fd and poll.
#pragma once

#include "harness/vhca/process/objects.h"

namespace vhca {

void push_async_event(Context& context, const ibv_async_event& event);
void push_qp_event(Qp& qp, ibv_event_type type);
// Turns the flags that others left in the QP's slot into events; true if there were any.
bool deliver_pending_async_events(Qp& qp);

int get_async_event(ibv_context* context, ibv_async_event* event);
void ack_async_event(ibv_async_event* event);
// Removes unread events and waits until those that were read have been acknowledged (as ibv_destroy_* must).
void forget_async_events(Qp& qp);
void forget_async_events(Cq& cq);
void forget_async_events(Srq& srq);

// One count more in / one count less out of an eventfd that is a semaphore.
void raise_eventfd(int fd);
void lower_eventfd_if_raised(int fd);

}  // namespace vhca
