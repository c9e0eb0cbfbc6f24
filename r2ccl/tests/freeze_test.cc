// SPDX-License-Identifier: Apache-2.0
// NICs whose driver does not answer: who needs its answer gets an error within the bound, and nobody else
// waits. A sender needs none: the receiver's fence is enough.
#include <gtest/gtest.h>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/eventually.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/frozen_driver.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Tests an open request until the channel fails; the error, or none after 30 s.
Error until_failure(Net& net, Request* request) {
  const auto deadline = Clock::now() + 30s;
  while (Clock::now() < deadline) {
    auto outcome = net.test(request);
    if (!outcome) return outcome.error();
    if (outcome->done) return Error{ErrorCode::kOk, "the message arrived"};
    std::this_thread::sleep_for(100us);
  }
  return Error{ErrorCode::kOk, "nothing for 30 s"};
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Two channels of one process, each on a NIC of its own. The first one's NIC freezes and its queue pair
// breaks; while its fence is held, the other one's breaks, too, and has to move.
void two_channels(int frozen_node) {
  const auto fabric = make_fabric(2, 3);
  const Environment environment{{"R2CC_REGISTER_MS", "500"}};
  const uint64_t kBefore = 20, kAll = 1500;
  const auto freeze_and_report = [](const Link& link) {
    FrozenDriver::freeze(0);
    say(link);  // the parent breaks the first channel
    ASSERT_TRUE(eventually([] { return FrozenDriver::held() > 0; }));
    say(link);  // … and the second one
  };
  const auto check_own = [](const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUnfenceable) << error.message;
    EXPECT_NE(error.message.find("the driver of NIC vhca0 has not returned from ibv_modify_qp"),
              std::string::npos)
        << error.message;
  };
  const auto check_told = [](const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUnfenceable) << error.message;
    EXPECT_NE(error.message.find("reported by "), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("has not returned from ibv_modify_qp"), std::string::npos) << error.message;
  };
  const Child receiver = start(fabric, 1, environment, [&](const Link& link) {
    Net* n = net();
    Listener *listener_a = nullptr, *listener_b = nullptr;
    Channel* a = accept_one(*n, 0, link, listener_a);
    Channel* b = accept_one(*n, 1, link, listener_b);
    ASSERT_TRUE(a && b);
    receive_messages(*n, a, 0, kBefore);
    receive_messages(*n, b, 0, kBefore);
    std::vector<uint8_t> buffer(4096);
    auto reg = n->reg(a, buffer.data(), buffer.size());
    ASSERT_TRUE(reg.ok());
    Request* open = post_receive(*n, a, buffer.data(), buffer.size(), *reg);
    ASSERT_NE(open, nullptr);
    say(link);
    if (frozen_node == 1) freeze_and_report(link);
    receive_messages(*n, b, kBefore, kAll);
    const Error error = until_failure(*n, open);
    if (frozen_node == 1)
      check_own(error);
    else
      EXPECT_EQ(error.message, "the message arrived");
    const auto start = Clock::now();
    EXPECT_TRUE(n->close(a).ok());
    EXPECT_LT(seconds_since(start), 4.0);
    EXPECT_TRUE(n->close(b).ok());
    FrozenDriver::thaw();
    EXPECT_TRUE(n->dereg(a, *reg).ok());
    EXPECT_TRUE(n->close(listener_a).ok());
    EXPECT_TRUE(n->close(listener_b).ok());
  });
  const Child sender = start(fabric, 0, environment, [&](const Link& link) {
    Net* n = net();
    Channel* a = connect_one(*n, 0, link);
    Channel* b = connect_one(*n, 1, link);
    ASSERT_TRUE(a && b);
    send_messages(*n, a, 0, kBefore);
    send_messages(*n, b, 0, kBefore);
    std::vector<uint8_t> buffer(4096);
    auto reg = n->reg(a, buffer.data(), buffer.size());
    ASSERT_TRUE(reg.ok());
    if (frozen_node == 0) freeze_and_report(link);
    send_messages(*n, b, kBefore, kAll);
    if (frozen_node == 0) {
      Result<Request*> request = nullptr;
      while (request && !*request) request = n->isend(a, buffer.data(), buffer.size(), *reg);
      ASSERT_TRUE(request.ok()) << request.error().message;
      EXPECT_EQ(until_failure(*n, *request).message, "the message arrived");
      EXPECT_GT(FrozenDriver::held(), 0);
    } else {
      EXPECT_TRUE(eventually([&] { return a->status() == Status::kFailed; }));
      check_told(a->error());
    }
    const auto start = Clock::now();
    EXPECT_TRUE(n->close(a).ok());
    EXPECT_LT(seconds_since(start), 4.0);
    EXPECT_TRUE(n->close(b).ok());
    FrozenDriver::thaw();
    EXPECT_TRUE(n->dereg(a, *reg).ok());
  });
  relay_handle(receiver, sender);
  relay_handle(receiver, sender);
  wait_for_word(receiver.link);
  const Child& frozen = frozen_node == 0 ? sender : receiver;
  FaultingNet faulting_net(fabric);
  wait_for_word(frozen.link);
  EXPECT_GT(faulting_net.strike(frozen_node, 0, 16), 0);
  wait_for_word(frozen.link);
  EXPECT_GT(faulting_net.strike(frozen_node, 1, 16), 0);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
}

