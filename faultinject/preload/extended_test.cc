// SPDX-License-Identifier: Apache-2.0
// Work posted through ibv_qp_ex and polled through ibv_cq_ex: faults act on it as on any other. The library
// is linked in, and the device is a fake.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "faultinject/preload/extended.h"
#include "faultinject/preload/process.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"
#include "faultinject/testing/fake_device.h"
#include "faultinject/testing/own_board.h"

namespace faultinject::testing {
namespace {

struct Seen {
  uint64_t wr_id;
  int status;
  uint32_t qp_num, bytes;
  bool operator==(const Seen&) const = default;
};

class ExtendedTest : public ::testing::Test {
 protected:
  ExtendedTest() {
    the_board();
    slot = take_slot(device.context());
    context = std::make_unique<Context>(*Process::current_or_new(), *slot, device.context(), 0, 0, 1);
    patch(*slot, *context);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = ibv_cq_ex_to_cq(&device.cq);
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = 16;
    context->add_qp(&device.qp.qp_base, attributes);
    provider_qp = device.qp;
    provider_cq = device.cq;
    extended_adopt(&device.qp, *slot);
    extended_adopt(&device.cq, *slot);
    sync();
  }
  ~ExtendedTest() override {
    the_board().heal_all();
    sync();
    extended_take(&device.qp.qp_base);
    extended_take(ibv_cq_ex_to_cq(&device.cq));
    unpatch(*slot);
  }
  void sync() { context->sync(monotonic_ns()); }
  uint32_t arm(const std::string& yaml) {
    const uint32_t id = the_board().arm(parse_fault(YAML::Load(yaml), "test"));
    sync();
    return id;
  }

  // One batch of writes, wr_id from `first` on.
  int write(uint64_t first, int count, bool inlined = false) {
    ibv_wr_start(&device.qp);
    for (int i = 0; i < count; i++) {
      device.qp.wr_id = first + uint64_t(i);
      device.qp.wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_rdma_write(&device.qp, 7, 0x1000);
      uint64_t value = 4711 + uint64_t(i);
      if (inlined) {
        ibv_wr_set_inline_data(&device.qp, &value, sizeof value);
        value = 0;
      } else {
        ibv_wr_set_sge(&device.qp, 1, 0x2000 + uint64_t(i), 64);
      }
    }
    return ibv_wr_complete(&device.qp);
  }
  // All that is there, in one run.
  std::vector<Seen> poll(int* rc = nullptr) {
    std::vector<Seen> all;
    ibv_poll_cq_attr attributes{};
    int result = ibv_start_poll(&device.cq, &attributes);
    if (rc != nullptr) *rc = result;
    if (result != 0) return all;
    for (; result == 0; result = ibv_next_poll(&device.cq))
      all.push_back({device.cq.wr_id, device.cq.status, ibv_wc_read_qp_num(&device.cq),
                     ibv_wc_read_byte_len(&device.cq)});
    ibv_end_poll(&device.cq);
    return all;
  }

