// SPDX-License-Identifier: Apache-2.0
// Queues that are destroyed while a handler has not acknowledged their events yet.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "harness/vhca/testing/fabric_view.h"
#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

int to_init(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

// Destroying waits for the acknowledgement of an event that was read. Until then the event's handler may use
// the handle, so nobody else may get what stands behind it.
template <typename Destroy, typename Use, typename Acknowledge>
void keeps_its_slot(const std::atomic<ProcessId>& owner, Destroy destroy, Use use, Acknowledge acknowledge) {
  const ProcessId self = owner.load();
  VHCA_REQUIRE(self != 0);
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    if (destroy() == 0) destroyed = true;
  });
  bool kept = true;
  const std::uint64_t until = now_ns() + 100'000'000;
  while (now_ns() < until) {
    kept &= owner.load() == self;
    ::sched_yield();
  }
  const bool used = kept && use();
  const bool waited = !destroyed;
  acknowledge();
  destroyer.join();
  VHCA_REQUIRE(kept);
  VHCA_REQUIRE(used);
  VHCA_REQUIRE(waited && destroyed);
  VHCA_REQUIRE_EQ(owner.load(), 0u);
}

TEST(Destroy, a_qp_keeps_its_slot_until_its_events_are_acknowledged) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    const FabricView view(fabric);
    Endpoint a({.nic = 0}), b({.nic = 1});
    connect(a, b);
    a.post({.id = 1, .bytes = 8, .rkey = 0x55555555});
    a.expect(IBV_WC_REM_ACCESS_ERR, 1);
    ibv_async_event event = wait_async(b);
    VHCA_REQUIRE(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp());
    ibv_qp* const qp = b.qp();
    QpSlot& slot = view.queue_pair(qp->qp_num);
    const auto use = [&] {
      const std::uint64_t end = now_ns() + 20'000'000'000;
      while (slot.number.load() != 0)  // destroyed, but for the wait
        if (now_ns() > end) return false;
      return to_init(qp) == EINVAL && slot.state.load() == IBV_QPS_RESET;
    };
    keeps_its_slot(
        slot.owner, [&] { return b.destroy_qp(), 0; }, use, [&] { ibv_ack_async_event(&event); });
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Destroy, a_cq_keeps_its_slot_until_its_events_are_acknowledged) {
  const auto fabric = make_fabric(1, 2);
  Process process(fabric, "node0", [&](const Wire&) {
    const FabricView view(fabric);
    Endpoint a({.nic = 0});
    ibv_comp_channel* const channel = ibv_create_comp_channel(a.context());
    ibv_cq* const cq = ibv_create_cq(a.context(), 16, nullptr, channel, 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    ibv_qp* const qp = ibv_create_qp(a.pd(), &init);
    VHCA_REQUIRE(qp != nullptr);
    VHCA_REQUIRE_EQ(ibv_req_notify_cq(cq, 0), 0);
    VHCA_REQUIRE_EQ(to_init(qp), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    VHCA_REQUIRE_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);  // raises the event
    ibv_cq* of = nullptr;
    void* context = nullptr;
    VHCA_REQUIRE_EQ(ibv_get_cq_event(channel, &of, &context), 0);
    VHCA_REQUIRE(of == cq);
    VHCA_REQUIRE_EQ(ibv_destroy_qp(qp), 0);
    const auto use = [&] {
      ibv_wc wc;
      return ibv_req_notify_cq(cq, 0) == 0 && ibv_poll_cq(cq, 1, &wc) == 0;
    };
    keeps_its_slot(
        view->completion_queues[cq->handle].owner, [&] { return ibv_destroy_cq(cq); }, use,
        [&] { ibv_ack_cq_events(cq, 1); });
    VHCA_REQUIRE_EQ(ibv_destroy_comp_channel(channel), 0);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Destroy, an_srq_keeps_its_slot_until_its_events_are_acknowledged) {
  const auto fabric = make_fabric(1, 1);
  Process process(fabric, "node0", [&](const Wire&) {
    const FabricView view(fabric);
    Endpoint a;
    ibv_srq_init_attr init{nullptr, {8, 1, 0}};
    ibv_srq* const srq = ibv_create_srq(a.pd(), &init);
    VHCA_REQUIRE(srq != nullptr);
    ibv_srq_attr attr{};
    attr.srq_limit = 1;  // of none
    VHCA_REQUIRE_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
    ibv_async_event event = wait_async(a);
    VHCA_REQUIRE(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    const auto use = [&] {
      ibv_recv_wr wr{}, *bad = nullptr;
      return ibv_post_srq_recv(srq, &wr, &bad) == 0 && ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0;
    };
    keeps_its_slot(
        view->shared_receive_queues[srq->handle].owner, [&] { return ibv_destroy_srq(srq); }, use,
        [&] { ibv_ack_async_event(&event); });
  });
  EXPECT_EQ(process.wait(), 0);
}

}  // namespace
}  // namespace vhca::test
