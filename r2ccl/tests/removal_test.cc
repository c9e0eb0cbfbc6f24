// SPDX-License-Identifier: Apache-2.0
// Devices that are removed, or fail as a whole: their commands are refused, or answered without being carried
// out, while what they have taken in is still placed. The receiver's fence is enough; the word of a device
// that has failed is none, and its kernel's is.
#include <dirent.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/eventually.h"
#include "r2ccl/tests/testing/faulty_driver.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Answer = FaultyDriver::Answer;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// CPU time of this process's service thread, in seconds.
double service_cpu() {
  double sum = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    const std::string task = std::string("/proc/self/task/") + entry->d_name;
    uint64_t nanoseconds = 0;
    std::string name;
    std::ifstream(task + "/comm") >> name;
    std::ifstream(task + "/schedstat") >> nanoseconds;
    if (name == "r2ccl-service") sum += double(nanoseconds) / 1e9;
  }
  closedir(tasks);
  return sum;
}

/// NIC 0 of each node carries `slow` bits a second, NIC 1 as much as it can.
vhca::FabricHost uneven_fabric(uint64_t slow) {
  vhca::FabricSpec spec;
  for (int n = 0; n < 2; ++n)
    spec.nodes.push_back({"node" + std::to_string(n), {vhca::PortSpec{slow, {}}, vhca::PortSpec{0, {}}}});
  return vhca::FabricHost::create(spec);
}

constexpr uint64_t kMessages = 600;
constexpr uint64_t kSlow = 2'000'000'000;  // bits/s: there is something on its way whenever a NIC fails

enum Ends : unsigned { kSenders = 1, kReceivers = 2, kBoth = 3 };

/// Traffic over NIC 0, whose device fails at `ends` in the middle of it. Its commands then come to `answer`;
/// `removed`: when late writes have been placed, the kernel destroys its queue pairs and closes the context.
void fails_in_the_middle(Ends ends, Answer answer, bool removed) {
  const auto fabric = uneven_fabric(kSlow);
  const auto body = [&](const Link& link, bool send) {
    const bool struck = ends & (send ? kSenders : kReceivers);
    if (struck) FaultyDriver::can_be_disassociated(0);
    Net* n = net();
    ASSERT_NE(n, nullptr);
    Listener* listener = nullptr;
    Channel* channel = send ? connect_one(*n, 0, link) : accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    const auto bytes = [&] { return fabric.counters(1, 0).rx_bytes; };
    std::thread striker([&, before = bytes()] {
      if (!struck) return;
      EXPECT_TRUE(eventually([&] { return bytes() > before + 20'000'000; }));
      FaultyDriver::answer(0, answer, answer);
      if (ends ==
          kBoth) {  // before either notices: behind a fence of the other end this one has no part in it
        say(link);
        wait_for_word(link);
      }
      FaultyDriver::report(0, IBV_EVENT_DEVICE_FATAL);
      FaultyDriver::Nic& nic = FaultyDriver::nic(0);
      EXPECT_TRUE(eventually([&] { return nic.delivered > 0 && nic.refused + nic.pretended >= 2; }));
      if (!removed) return;
      if (!send) {  // what it receives does not go on before
        const uint64_t other = fabric.counters(1, 1).rx_bytes;
        std::this_thread::sleep_for(200ms);
        EXPECT_LT(fabric.counters(1, 1).rx_bytes, other + 1'000'000)
            << "sent again while its device may write";
      }
      FaultyDriver::disassociate(0);
    });
    send ? send_messages(*n, channel, 0, kMessages) : receive_messages(*n, channel, 0, kMessages);
    striker.join();
    if (struck && removed) {
      const double before = service_cpu();
      const auto start = Clock::now();
      std::this_thread::sleep_for(500ms);
      const double share = (service_cpu() - before) / seconds_since(start);
      EXPECT_LT(share, 0.3) << "of a CPU for a descriptor that polls as POLLERR for ever";
      EXPECT_TRUE(channel->context().nic_unusable[0]);
    }
    const auto start = Clock::now();
    EXPECT_TRUE(n->close(channel).ok());
    if (listener) {
      EXPECT_TRUE(n->close(listener).ok());
    }
    EXPECT_LT(seconds_since(start), 4.0) << "nothing waits for a device that has failed";
    if (struck) FaultyDriver::destroy_all(0);
  };
  const Child receiver = start(fabric, 1, {}, [&](const Link& link) { body(link, false); });
  const Child sender = start(fabric, 0, {}, [&](const Link& link) { body(link, true); });
  relay_handle(receiver, sender);
  if (ends == kBoth) {
    const Child* const both[] = {&sender, &receiver};
    for (const Child* child : both) wait_for_word(child->link);
    for (const Child* child : both) say(child->link);
  }
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes, 10'000'000u) << "the rest went over the other NIC";
}

