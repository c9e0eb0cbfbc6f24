// SPDX-License-Identifier: Apache-2.0
// What is lost without any error, on a NIC that works.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/deaf.h"
#include "r2ccl/tests/testing/lost_packet.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

// The data is there, the sender's NIC has reported it, and the receiver never hears of it: nobody's queue
// pair stands still. Each time the traffic has to move.
TEST(Silence, a_message_that_the_nic_reported_and_the_receiver_never_saw_is_sent_again) {
  const auto fabric = make_fabric(2, 2);
  const Environment impatient{{"R2CC_SUSPECT_MS", "2"}, {"R2CC_FAILBACK_MS", "5"}};
  const Child receiver = start(fabric, 1, impatient, [](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    const Deaf deaf(channel->context(), 200);
    receive_messages(*n, channel, 0, 1000);
    EXPECT_GE(deaf.missed(), 4u);
    EXPECT_TRUE(n->close(channel).ok());
    EXPECT_TRUE(n->close(listener).ok());
  });
  const Child sender = start(fabric, 0, impatient, [](const Link& link) { send_all(link, 1000); });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes, 1'000'000u) << "no migration";
}

// The receiver is stopped, so the sender probes its rail. One lost packet is no dead rail.
TEST(Silence, a_probe_that_loses_one_packet_is_answered) {
  const auto fabric = make_fabric(2, 2);
  const Environment wide{{"R2CC_PROBE_MS", std::to_string(40 * kSanitizerFactor)}};
  const Child receiver = start(fabric, 1, wide, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_rounds(n, channel, link); });
  });
  const Child sender = start(fabric, 0, wide, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) {
      const LostPacket packet(channel->context(), &LostPacket::is_probe, 1);
      send_rounds(n, channel, link);
      EXPECT_TRUE(packet.lost() && packet.sent_again());
    });
  });
  relay_handle(receiver, sender);
  std::thread stopper([&receiver] {
    for (int i = 0; i < 20; ++i) {  // between two rounds nothing is open
      std::this_thread::sleep_for(20ms);
      kill(receiver.pid, SIGSTOP);
      std::this_thread::sleep_for(100ms * kSanitizerFactor);
      kill(receiver.pid, SIGCONT);
    }
  });
  const auto end = std::chrono::steady_clock::now() + 20 * (130ms + 100ms * (kSanitizerFactor - 1));
  run_rounds(receiver, sender, [&] { return std::chrono::steady_clock::now() > end; });
  stopper.join();
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_LT(fabric.counters(0, 1).tx_bytes, 500'000u) << "traffic has migrated";
}

// The stall ends before half of the time for the answer is over. The probe is still repeated, and the next
// stall does not find it too old.
TEST(Silence, a_probe_that_loses_a_packet_in_a_stall_that_soon_ends_is_answered) {
  const auto fabric = make_fabric(2, 2);
  const Environment wide{{"R2CC_PROBE_MS", std::to_string(200 * kSanitizerFactor)}};
  const Child receiver = start(fabric, 1, wide, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_rounds(n, channel, link); });
  });
  const Child sender = start(fabric, 0, wide, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) {
      const LostPacket packet(channel->context(), &LostPacket::is_probe, 1);
      send_rounds(n, channel, link);
      EXPECT_TRUE(packet.lost() && packet.sent_again());
    });
  });
  relay_handle(receiver, sender);
  std::atomic<bool> over{false};
  std::thread stopper([&] {
    for (int i = 0; i < 6; ++i) {
      std::this_thread::sleep_for(20ms);
      kill(receiver.pid, SIGSTOP);
      std::this_thread::sleep_for(40ms * kSanitizerFactor);
      kill(receiver.pid, SIGCONT);
      if (i == 0) std::this_thread::sleep_for(400ms * kSanitizerFactor);  // longer than R2CC_PROBE_MS
    }
    over = true;
  });
  run_rounds(receiver, sender, [&] { return over.load(); });
  stopper.join();
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_LT(fabric.counters(0, 1).tx_bytes, 500'000u) << "traffic has migrated";
}

// The last packet of all that is under way: nothing follows that would show the gap, and the queue pair
// stands still for R2CC_STUCK_MS.
TEST(Silence, a_last_message_that_loses_one_packet_is_sent_again_over_the_same_path) {
  constexpr uint64_t kLast = 53;
  const auto fabric = make_fabric(2, 2);
  const Environment patient{{"R2CC_STUCK_MS", "20000"}};
  const Child receiver = start(fabric, 1, patient, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_messages(n, channel, 0, 2 * kLast); });
  });
  const Child sender = start(fabric, 0, patient, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) {
      const LostPacket packet(channel->context(), &LostPacket::is_segment, int(kLast));
      send_messages(n, channel, 0, kLast);
      EXPECT_TRUE(packet.lost() && packet.sent_again());
      send_messages(n, channel, kLast, 2 * kLast);
    });
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
  EXPECT_LT(fabric.counters(0, 1).tx_bytes, 500'000u) << "traffic has migrated";
}

}  // namespace
}  // namespace r2ccl
