// SPDX-License-Identifier: Apache-2.0
// ibv_qp::state, which a program reads without any lock: no fault writes it, and the program's own move to
// ERR is not lost, whatever strikes meanwhile; and the lock, which the injector's thread gets beside threads
// that poll all the time. The library is linked in, the device is a fake, and libibverbs is the little of it
// that matters (fake_verbs.h).
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "faultinject/preload/process.h"
#include "faultinject/preload/real.h"
#include "faultinject/preload/slots.h"
#include "faultinject/testing/fake_device.h"
#include "faultinject/testing/fake_verbs.h"
#include "faultinject/testing/own_board.h"

namespace faultinject::testing {
namespace {

class StateTest : public ::testing::Test {
 protected:
  StateTest() : StateTest(IBV_QPT_RC) {}
  explicit StateTest(ibv_qp_type type, bool has_queues = true) {
    the_board();
    slot = take_slot(device.context());
    context = std::make_unique<Context>(*Process::current_or_new(), *slot, device.context(), 0, 0, 1);
    patch(*slot, *context);
    ibv_qp_init_attr attributes{};
    qp->qp_type = attributes.qp_type = type;
    if (has_queues) attributes.send_cq = attributes.recv_cq = ibv_cq_ex_to_cq(&device.cq);
    attributes.cap.max_send_wr = 16;
    context->add_qp(qp, attributes);
    EXPECT_EQ(move_to(IBV_QPS_RTS), 0);
    state_was_written = [this](ibv_qp_state state) { errs_written += state == IBV_QPS_ERR; };
  }
  ~StateTest() override {
    state_was_written = nullptr;
    the_board().heal_all();
    context->sync(monotonic_ns());
    unpatch(*slot);
  }
  void strike(const std::string& kind) {
    the_board().arm(parse_fault(YAML::Load("{target: node0/nic0, at: now, " + kind + "}"), "test"));
    context->sync(monotonic_ns());
    ASSERT_EQ(device.state, IBV_QPS_ERR) << kind;
  }
  int move_to(ibv_qp_state state) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.port_num = 1;
    attributes.timeout = 20;  // seconds
    attributes.retry_cnt = 7;
    return context->modify_qp(qp, &attributes,
                              IBV_QP_STATE | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT);
  }
  ibv_qp_state query() {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(context->query_qp(qp, &attributes, IBV_QP_STATE, &init), 0);
    return attributes.qp_state;
  }
  ibv_qp_state field() const { return __atomic_load_n(&qp->state, __ATOMIC_RELAXED); }

