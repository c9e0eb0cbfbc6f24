// SPDX-License-Identifier: Apache-2.0
// What a fence's sentinel would send lies where no NIC writes: a provider reads it when it is posted, and the
// answer to a probe may come at any time.
#include <gtest/gtest.h>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

struct Range {
  std::atomic<uint64_t> from{~uint64_t{0}}, to{0};
  void add(const ibv_sge& part) {
    for (uint64_t low = from; part.addr < low && !from.compare_exchange_weak(low, part.addr);) {
    }
    for (uint64_t high = to;
         part.addr + part.length > high && !to.compare_exchange_weak(high, part.addr + part.length);) {
    }
  }
  bool meets(const Range& other) const { return from < other.to && other.from < to; }
};

Range g_landings, g_sentinels;
int (*g_post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;

int post_send(ibv_qp* pair, ibv_send_wr* work, ibv_send_wr** bad) {
  const auto kind = uint32_t(work->wr_id >> 32);
  if (work->opcode == IBV_WR_RDMA_READ) g_landings.add(work->sg_list[0]);
  if (kind == Path::kWorkSentinel && work->num_sge > 0) g_sentinels.add(work->sg_list[0]);
  return g_post_send(pair, work, bad);
}

TEST(Sentinel, is_sent_from_memory_where_nothing_lands) {
  const auto fabric = make_fabric(2, 2);
  FaultingNet faulting_net(fabric);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_rounds(n, channel, link); });
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) {
      for (const verbs::Device& device : channel->context().devices) {
        g_post_send = device.context()->ops.post_send;
        __atomic_store_n(&device.context()->ops.post_send, &post_send, __ATOMIC_RELAXED);
      }
      send_rounds(n, channel, link);
    });
    EXPECT_GT(g_landings.to, 0u) << "no probe was seen";
    EXPECT_GT(g_sentinels.to, 0u) << "no fence was seen";
    EXPECT_FALSE(g_landings.meets(g_sentinels));
  });
  relay_handle(receiver, sender);
  run_rounds(receiver, sender, [&, rounds = 0]() mutable {
    faulting_net.strike(0, rounds % 2);
    return ++rounds == 4;
  });
  EXPECT_GE(faulting_net.broken(), 1);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

}  // namespace
}  // namespace r2ccl
