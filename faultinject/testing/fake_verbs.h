// SPDX-License-Identifier: Apache-2.0
// What libibverbs does around a provider's modify and query of a queue pair, and with the descriptor of async
// events, in a library of its own, so that the injector finds it where it finds libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <functional>

namespace faultinject::testing {

// Called when ibv_qp::state has been written by ibv_modify_qp or ibv_query_qp, before they return.
extern std::function<void(ibv_qp_state)> state_was_written;

// Called by ibv_get_async_event before it reads the context's descriptor.
extern std::function<void()> event_is_to_be_read;

}  // namespace faultinject::testing