TEST(Removal, a_sender_whose_device_refuses_every_command_goes_on_behind_the_receivers_fence) {
  fails_in_the_middle(kSenders, Answer::kRefused, false);
}
TEST(Removal, a_sender_whose_device_only_pretends_goes_on_behind_the_receivers_fence) {
  fails_in_the_middle(kSenders, Answer::kPretended, false);
}
TEST(Removal, a_receiver_whose_device_only_pretends_goes_on_when_the_kernel_has_stopped_it) {
  fails_in_the_middle(kReceivers, Answer::kPretended, true);
}
TEST(Removal, a_sender_whose_device_is_removed_goes_on_and_is_not_kept_busy) {
  fails_in_the_middle(kSenders, Answer::kRefused, true);
}
TEST(Removal, a_receiver_whose_device_is_removed_goes_on_when_the_kernel_has_stopped_it) {
  fails_in_the_middle(kReceivers, Answer::kRefused, true);
}
TEST(Removal, two_ends_whose_devices_are_removed_go_on_when_the_kernel_has_stopped_them) {
  fails_in_the_middle(kBoth, Answer::kRefused, true);
}

// --- late writes

constexpr size_t kLarge = 8 << 20;
constexpr uint64_t kCrawl = 40'000'000;  // bits/s: a message takes longer than all bounds together

struct LateWrites {
  bool received = false;       ///< the program was told that the message is there
  bool written_after = false;  ///< … and then its buffer was written to
  ErrorCode error = ErrorCode::kOk;
  char text[512] = "";
};

