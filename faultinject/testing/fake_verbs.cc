// SPDX-License-Identifier: Apache-2.0
#include "faultinject/testing/fake_verbs.h"

#include <unistd.h>

namespace faultinject::testing {

std::function<void(ibv_qp_state)> state_was_written;
std::function<void()> event_is_to_be_read;

namespace {

using Untyped = void (*)();

void write_state(ibv_qp* qp, ibv_qp_state state) {
  __atomic_store_n(&qp->state, state, __ATOMIC_RELAXED);
  if (state_was_written) state_was_written(state);
}

}  // namespace
}  // namespace faultinject::testing

extern "C" {

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const auto modify = reinterpret_cast<decltype(&ibv_modify_qp)>(
      reinterpret_cast<faultinject::testing::Untyped>(qp->context->ops._compat_modify_qp));
  const int rc = modify(qp, attributes, mask);
  if (rc == 0 && (mask & IBV_QP_STATE) != 0) faultinject::testing::write_state(qp, attributes->qp_state);
  return rc;
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) {
  const auto query = reinterpret_cast<decltype(&ibv_query_qp)>(
      reinterpret_cast<faultinject::testing::Untyped>(qp->context->ops._compat_query_qp));
  const int rc = query(qp, attributes, mask, init);
  if (rc == 0 && (mask & IBV_QP_STATE) != 0) faultinject::testing::write_state(qp, attributes->qp_state);
  return rc;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (faultinject::testing::event_is_to_be_read) faultinject::testing::event_is_to_be_read();
  uint64_t number = 0;
  if (read(context->async_fd, &number, sizeof number) != sizeof number) return -1;
  *event = {};
  event->event_type = IBV_EVENT_PORT_ERR;
  return 0;
}

int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->phys_port_cnt = 1;
  return 0;
}

}  // extern "C"