TEST(Freeze, a_sender_whose_driver_keeps_its_fence_goes_on_behind_the_receivers) { two_channels(0); }

TEST(Freeze, a_receiver_whose_driver_keeps_its_fence_fails_alone) { two_channels(1); }

TEST(Freeze, a_nic_on_which_no_queue_pair_can_be_made_is_passed_over) {
  const auto fabric = make_fabric(2, 3);
  const Environment brief{
      {"R2CC_FENCE_MS", "100"}, {"R2CC_REGISTER_MS", "500"}, {"R2CC_FAILBACK_MS", "100000"}};
  const uint64_t kAll = 1500, kRound = 100;
  const auto moved = [&] { return fabric.counters(0, 2).tx_bytes > 1'000'000; };
  const Child receiver = start(fabric, 1, brief, [&](const Link& link) { receive_all(link, kAll); });
  const Child sender = start(fabric, 0, brief, [&](const Link& link) {
    Net* n = net();
    FrozenDriver::freeze(1, FrozenDriver::kCreate);
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*n, channel, 0, kRound);
    ASSERT_TRUE(eventually([] { return FrozenDriver::held() > 0; })) << "the backup next to it is not tried";
    ASSERT_TRUE(eventually([&] { return channel->context().workers->stuck(1); }));
    FrozenDriver::freeze(1, FrozenDriver::kAll);  // what is registered from now on must do without it
    uint64_t done = kRound;
    for (; !moved() && done < 10 * kRound; done += kRound) {  // a slow machine may find its own NIC again
      say(link);
      wait_for_word(link);
      send_messages(*n, channel, done, done + kRound);
    }
    EXPECT_TRUE(moved());
    send_messages(*n, channel, done, kAll);
    EXPECT_GT(FrozenDriver::held(), 0);
    const auto start = Clock::now();
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_LT(seconds_since(start), 4.0);
    FrozenDriver::thaw();
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  for (char word; sender.link.receive(&word, 1); say(sender.link)) faulting_net.strike(0, 0, 16);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_LT(fabric.counters(0, 1).tx_bytes, 1'000'000u);
}

// The sender waits for the other half of the path without a bound of its own: its peer may be stopped.
TEST(Freeze, a_nic_of_the_receiver_on_which_no_queue_pair_can_be_made_is_passed_over_at_connect) {
  const auto fabric = make_fabric(2, 2);
  const Environment brief{{"R2CC_FENCE_MS", "100"}, {"R2CC_REGISTER_MS", "500"}};
  const Child receiver = start(fabric, 1, brief, [&](const Link& link) {
    Net* n = net();
    FrozenDriver::freeze(0, FrozenDriver::kCreate);
    Listener* listener = nullptr;
    const auto start = Clock::now();
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    EXPECT_LT(seconds_since(start), 5.0);
    receive_messages(*n, channel, 0, 200);
    EXPECT_GT(FrozenDriver::held(), 0);
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->close(listener).ok());
    FrozenDriver::thaw();
  });
  const Child sender = start(fabric, 0, brief, [&](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*n, channel, 0, 200);
    EXPECT_TRUE(n->close(channel).ok());
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
  EXPECT_GT(fabric.counters(1, 1).rx_bytes, 1'000'000u);
}

TEST(Freeze, a_nic_of_the_receiver_on_which_no_queue_pair_can_be_made_keeps_no_migration_up) {
  const auto fabric = make_fabric(2, 3);
  const Environment brief{
      {"R2CC_FENCE_MS", "300"}, {"R2CC_REGISTER_MS", "500"}, {"R2CC_FAILBACK_MS", "100000"}};
  const uint64_t kAll = 1500, kRound = 100;
  const auto moved = [&] { return fabric.counters(0, 2).tx_bytes > 1'000'000; };
  const Child receiver = start(fabric, 1, brief, [&](const Link& link) {
    Net* n = net();
    FrozenDriver::freeze(1, FrozenDriver::kCreate);  // of the standby, which is being opened meanwhile
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive_messages(*n, channel, 0, kAll);
    EXPECT_GT(FrozenDriver::held(), 0);
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->close(listener).ok());
    FrozenDriver::thaw();
  });
  const Child sender = start(fabric, 0, brief, [&](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    uint64_t done = 0;
    for (; !moved() && done < 10 * kRound; done += kRound) {  // a slow machine may find its own NIC again
      say(link);
      wait_for_word(link);
      send_messages(*n, channel, done, done + kRound);
    }
    EXPECT_TRUE(moved());
    send_messages(*n, channel, done, kAll);
    EXPECT_TRUE(n->close(channel).ok());
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  for (char word; sender.link.receive(&word, 1); say(sender.link)) faulting_net.strike(0, 0, 16);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// The message lies in the completion queue, which the worker has in hand while the driver does not answer.
TEST(Freeze, what_a_process_sent_before_it_ended_is_received_though_its_path_is_being_fenced) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {{"R2CC_FENCE_MS", "2000"}}, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    std::vector<uint8_t> buffer(4096);
    auto reg = n->reg(channel, buffer.data(), buffer.size());
    ASSERT_TRUE(reg.ok());
    Request* open = post_receive(*n, channel, buffer.data(), 64, *reg);
    ASSERT_NE(open, nullptr);
    wait_for_word(link);  // it has been sent
    FrozenDriver::freeze(0, FrozenDriver::kModify);
    say(link);  // and now its queue pair breaks
    ASSERT_TRUE(eventually([] { return FrozenDriver::held() > 0; }));
    say(link);  // … and the sender ends
    wait_for_word(link);
    std::this_thread::sleep_for(200ms);  // the end is noticed
    FrozenDriver::thaw();
    ASSERT_TRUE(eventually([&] { return channel->status() == Status::kFailed; }));
    EXPECT_EQ(until_failure(*n, open).message, "the message arrived");
    EXPECT_EQ(buffer[0], 7);
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->dereg(channel, *reg).ok());
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    std::vector<uint8_t> buffer(4096, 7);
    auto reg = n->reg(channel, buffer.data(), buffer.size());
    ASSERT_TRUE(reg.ok());
    Result<Request*> request = nullptr;
    while (request && !*request) request = n->isend(channel, buffer.data(), 64, *reg);
    ASSERT_TRUE(request.ok());
    EXPECT_EQ(until_failure(*n, *request).message, "the message arrived");
    say(link);
    wait_for_word(link);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  });
  relay_handle(receiver, sender);
  wait_for_word(sender.link);
  say(receiver.link);
  wait_for_word(receiver.link);
  FaultingNet faulting_net(fabric);
  EXPECT_GT(faulting_net.strike(1, 0, 16), 0);
  wait_for_word(receiver.link);
  say(sender.link);
  EXPECT_EQ(sender.wait(60s), 0);
  say(receiver.link);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// All rounds of messages are sent by one call each, which registers its buffer before and gives it back