/// One message over NIC 0, whose device fails at `ends` in the middle of it: its commands come to `answer`,
/// and it goes on as if nothing had happened; no kernel stops it. `event`: what the devices say of
/// themselves.
LateWrites fail_for_good(Ends ends, Answer answer, ibv_event_type event) {
  const auto fabric = uneven_fabric(kCrawl);
  auto* const seen = static_cast<LateWrites*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  // At all of them before any notices.
  const auto strike = [&](Ends end, const Link& link) {
    if (ends & end) FaultyDriver::answer(0, answer, answer);
    say(link);
    wait_for_word(link);
    if (ends & end) FaultyDriver::report(0, event);
  };
  const auto arrived = [&] { return fabric.counters(1, 0).rx_bytes; };
  // A message that is delivered in one burst would leave nothing to come late.
  const Environment patient{{"R2CC_STUCK_MS", "60000"}, {"R2CC_REMOVAL_MS", "1500"}};
  const Child receiver = start(fabric, 1, patient, [&](const Link& link) {
    Net* n = net();
    Listener* listener = nullptr;
    Channel* channel = accept_one(*n, 0, link, listener);
    ASSERT_NE(channel, nullptr);
    std::vector<uint8_t> buffer(kLarge, 0xee);
    auto reg = n->reg(channel, buffer.data(), buffer.size());
    ASSERT_TRUE(reg.ok());
    const uint64_t before = arrived();
    Request* open = post_receive(*n, channel, buffer.data(), buffer.size(), *reg);
    ASSERT_NE(open, nullptr);
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(n->test(open).ok());
      return arrived() > before + 100'000;
    }));
    say(link);
    wait_for_word(link);
    strike(kReceivers, link);
    for (const auto until = Clock::now() + 20s; Clock::now() < until;) {
      auto outcome = n->test(open);
      if (!outcome) {
        seen->error = outcome.error().code;
        std::snprintf(seen->text, sizeof seen->text, "%s", outcome.error().message.c_str());
        break;
      }
      if ((seen->received = outcome->done)) break;
    }
    if (seen->received) {  // it belongs to the program again
      std::memset(buffer.data(), 0xee, buffer.size());
      const uint64_t late = arrived();
      EXPECT_TRUE(eventually([&] { return arrived() > late + 500'000; })) << "nothing came late";
      for (const uint8_t byte : buffer) seen->written_after |= byte != 0xee;
    }
    fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);  // nothing could be closed in order here
  });
  const Child sender = start(fabric, 0, patient, [&](const Link& link) {
    Net* n = net();
    Channel* channel = connect_one(*n, 0, link);
    ASSERT_NE(channel, nullptr);
    std::vector<uint8_t> buffer(kLarge, 7);
    auto reg = n->reg(channel, buffer.data(), buffer.size());
    ASSERT_TRUE(reg.ok());
    Result<Request*> request = nullptr;
    while (request && !*request) request = n->isend(channel, buffer.data(), buffer.size(), *reg);
    ASSERT_TRUE(request.ok());
    wait_for_word(link);
    strike(kSenders, link);
    const auto until = Clock::now() + 20s;
    for (bool done = false; !done && Clock::now() < until;) {
      auto outcome = n->test(*request);
      done = !outcome || outcome->done;
    }
    wait_for_word(link);
    fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  });
  relay_handle(receiver, sender);
  wait_for_word(receiver.link);
  const Child* const both[] = {&sender, &receiver};
  for (const Child* child : both) say(child->link);
  for (const Child* child : both) wait_for_word(child->link);
  for (const Child* child : both) say(child->link);
  EXPECT_EQ(receiver.wait(60s), 0);
  say(sender.link);
  EXPECT_EQ(sender.wait(60s), 0);
  const LateWrites result = *seen;
  munmap(seen, 4096);
  return result;
}

// What the rule prevents: a driver's word, believed, of devices that go on. They say nothing of a failure, so
// that nothing is known against them.
TEST(Removal, who_believes_a_device_that_has_failed_corrupts_memory) {
  const LateWrites seen = fail_for_good(kBoth, Answer::kPretended, IBV_EVENT_PORT_ERR);
  EXPECT_TRUE(seen.received) << seen.text;
  EXPECT_TRUE(seen.written_after) << "then the tests below prove nothing";
}

void expect_no_corruption(const LateWrites& seen) {
  EXPECT_FALSE(seen.received);
  EXPECT_FALSE(seen.written_after);
  EXPECT_EQ(seen.error, ErrorCode::kUnfenceable) << seen.text;
  EXPECT_NE(std::string(seen.text).find("its kernel has not stopped it within 1500 ms (R2CC_REMOVAL_MS)"),
            std::string::npos)
      << seen.text;
}

TEST(Removal, two_devices_that_have_failed_and_only_pretend_end_the_channel_and_corrupt_nothing) {
  expect_no_corruption(fail_for_good(kBoth, Answer::kPretended, IBV_EVENT_DEVICE_FATAL));
}
TEST(Removal, two_devices_that_refuse_every_command_end_the_channel_and_corrupt_nothing) {
  expect_no_corruption(fail_for_good(kBoth, Answer::kRefused, IBV_EVENT_DEVICE_FATAL));
}
// However well the sender's is: what the receiver's NIC has taken in it may write at any time.
TEST(Removal, a_receivers_device_that_nobody_stops_ends_the_channel_and_corrupts_nothing) {
  for (const Answer answer : {Answer::kRefused, Answer::kPretended})
    expect_no_corruption(fail_for_good(kReceivers, answer, IBV_EVENT_DEVICE_FATAL));
}
// EIO is believed no more than an event.
TEST(Removal, two_devices_that_refuse_every_command_and_say_nothing_end_the_channel_and_corrupt_nothing) {
  expect_no_corruption(fail_for_good(kBoth, Answer::kRefused, IBV_EVENT_PORT_ERR));
}

}  // namespace
}  // namespace r2ccl
