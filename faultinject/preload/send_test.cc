// SPDX-License-Identifier: Apache-2.0
// Triggers that count sends, where the provider refuses some: only those count that it takes, and a program
// that tries again gets what it would have got at once. The library is linked in, and the device is a fake.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "faultinject/preload/process.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"
#include "faultinject/testing/fake_device.h"
#include "faultinject/testing/own_board.h"

namespace faultinject::testing {
namespace {

constexpr uint32_t kBytes = 1000;

// A program with one device, one queue pair of it, and a provider that takes so many sends until it is
// polled.
class Program {
 public:
  explicit Program(size_t room) {
    the_board();
    device.room = room;
    slot_ = take_slot(device.context());
    context_ = std::make_unique<Context>(*Process::current_or_new(), *slot_, device.context(), 0, 0, 1);
    patch(*slot_, *context_);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = ibv_cq_ex_to_cq(&device.cq);
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = 1024;
    context_->add_qp(&device.qp.qp_base, attributes);
    context_->each_qp([](QueuePair& qp) { qp.connected = true; });
    sync();
  }
  ~Program() { unpatch(*slot_); }
  void sync() { context_->sync(monotonic_ns()); }
  void tick() { context_->tick(monotonic_ns()); }

  // `count` writes in one list, with wr_ids from `first` on; how many of them were taken.
  int post(uint64_t first, int count, int& rc, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
    std::vector<ibv_send_wr> wrs(static_cast<size_t>(count));
    ibv_sge piece{0x2000, kBytes, 1};
    for (int i = 0; i < count; i++) {
      ibv_send_wr& wr = wrs[size_t(i)];
      wr.wr_id = first + uint64_t(i);
      wr.opcode = opcode;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = &piece;
      wr.num_sge = 1;
      wr.next = i + 1 < count ? &wrs[size_t(i) + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    rc = ibv_post_send(&device.qp.qp_base, wrs.data(), &bad);
    return rc == 0 ? count : int(bad - wrs.data());
  }
  int post(uint64_t id) {
    int rc = 0;
    post(id, 1, rc);
    return rc;
  }
  std::vector<ibv_wc> poll(int count) {
    std::vector<ibv_wc> wcs(static_cast<size_t>(count));
    const int got = ibv_poll_cq(ibv_cq_ex_to_cq(&device.cq), count, wcs.data());
    failed_polls += got < 0;
    wcs.resize(size_t(std::max(got, 0)));
    return wcs;
  }
  // As a program does that runs into its full queue: tries again and again until there is room.
  void post_at_last(uint64_t id) {
    for (int i = 0; post(id) != 0; i++) {
      ASSERT_LT(i, 100);
      if (i % 20 == 19) poll(1);
    }
  }

  FakeDevice device;
  int failed_polls = 0;

 private:
  Slot* slot_;
  std::unique_ptr<Context> context_;
};

class SendTest : public ::testing::Test {
 protected:
  ~SendTest() override {
    the_board().heal_all();
    program.sync();
  }
  uint32_t arm(const std::string& yaml) {
    const uint32_t id =
        the_board().arm(parse_fault(YAML::Load("{target: node0/nic0, " + yaml + "}"), "test"));
    program.sync();
    return id;
  }
  static bool has_fired(uint32_t id) { return the_board().state(id).triggered_ns != 0; }

  Program program{4};
};

TEST_F(SendTest, only_those_count_that_the_provider_takes) {
  const uint32_t by_wr = arm("kind: noop, at: {wr: 10}");
  const uint32_t by_bytes = arm("kind: noop, at: {bytes: 9001 B}");
  for (uint64_t id = 1; id <= 9; id++) {
    program.post_at_last(id);
    EXPECT_FALSE(has_fired(by_wr)) << id;
    EXPECT_FALSE(has_fired(by_bytes)) << id;
  }
  program.poll(1);
  ASSERT_EQ(program.post(10), 0);
  EXPECT_TRUE(has_fired(by_wr));
  EXPECT_TRUE(has_fired(by_bytes));
}

TEST_F(SendTest, of_a_list_those_count_in_front_of_the_one_that_is_refused) {
  const uint32_t by_wr = arm("kind: noop, at: {wr: 7}");
  const uint32_t by_bytes = arm("kind: noop, at: {bytes: 6001 B}");
  int rc = 0;
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(program.post(1, 6, rc), i == 0 ? 4 : 0);
    EXPECT_EQ(rc, ENOMEM);
  }
  program.poll(4);
  EXPECT_EQ(program.post(5, 2, rc), 2);
  EXPECT_FALSE(has_fired(by_wr));
  EXPECT_FALSE(has_fired(by_bytes));
  EXPECT_EQ(program.post(7, 1, rc), 1);
  EXPECT_TRUE(has_fired(by_wr));
  EXPECT_TRUE(has_fired(by_bytes));
}

// Each write has bytes for five rounds, and a poll ends a round. A write begins one, however often it is
// tried.
TEST_F(SendTest, one_wr_begins_one_round_however_often_it_is_refused) {
  const uint32_t id = arm("kind: poll_fail, count: 1, at: {bytes: 200 B}, repeat: 5");
  const auto rounds = [&] { return the_board().state(id).rounds; };
  ASSERT_EQ(program.post(1), 0);
  EXPECT_EQ(rounds(), 1u);
  program.device.room = 0;
  for (int i = 0; i < 10; i++) {
    program.poll(1);
    EXPECT_EQ(program.post(2), ENOMEM);
    EXPECT_EQ(rounds(), 2u) << i;
  }
  program.device.room = 4;
  program.poll(1);
  ASSERT_EQ(program.post(2), 0);
  EXPECT_EQ(rounds(), 2u);
  ASSERT_EQ(program.post(3), 0);
  EXPECT_EQ(rounds(), 3u);
}

TEST_F(SendTest, the_round_after_one_that_a_refused_wr_began_comes_as_many_wrs_later) {
  const uint32_t id = arm("kind: poll_fail, count: 1, at: {wr: 5}, repeat: 3");
  const auto rounds = [&] { return the_board().state(id).rounds; };
  for (uint64_t wr = 1; wr <= 4; wr++) ASSERT_EQ(program.post(wr), 0);
  EXPECT_EQ(program.post(5), ENOMEM);
  EXPECT_EQ(rounds(), 1u);
  for (uint64_t wr = 5; wr <= 9; wr++) {
    program.post_at_last(wr);
    EXPECT_EQ(rounds(), 1u) << wr;
  }
  EXPECT_EQ(program.failed_polls, 1);
  program.poll(1);
  ASSERT_EQ(program.post(10), 0);
  EXPECT_EQ(rounds(), 2u);
}

TEST_F(SendTest, a_strike_is_not_lost_with_the_wr_that_is_refused) {
  const uint32_t id = arm("kind: completion_error, status: REM_ACCESS_ERR, at: {wr: 5}");
  for (uint64_t wr = 1; wr <= 4; wr++) ASSERT_EQ(program.post(wr), 0);
  for (int i = 0; i < 3; i++) EXPECT_EQ(program.post(5), ENOMEM);
  EXPECT_EQ(program.poll(4).size(), 4u);
  ASSERT_EQ(program.post(5), 0);
  const std::vector<ibv_wc> wcs = program.poll(1);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].wr_id, 5u);
  EXPECT_EQ(wcs[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_NE(the_board().state(id).t0_ns, 0u);
}

TEST_F(SendTest, the_strike_of_a_refused_wr_waits_for_one_of_its_kind) {
  arm("kind: completion_error, status: REM_ACCESS_ERR, at: {wr: 5}");
  for (uint64_t wr = 1; wr <= 4; wr++) ASSERT_EQ(program.post(wr), 0);
  EXPECT_EQ(program.post(5), ENOMEM);
  EXPECT_EQ(program.poll(4).size(), 4u);
  int rc = 0;
  ASSERT_EQ(program.post(6, 1, rc, IBV_WR_RDMA_READ), 1);
  EXPECT_EQ(program.poll(1).at(0).status, IBV_WC_SUCCESS);
  ASSERT_EQ(program.post(5), 0);
  EXPECT_EQ(program.poll(1).at(0).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(SendTest, a_fault_that_is_healed_meanwhile_lets_the_refused_wr_pass) {
  const uint32_t id = arm("kind: completion_error, status: REM_ACCESS_ERR, at: {wr: 5}");
  arm("kind: noop, at: {wr: 1000}");  // the device stays watched
  for (uint64_t wr = 1; wr <= 4; wr++) ASSERT_EQ(program.post(wr), 0);
  EXPECT_EQ(program.post(5), ENOMEM);
  EXPECT_EQ(program.poll(4).size(), 4u);
  the_board().heal(id);
  program.sync();
  ASSERT_EQ(program.post(5), 0);
  const std::vector<ibv_wc> wcs = program.poll(1);
  ASSERT_EQ(wcs.size(), 1u);
  EXPECT_EQ(wcs[0].status, IBV_WC_SUCCESS);
}

// Its draw is the same each time: of 20 faults about one meets it, and not nearly all of them in the end.
TEST_F(SendTest, a_wr_that_is_refused_again_and_again_draws_once) {
  std::vector<uint32_t> ids;
  for (int i = 0; i < 20; i++) ids.push_back(arm("kind: noop, at: {probability: 0.05}"));
  program.device.room = 0;
  for (int i = 0; i < 100; i++) EXPECT_EQ(program.post(1), ENOMEM);
  EXPECT_LT(std::count_if(ids.begin(), ids.end(), has_fired), 8);
  program.device.room = 4;
}

TEST_F(SendTest, a_refused_wr_uses_up_no_draw) {
  const uint32_t id = arm("kind: poll_fail, count: 1, at: {probability: 0.3}, repeat: 1000");
  for (uint64_t wr = 1; wr <= 100; wr++) {
    program.post_at_last(wr);
    program.poll(1);  // ends a round that is at work
  }
  const uint32_t drawn = the_board().state(id).rounds;
  EXPECT_GT(drawn, 15u);
  EXPECT_LT(drawn, 50u) << "of 100 sends, and four times as many posts";
}

// Each round begins at one more WR that was taken, or refused by the fault itself.
TEST_F(SendTest, several_devices_count_together_while_their_providers_refuse_most_posts) {
  constexpr size_t kThreads = 3, kEvery = 7, kTaken = 20000;
  const uint32_t id = arm("kind: post_fail, errno: EIO, at: {wr: 7}, repeat: 60000");
  std::atomic<uint64_t> counted{0}, refused{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; i++)
    threads.emplace_back([&] {
      Program mine(2);
      for (uint64_t wr = 1; wr <= kTaken;) {
        const int rc = mine.post(wr);
        counted += rc != ENOMEM;
        refused += rc == ENOMEM;
        wr += rc == 0;
        if (rc == ENOMEM && refused % 5 == 0) mine.poll(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(refused, counted);
  const uint64_t rounds = the_board().state(id).rounds;
  EXPECT_LE(rounds, (counted + kThreads) / kEvery);
  EXPECT_GE(rounds + kThreads, counted / kEvery);
}

TEST_F(SendTest, inline_data_of_any_operation_is_kept_with_a_wr_that_waits) {
  arm("kind: delay, delay: 1 ns, at: now");
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, kWrAtomicWrite}) {
    uint64_t value = 4711;
    ibv_sge piece{uint64_t(&value), sizeof value, 0};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_INLINE;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_send(&program.device.qp.qp_base, &wr, &bad), 0);
    value = 0;
    program.tick();
    ASSERT_FALSE(program.device.posted.empty());
    EXPECT_EQ(program.device.posted.back().opcode, opcode);
    EXPECT_EQ(program.device.data.back(), 4711u);
  }
}

// It watched for the first send of all, and that has come.
TEST(FirstSendTest, of_another_process_frees_a_device_that_sends_nothing_itself) {
  the_board();
  Board& board = Process::current_or_new()->board();
  board.first_op_ns.store(0);
  Program idle(4);
  const Slot* slot = find_slot(idle.device.context());
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->slow.load(), 1u);
  note_first_op(board, monotonic_ns());
  idle.sync();  // as its thread does, which is woken
  EXPECT_EQ(slot->slow.load(), 0u);
  EXPECT_EQ(slot->gate.load(), 0u);
}

// As in a forked child that closes the device which it has inherited, and gets the next one at its address.
TEST(SlotTest, a_device_at_the_address_of_one_that_a_child_has_closed_is_injected) {
  FakeDevice device;
  const auto original = device.context()->ops.post_send;
  Slot* inherited = take_slot(device.context());
  the_board();
  Context of_parent(*Process::current_or_new(), *inherited, device.context(), 0, 0, 1);
  patch(*inherited, of_parent);
  ASSERT_EQ(find_slot(device.context()), inherited);
  abandon_all_slots();
  EXPECT_EQ(find_slot(device.context()), nullptr);
  EXPECT_NE(device.context()->ops.post_send, original) << "its operations pass through the slot";
  Slot* next = take_slot(device.context());
  Context of_child(*Process::current_or_new(), *next, device.context(), 0, 0, 1);
  next->post_send = original;
  patch(*next, of_child);
  EXPECT_EQ(find_slot(device.context()), next) << "closed by a call that was not seen";
  unpatch(*next);
  patch(*inherited, of_parent);
  abandon_all_slots();
  release_abandoned_slot(device.context());
  EXPECT_EQ(device.context()->ops.post_send, original);
  EXPECT_EQ(take_slot(device.context()), inherited) << "it is free again";
  unpatch(*inherited);
}

}  // namespace
}  // namespace faultinject::testing