// after: the driver answers by then.
TEST(Freeze, a_queue_pair_that_cannot_be_destroyed_holds_nobody_up_and_its_nic_is_used_again_later) {
  const auto fabric = make_fabric(2, 2);
  const Environment brief{{"R2CC_FENCE_MS", "100"}, {"R2CC_FAILBACK_MS", "5"}};
  const uint64_t kFirst = 100, kThawed = 3000, kRound = 100;
  auto* last = static_cast<std::atomic<uint64_t>*>(  // message, excluded; 0: go on
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(last, MAP_FAILED);
  const Child receiver = start(fabric, 1, brief, [&](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    receive_messages(*n, channel, 0, kFirst);
    receive_messages(*n, channel, kFirst, kThawed);
    for (uint64_t done = kThawed; !last->load() || done < last->load(); done += kRound)
      receive_messages(*n, channel, done, done + kRound);
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, brief, [&](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    send_messages(*n, channel, 0, kFirst);
    FrozenDriver::freeze(0, FrozenDriver::kDestroy);
    say(link);
    std::thread thawing([&] {
      EXPECT_TRUE(eventually([] { return FrozenDriver::held() > 0; }));
      EXPECT_TRUE(eventually([&] { return channel->context().workers->stuck(0); }));
      FrozenDriver::thaw();
      EXPECT_TRUE(eventually([&] { return !channel->context().workers->stuck(0); }));
    });
    send_messages(*n, channel, kFirst, kThawed);
    thawing.join();
    const uint64_t before = fabric.counters(0, 0).tx_bytes;
    uint64_t done = kThawed;
    ASSERT_TRUE(eventually([&] {
      send_messages(*n, channel, done, done + kRound);
      done += kRound;
      return fabric.counters(0, 0).tx_bytes > before + 1'000'000;
    })) << "no failback after the driver answered";
    last->store(done + kRound);
    send_messages(*n, channel, done, done + kRound);
    EXPECT_TRUE(n->close(channel).ok());
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  wait_for_word(sender.link);
  EXPECT_GT(faulting_net.strike(0, 0, 16), 0);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  munmap(last, 4096);
}

// It has left its own NIC, which then takes no buffers any more: it goes on without.
TEST(Freeze, buffers_that_a_nic_does_not_take_are_sent_over_the_others) {
  const auto fabric = make_fabric(2, 2);
  const Environment brief{{"R2CC_REGISTER_MS", "500"}, {"R2CC_FAILBACK_MS", "100000"}};
  const uint64_t kAll = 1500, kRound = 100;
  const auto moved = [&] { return fabric.counters(0, 1).tx_bytes > 1'000'000; };
  const Child receiver = start(fabric, 1, brief, [&](const Link& link) { receive_all(link, kAll); });
  const Child sender = start(fabric, 0, brief, [&](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    uint64_t done = 0;
    for (; !moved() && done < 10 * kRound; done += kRound) {  // a slow machine may find its own NIC again
      send_messages(*n, channel, done, done + kRound);
      say(link);
      wait_for_word(link);
    }
    ASSERT_TRUE(moved());
    FrozenDriver::freeze(0, FrozenDriver::kRegister);
    std::vector<uint8_t> buffer(4096);
    auto reg = n->reg(channel, buffer.data(), buffer.size());
    ASSERT_TRUE(reg.ok()) << reg.error().message;
    EXPECT_GT(FrozenDriver::held(), 0);
    send_messages(*n, channel, done, kAll);
    EXPECT_TRUE(n->dereg(channel, *reg).ok());
    FrozenDriver::thaw();
    EXPECT_TRUE(n->close(channel).ok());
  });
  relay_handle(receiver, sender);
  FaultingNet faulting_net(fabric);
  for (char word; sender.link.receive(&word, 1); say(sender.link)) faulting_net.strike(0, 0, 16);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes, 1'000'000u);
}

}  // namespace
}  // namespace r2ccl