  FakeDevice device;
  ibv_qp* qp = &device.qp.qp_base;
  Slot* slot = nullptr;
  std::unique_ptr<Context> context;
  std::atomic<int> errs_written{0};
};

void wait_for(const std::atomic<bool>& what) {
  while (!what) std::this_thread::yield();
}

TEST_F(StateTest, is_not_written_by_a_fault_that_breaks_the_queue_pair) {
  strike("kind: qp_error, qp: all");
  EXPECT_EQ(field(), IBV_QPS_RTS);
  EXPECT_EQ(errs_written, 0);
  EXPECT_EQ(query(), IBV_QPS_ERR);
  EXPECT_EQ(field(), IBV_QPS_ERR) << "the program has asked";
}

TEST_F(StateTest, is_not_written_by_a_fault_that_cuts_it_nor_by_queries_while_it_is_cut) {
  strike("kind: port_down");
  EXPECT_EQ(query(), IBV_QPS_RTS) << "its retries are not over";
  EXPECT_EQ(field(), IBV_QPS_RTS);
  EXPECT_EQ(errs_written, 0);
}

// What goes over the NIC's other queue pairs does not pay for one that is gone.
class CutTest : public StateTest {
 protected:
  void post() {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = 7;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  }
  std::vector<ibv_wc> poll() {
    std::vector<ibv_wc> wcs(4);
    const int got = ibv_poll_cq(ibv_cq_ex_to_cq(&device.cq), 4, wcs.data());
    wcs.resize(size_t(std::max(got, 0)));
    return wcs;
  }
  // `posted`: writes since it was cut, and before this.
  void see_its_failure(size_t posted = 0) {
    post();
    EXPECT_TRUE(poll().empty()) << "its retries are not over";
    EXPECT_EQ(slot->slow.load(), 1u);
    EXPECT_EQ(move_to(IBV_QPS_ERR), 0);
    const auto flushed = poll();
    ASSERT_EQ(flushed.size(), posted + 1);
    for (const ibv_wc& wc : flushed) EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  }
};

TEST_F(CutTest, a_port_that_is_down_needs_the_slow_path_until_the_program_has_seen_each_failure) {
  EXPECT_EQ(slot->slow.load(), 0u);
  strike("kind: port_down");
  EXPECT_EQ(slot->slow.load(), 1u);
  device.failed = true;
  see_its_failure();
  EXPECT_EQ(slot->slow.load(), 0u);
  // A further life of the queue pair begins over the same port.
  device.state = IBV_QPS_RESET;
  device.failed = false;
  EXPECT_EQ(move_to(IBV_QPS_RESET), 0);
  EXPECT_EQ(slot->slow.load(), 0u);
  EXPECT_EQ(move_to(IBV_QPS_INIT), 0);
  EXPECT_EQ(move_to(IBV_QPS_RTR), 0);
  EXPECT_EQ(device.state, IBV_QPS_ERR) << "it is connected over a dead port";
  EXPECT_EQ(slot->slow.load(), 1u);
}

TEST_F(CutTest, so_does_a_blackhole) {
  strike("kind: blackhole");
  device.failed = true;
  see_its_failure();
  EXPECT_EQ(slot->slow.load(), 0u);
}

TEST_F(CutTest, a_trigger_that_counts_sends_keeps_the_slow_path) {
  const uint32_t id =
      the_board().arm(parse_fault(YAML::Load("{target: node0/nic0, kind: port_down, at: {wr: 1}}"), "test"));
  context->sync(monotonic_ns());
  device.failed = true;
  post();
  ASSERT_EQ(device.state, IBV_QPS_ERR);
  EXPECT_NE(the_board().state(id).t0_ns, 0u);
  see_its_failure(1);
  EXPECT_EQ(slot->slow.load(), 1u);
}

TEST_F(CutTest, so_does_a_blackhole_of_one_direction) {
  the_board().arm(
      parse_fault(YAML::Load("{target: node0/nic0, kind: blackhole, direction: out, at: now}"), "test"));
  context->sync(monotonic_ns());
  EXPECT_EQ(move_to(IBV_QPS_ERR), 0);
  poll();
  EXPECT_EQ(slot->slow.load(), 1u);
}

// The program is in ibv_modify_qp, without any lock of the injector's, while the fault strikes.
TEST_F(StateTest, keeps_the_programs_own_err_when_a_fault_strikes_in_the_middle_of_it) {
  std::atomic<bool> in_provider{false}, go_on{false}, written{false};
  std::thread::id of_program;
  device.in_modify = [&] {
    if (std::this_thread::get_id() != of_program) return;
    in_provider = true;
    wait_for(go_on);
  };
  state_was_written = [&](ibv_qp_state) {
    if (std::this_thread::get_id() == of_program) {
      written = true;
    } else {  // a strike that writes the field: the program's write comes before it is put back
      go_on = true;
      wait_for(written);
    }
  };
  std::atomic<bool> known{false};
  std::thread program([&] {
    wait_for(known);
    EXPECT_EQ(move_to(IBV_QPS_ERR), 0);
  });
  of_program = program.get_id();
  known = true;
  wait_for(in_provider);
  strike("kind: qp_error, qp: all");
  go_on = true;
  program.join();
  EXPECT_EQ(field(), IBV_QPS_ERR);
  EXPECT_EQ(query(), IBV_QPS_ERR);
}

// The same with another thread that asks for the state of a queue pair that is cut.
TEST_F(StateTest, keeps_the_programs_own_err_when_the_queue_pair_is_queried_in_the_middle_of_it) {
  strike("kind: port_down");
  std::atomic<bool> written{false}, go_on{false};
  std::thread::id of_program;
  std::atomic<bool> known{false};
  state_was_written = [&](ibv_qp_state) {
    if (std::this_thread::get_id() != of_program) return;
    written = true;
    wait_for(go_on);
  };
  std::thread program([&] {
    wait_for(known);
    EXPECT_EQ(move_to(IBV_QPS_ERR), 0);
  });
  of_program = program.get_id();
  known = true;
  wait_for(written);
  EXPECT_EQ(query(), IBV_QPS_RTS) << "ibv_modify_qp has not returned yet";
  go_on = true;
  program.join();
  EXPECT_EQ(field(), IBV_QPS_ERR);
  EXPECT_EQ(query(), IBV_QPS_ERR);
}

// The port goes down while the program's move from RTR to RTS is with the device, which refuses it then, or
// has carried it out just now. Over a dead port that move succeeds.
TEST_F(StateTest, a_queue_pair_that_is_cut_in_the_middle_of_its_move_to_rts_comes_there) {
  for (auto FakeDevice::*moment : {&FakeDevice::in_modify, &FakeDevice::modified}) {
    ASSERT_EQ(move_to(IBV_QPS_RESET), 0);
    ASSERT_EQ(move_to(IBV_QPS_RTR), 0);
    bool once = false;
    device.*moment = [&] {
      if (std::exchange(once, true)) return;
      std::thread([&] { strike("kind: port_down"); }).join();
    };
    EXPECT_EQ(move_to(IBV_QPS_RTS), 0);
    device.*moment = nullptr;
    EXPECT_EQ(field(), IBV_QPS_RTS);
    EXPECT_EQ(query(), IBV_QPS_RTS);
    ibv_send_wr wr{}, *bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(qp->send_cq, 1, &wc), 0) << "its retries are not over";
    the_board().heal_all();
    context->sync(monotonic_ns());
  }
}