  FakeDevice device;
  ibv_qp_ex provider_qp;  // with the functions that the provider gave it
  ibv_cq_ex provider_cq;
  Slot* slot = nullptr;
  std::unique_ptr<Context> context;
};

TEST_F(ExtendedTest, with_nothing_armed_everything_is_the_providers) {
  ASSERT_EQ(write(1, 1), 0);  // the first operation of all is noted on the board
  ASSERT_EQ(slot->slow.load(), 0u);
  ASSERT_EQ(write(2, 2), 0);
  EXPECT_EQ(device.posted.size(), 3u);
  const std::vector<Seen> all = {{1, 0, 17, 64}, {2, 0, 17, 64}, {3, 0, 17, 64}};
  EXPECT_EQ(poll(), all);
  int rc = 0;
  poll(&rc);
  EXPECT_EQ(rc, ENOENT);
  // Nothing of ours is in the way but at the begin of a batch, the begin of a run and its next completion.
  EXPECT_EQ(device.qp.wr_rdma_write, provider_qp.wr_rdma_write);
  EXPECT_EQ(device.qp.wr_set_sge, provider_qp.wr_set_sge);
  EXPECT_EQ(device.qp.wr_complete, provider_qp.wr_complete);
  EXPECT_EQ(device.cq.read_qp_num, provider_cq.read_qp_num);
  EXPECT_EQ(device.cq.end_poll, provider_cq.end_poll);
}

TEST_F(ExtendedTest, after_a_batch_and_a_run_of_ours_the_functions_are_the_providers_again) {
  arm("{target: node0/nic0, kind: noop, at: now}");
  ibv_wr_start(&device.qp);
  EXPECT_NE(device.qp.wr_rdma_write, provider_qp.wr_rdma_write);
  EXPECT_EQ(device.qp.wr_send, nullptr) << "what the provider does not serve stays so";
  device.qp.wr_id = 1;
  device.qp.wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(&device.qp, 7, 0x1000);
  ibv_wr_set_sge(&device.qp, 1, 0x2000, 64);
  ASSERT_EQ(ibv_wr_complete(&device.qp), 0);
  EXPECT_EQ(device.qp.wr_rdma_write, provider_qp.wr_rdma_write);
  EXPECT_EQ(device.qp.wr_abort, provider_qp.wr_abort);
  ibv_poll_cq_attr attributes{};
  ASSERT_EQ(ibv_start_poll(&device.cq, &attributes), 0);
  EXPECT_NE(device.cq.read_qp_num, provider_cq.read_qp_num);
  ibv_end_poll(&device.cq);
  EXPECT_EQ(device.cq.read_qp_num, provider_cq.read_qp_num);
  EXPECT_EQ(slot->gate.load(), 1u) << "the fault's, and no run's";
}

TEST_F(ExtendedTest, a_queue_with_functions_of_its_own_keeps_them) {
  FakeDevice other;  // of the same context, as far as the library can tell
  other.qp.wr_start = [](ibv_qp_ex* qp) {
    auto* fake = static_cast<FakeDevice*>(qp->qp_base.qp_context);
    fake->post_lock.lock();
    fake->failed = true;  // flushes everything, so that it is told apart
  };
  other.cq.start_poll = [](ibv_cq_ex*, ibv_poll_cq_attr*) { return EBUSY; };
  extended_adopt(&other.qp, *slot);
  extended_adopt(&other.cq, *slot);
  ASSERT_EQ(write(1, 1), 0);
  ASSERT_EQ(slot->slow.load(), 0u);
  ibv_wr_start(&other.qp);
  ibv_wr_rdma_write(&other.qp, 7, 0x1000);
  ASSERT_EQ(ibv_wr_complete(&other.qp), 0);
  ibv_poll_cq_attr attributes{};
  EXPECT_EQ(ibv_start_poll(&other.cq, &attributes), EBUSY);
  ASSERT_EQ(other.completions.size(), 1u);
  EXPECT_EQ(other.completions[0].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(device.completions.at(0).status, IBV_WC_SUCCESS);
  extended_take(&other.qp.qp_base);
  extended_take(ibv_cq_ex_to_cq(&other.cq));
}

template <typename Qp>
constexpr bool kHasAtomicWrite = requires(Qp qp) {
  qp.wr_atomic_write;
};

TEST_F(ExtendedTest, an_atomic_write_reaches_the_device_with_a_fault_at_work_and_without) {
  if (!kHasAtomicWrite<ibv_qp_ex>) GTEST_SKIP() << "this verbs.h has none";
  uint64_t value = 4711;
  const auto post = [&] {
    ibv_wr_start(&device.qp);
    device.qp.wr_id = 1;
    device.qp.wr_flags = IBV_SEND_SIGNALED;
    with_atomic_write(device.qp, [&](auto put) { put(&device.qp, 7, 0x1000, &value); });
    value = 0;
    return ibv_wr_complete(&device.qp);
  };
  const uint32_t id = arm("{target: node0/nic0, kind: noop, at: now}");
  for (const size_t posted : {1u, 2u}) {
    value = 4711;
    ASSERT_EQ(post(), 0);
    ASSERT_EQ(device.posted.size(), posted);
    EXPECT_EQ(device.posted.back().opcode, kWrAtomicWrite);
    EXPECT_EQ(device.data.back(), 4711u);
    EXPECT_EQ(poll().size(), 1u);
    the_board().heal(id);
    sync();
  }
}

template <typename Qp>
constexpr bool kHasFlush = requires(Qp qp) {
  qp.wr_flush;
};

TEST_F(ExtendedTest, a_batch_with_an_operation_that_cannot_be_written_down_fails_while_a_fault_is_at_work) {
  if (!kHasFlush<ibv_qp_ex>) GTEST_SKIP() << "this verbs.h has none";
  arm("{target: node0/nic0, kind: noop, at: now}");
  extended_take(&device.qp.qp_base);
  device.qp = provider_qp;
  with_flush(device.qp, [](auto& pointer) {
    pointer = [](ibv_qp_ex*, uint32_t, uint64_t, size_t, uint8_t, uint8_t) { FAIL(); };
  });
  extended_adopt(&device.qp, *slot);
  ibv_wr_start(&device.qp);
  ibv_wr_rdma_write(&device.qp, 7, 0x1000);
  with_flush(device.qp, [&](auto put) { put(&device.qp, 7, 0x1000, 64, 0, 0); });
  EXPECT_EQ(ibv_wr_complete(&device.qp), EOPNOTSUPP);
  EXPECT_TRUE(device.posted.empty());
  EXPECT_EQ(write(1, 1), 0) << "the next batch is another matter";
}

TEST_F(ExtendedTest, a_post_is_refused_at_its_wr) {
  const uint32_t id = arm("{target: node0/nic0, kind: post_fail, errno: EINVAL, at: {wr: 2}}");
  EXPECT_EQ(write(1, 1), 0);
  EXPECT_EQ(write(2, 1), EINVAL);
  EXPECT_EQ(write(3, 1), 0);
  ASSERT_EQ(device.posted.size(), 2u);
  EXPECT_EQ(device.posted[1].wr_id, 3u);
  EXPECT_EQ(the_board().witnesses(id).at(0).effect, Effect::kPostRefused);
}

TEST_F(ExtendedTest, a_wr_fails_with_its_status_and_what_is_behind_it_is_flushed) {
  context->each_qp([](QueuePair& qp) { qp.connected = true; });
  const uint32_t id =
      arm("{target: node0/nic0, kind: completion_error, status: REM_ACCESS_ERR, at: {wr: 2}}");
  ASSERT_EQ(write(1, 3), 0);
  const std::vector<Seen> seen = poll();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(seen[1].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(seen[2].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_NE(the_board().state(id).t0_ns, 0u);
}

TEST_F(ExtendedTest, a_completion_is_dropped_from_the_middle_of_a_run) {
  const uint32_t id = arm("{target: node0/nic0, kind: drop_completion, at: {wr: 2}}");
  ASSERT_EQ(write(1, 1), 0);
  EXPECT_EQ(poll().size(), 1u);
  ASSERT_EQ(write(2, 3), 0);
  const std::vector<Seen> rest = poll();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].wr_id, 3u);
  EXPECT_EQ(rest[1].wr_id, 4u);
  EXPECT_EQ(the_board().witnesses(id).at(0).effect, Effect::kWcDropped);
}

TEST_F(ExtendedTest, a_poll_fails_and_nothing_is_lost) {
  arm("{target: node0/nic0, kind: poll_fail, errno: EIO, count: 2, at: now}");
  ASSERT_EQ(write(1, 1), 0);
  for (int i = 0; i < 2; i++) {
    int rc = 0;
    EXPECT_TRUE(poll(&rc).empty());
    EXPECT_EQ(rc, EIO);
  }
  EXPECT_EQ(poll().size(), 1u);
}

TEST_F(ExtendedTest, sends_are_kept_back_with_their_inline_data_and_go_through_the_providers_own_functions) {
  const uint32_t id = arm("{target: node0/nic0, kind: delay, delay: 10 s, at: now}");
  ASSERT_EQ(write(1, 2, true), 0);
  EXPECT_TRUE(device.posted.empty());
  EXPECT_TRUE(poll().empty());
  the_board().heal(id);
  sync();
  ASSERT_EQ(device.posted.size(), 2u);
  EXPECT_EQ(device.data[0], 4711u);
  EXPECT_EQ(device.data[1], 4712u);
  EXPECT_EQ(poll().size(), 2u);
}

TEST_F(ExtendedTest, a_batch_before_rts_is_refused_while_sends_are_kept_back) {
  arm("{target: node0/nic0, kind: delay, delay: 10 s, at: now}");
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
    device.qp.qp_base.state = state;
    EXPECT_EQ(write(1, 1), EINVAL) << state;
  }
  device.qp.qp_base.state = IBV_QPS_RTS;
  EXPECT_EQ(write(1, 1), 0);
  EXPECT_TRUE(device.posted.empty());
}

TEST_F(ExtendedTest, a_batch_that_is_given_up_leaves_nothing) {
  arm("{target: node0/nic0, kind: noop, at: now}");
  ibv_wr_start(&device.qp);
  device.qp.wr_id = 1;
  ibv_wr_rdma_write(&device.qp, 7, 0x1000);
  ibv_wr_abort(&device.qp);
  EXPECT_EQ(write(2, 1), 0);
  ASSERT_EQ(device.posted.size(), 1u);
  EXPECT_EQ(device.posted[0].wr_id, 2u);
}

TEST_F(ExtendedTest, a_batch_and_a_run_that_began_before_a_fault_end_as_they_began) {
  ASSERT_EQ(write(1, 3), 0);
  ASSERT_EQ(slot->slow.load(), 0u);
  ibv_poll_cq_attr attributes{};
  ASSERT_EQ(ibv_start_poll(&device.cq, &attributes), 0);
  ibv_wr_start(&device.qp);
  uint32_t id = 0;  // armed by another thread, as always: this one holds the provider's locks
  std::thread([&] { id = arm("{target: node0/nic0, kind: drop_completion, count: all, at: now}"); }).join();
  device.qp.wr_id = 9;
  device.qp.wr_flags = 0;
  ibv_wr_rdma_write(&device.qp, 7, 0x1000);
  EXPECT_EQ(ibv_wr_complete(&device.qp), 0);
  EXPECT_EQ(device.posted.size(), 4u);
  EXPECT_EQ(device.cq.wr_id, 1u);
  EXPECT_EQ(ibv_wc_read_qp_num(&device.cq), 17u) << "what is shown stays shown";
  EXPECT_EQ(ibv_next_poll(&device.cq), ENOENT) << "and what would have come next is dropped";
  ibv_end_poll(&device.cq);
  EXPECT_EQ(the_board().witnesses(id).size(), 2u);
  ASSERT_EQ(write(10, 1), 0);
  EXPECT_TRUE(poll().empty());
}

// Two threads post and one polls while a fault comes and goes: each WR arrives once and is shown once, whole.
TEST_F(ExtendedTest, threads_post_to_one_queue_pair_while_a_fault_comes_and_goes) {
  constexpr uint64_t kPieces = 2;  // WRs of a batch
  std::atomic<bool> stop{false}, all_posted{false};
  std::atomic<uint64_t> number{0}, posted{0}, seen{0}, garbled{0};
  std::vector<std::thread> posters;
  for (int i = 0; i < 2; i++)
    posters.emplace_back([&] {
      while (!stop) {
        if (posted - seen > 64) {
          std::this_thread::yield();
          continue;
        }
        ibv_wr_start(&device.qp);
        for (uint64_t piece = 0; piece < kPieces; piece++) {
          const uint64_t id = ++number;
          device.qp.wr_id = id;
          device.qp.wr_flags = IBV_SEND_SIGNALED;
          ibv_wr_rdma_write(&device.qp, 7, 0x1000);
          ibv_wr_set_sge(&device.qp, 1, 0x2000 + id, uint32_t(id % 4096 + 1));
        }
        if (ibv_wr_complete(&device.qp) != 0) garbled++;
        posted += kPieces;
      }
    });
  std::vector<uint64_t> all;
  std::thread poller([&] {
    while (!all_posted || seen < posted) {
      ibv_poll_cq_attr attributes{};
      if (ibv_start_poll(&device.cq, &attributes) != 0) {
        std::this_thread::yield();
        continue;
      }
      do {
        const uint64_t id = device.cq.wr_id;
        garbled += device.cq.status != IBV_WC_SUCCESS || ibv_wc_read_qp_num(&device.cq) != 17 ||
                   ibv_wc_read_byte_len(&device.cq) != id % 4096 + 1;
        all.push_back(id);
        seen++;
      } while (ibv_next_poll(&device.cq) == 0);
      ibv_end_poll(&device.cq);
    }
  });
  const auto some_more = [&] {
    const uint64_t until = seen + 100;
    while (seen < until) std::this_thread::yield();
  };
  for (int round = 0; round < 50; round++) {
    const uint32_t id = arm("{target: node0/nic0, kind: noop, at: now}");
    EXPECT_EQ(slot->slow.load(), 1u);
    some_more();
    the_board().heal(id);
    sync();
    some_more();
  }
  stop = true;
  for (std::thread& thread : posters) thread.join();
  all_posted = true;
  poller.join();
  EXPECT_EQ(garbled, 0u);
  EXPECT_EQ(device.posted.size(), number.load());
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), number.load());
  for (uint64_t i = 0; i < all.size(); i++) ASSERT_EQ(all[i], i + 1);
  // Both ways were taken: whole batches of the provider's, and WR after WR through the fault's hands.
  EXPECT_GT(device.whole_batches, 0u);
  EXPECT_LT(device.whole_batches * kPieces, number.load());
  EXPECT_EQ(slot->gate.load(), 0u);
  EXPECT_EQ(device.qp.wr_set_sge, provider_qp.wr_set_sge);
}

}  // namespace
}  // namespace faultinject::testing
