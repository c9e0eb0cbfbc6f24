// SPDX-License-Identifier: Apache-2.0
// What libibverbs does around a provider's modify and query of a queue pair, in a library of its own, so that
// the injector finds it where it finds libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <functional>

namespace faultinject::testing {

// Called when ibv_qp::state has been written by ibv_modify_qp or ibv_query_qp, before they return.
extern std::function<void(ibv_qp_state)> state_was_written;

}  // namespace faultinject::testing