// As mlx4's does, by the function that the injector stands in front of, in the thread that has its mutex.
TEST_F(StateTest, a_provider_that_asks_for_its_device_in_the_middle_of_a_command_is_answered) {
  std::atomic<uint64_t> answers{0};
  device.in_modify = [&] {
    ibv_device_attr attributes{};
    if (ibv_query_device(device.context(), &attributes) == 0) answers += attributes.phys_port_cnt;
  };
  std::atomic<bool> struck{false};
  std::thread watch([&] {
    for (int i = 0; i < 1000 && !struck; i++) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!struck) _exit(1);  // it waits for itself: nothing else ends that
  });
  strike("kind: port_down");
  struck = true;
  watch.join();
  EXPECT_EQ(answers, 1u);
  EXPECT_EQ(move_to(IBV_QPS_ERR), 0) << "in a command of the program's";
  EXPECT_EQ(answers, 2u);
}

// On a busy machine, on which a thread that is woken for the lock finds it taken again. By how often the
// program had the lock while that thread waited: how long that takes is the machine's affair.
TEST_F(StateTest, a_thread_that_polls_all_the_time_does_not_keep_the_injectors_thread_from_the_lock) {
  constexpr uint64_t kRounds = 40;
  std::atomic<bool> end{false};
  std::atomic<uint64_t> polls{0}, overtook{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3 * std::thread::hardware_concurrency(); i++)
    threads.emplace_back([&] {
      while (!end) {
      }
    });
  threads.emplace_back([&] {
    ibv_wc wc{};
    for (; !end; polls++) {
      const bool waited = context->first_waits();
      context->poll_cq(qp->send_cq, 1, &wc);
      if (waited && context->first_waits()) overtook++;
    }
  });
  for (uint64_t i = 0; i < kRounds; i++) {
    const uint64_t before = polls;
    while (polls < before + 100) std::this_thread::yield();
    the_board().arm(
        parse_fault(YAML::Load("{target: node0/nic0, at: now, kind: qp_error, qp: all}"), "test"));
    context->sync(monotonic_ns());
    the_board().heal_all();
    context->sync(monotonic_ns());
    ASSERT_EQ(move_to(IBV_QPS_RESET), 0);
    ASSERT_EQ(move_to(IBV_QPS_RTS), 0);
  }
  end = true;
  for (std::thread& thread : threads) thread.join();
  // It may wait again just when a poll that has let it go first has the lock.
  EXPECT_LE(overtook, kRounds);
}

class XrcSendTest : public StateTest {
 protected:
  XrcSendTest() : StateTest(IBV_QPT_XRC_SEND) {}
};

TEST_F(XrcSendTest, over_a_dead_port_notices_as_a_connected_queue_pair_does) {
  strike("kind: port_down");
  ibv_send_wr wr{}, *bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(qp->send_cq, 1, &wc), 0) << "its retries are not over";
  EXPECT_EQ(device.posted.at(0).opcode, wr.opcode);
}

// The end that receives has no completion queues of its own.
class XrcReceiveTest : public StateTest {
 protected:
  XrcReceiveTest() : StateTest(IBV_QPT_XRC_RECV, false) {}
};

TEST_F(XrcReceiveTest, of_a_dead_port_is_cut_and_ended_by_its_program) {
  strike("kind: port_down");
  EXPECT_EQ(query(), IBV_QPS_RTS);
  EXPECT_EQ(move_to(IBV_QPS_ERR), 0);
  EXPECT_EQ(query(), IBV_QPS_ERR);
  EXPECT_EQ(move_to(IBV_QPS_RESET), 0);
}

class RawPacketTest : public StateTest {
 protected:
  RawPacketTest() : StateTest(IBV_QPT_RAW_PACKET) {}
};

TEST_F(RawPacketTest, over_a_dead_port_sends_as_ever) {
  const uint32_t id = the_board().arm(
      parse_fault(YAML::Load("{target: node0/nic0, at: now, kind: port_down, events: false}"), "test"));
  context->sync(monotonic_ns());
  ibv_sge piece{0x2000, 64, 1};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  EXPECT_EQ(device.posted.at(0).opcode, IBV_WR_SEND);
  EXPECT_EQ(device.data.at(0), piece.addr);
  EXPECT_EQ(the_board().state(id).t0_ns, 0u);
}

}  // namespace
}  // namespace faultinject::testing
