// SPDX-License-Identifier: Apache-2.0
// GPU memory whose NICs' writes are seen late (VHCA_DELAY_VISIBILITY, over a stand-in for the GPU): a message
// is done only when every NIC that wrote has been flushed, through failures and spread over NICs. Where the
// flush is left out, or made on one NIC alone, the same check finds old bytes.
#include <gtest/gtest.h>

#include "harness/vhca/testing/stand_in_gpu.h"
#include "r2ccl/protocol/unflushed.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

const Environment kLate{{"R2CC_GPU_DIRECT", "1"},
                        {"VHCA_DELAY_VISIBILITY", "30000"},
                        {"R2CC_FAILBACK_MS", "5"},
                        {"R2CC_FAILBACK_MAX_MS", "20"},
                        {"R2CC_FAIL_BOUND_MS", "20000"}};

Environment with(Environment environment, std::initializer_list<std::pair<const char*, const char*>> more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

class GpuVisibility : public ::testing::Test {
 protected:
  GpuVisibility() {
    gpu_memory = [](size_t bytes) {
      static const vhca::test::StandInGpu gpu;
      const uint64_t at = gpu.allocate(bytes);
      return GpuMemory{reinterpret_cast<uint8_t*>(at), gpu.view(at)};
    };
  }
  ~GpuVisibility() override { gpu_memory = nullptr; }
};

/// Traffic that loses its NIC on each side in turn, in mid-transfer, until enough were lost.
void carry_through_failures(const Environment& environment, Slots::Kind sends, Slots::Kind receives) {
  const auto fabric = make_fabric(2, 3);
  FaultingNet faulting_net(fabric);
  const Child receiver = start(fabric, 1, environment, [=](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* c) { receive_rounds(n, c, link, receives); });
  });
  const Child sender = start(fabric, 0, environment, [=](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* c) { send_rounds(n, c, link, sends); });
  });
  relay_handle(receiver, sender);
  faulting_net.start([random = std::minstd_rand(11)](FaultingNet& s) mutable {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    s.strike(int(random() % 2), int(random() % 3));
  });
  run_rounds(receiver, sender, [&] { return faulting_net.broken() >= 60; });
  faulting_net.stop();
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_GE(faulting_net.broken(), 60);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes + fabric.counters(0, 2).tx_bytes, 1'000'000u) << "no migration";
}

TEST_F(GpuVisibility, migration) { carry_through_failures(kLate, Slots::Kind::kGpu, Slots::Kind::kGpu); }

TEST_F(GpuVisibility, balance) {
  carry_through_failures(with(kLate, {{"R2CC_MODE", "2"}}), Slots::Kind::kGpu, Slots::Kind::kGpu);
}

TEST_F(GpuVisibility, from_host_memory) {
  carry_through_failures(kLate, Slots::Kind::kHost, Slots::Kind::kGpu);
}

TEST_F(GpuVisibility, without_delay) {
  Environment at_once = with(kLate, {{"R2CC_MODE", "2"}});
  at_once.erase("VHCA_DELAY_VISIBILITY");
  carry_through_failures(at_once, Slots::Kind::kGpu, Slots::Kind::kGpu);
}

/// How many of messages `first` up to `messages` were not what was sent when test() said done.
uint64_t count_wrong(Net& net, Channel* channel, const Slots& buffer, Registration* reg, uint64_t first,
                     uint64_t messages) {
  std::vector<uint8_t> wanted(kLargest);
  uint64_t wrong = 0;
  for (uint64_t message = first; message < messages; ++message) {
    Request* const request = post_receive(net, channel, buffer.address(0), kLargest, reg);
    if (!request) return ~uint64_t{0};
    for (;;) {
      auto outcome = net.test(request);
      EXPECT_TRUE(outcome.ok()) << outcome.error().message;
      if (!outcome) return ~uint64_t{0};
      if (!outcome->done) continue;
      fill_message(message, wanted.data(), outcome->bytes);
      wrong += std::memcmp(buffer.view(0), wanted.data(), outcome->bytes) != 0;
      break;
    }
  }
  return wrong;
}

constexpr uint64_t kBefore = 18, kAll = 72;

/// Wrong messages before and after the NIC that the channel began on was lost for good.
struct Wrong {
  uint64_t before, after;
};
Wrong lose_home_nic(const Environment& environment) {
  const auto fabric = make_fabric(2, 3);
  FaultingNet faulting_net(fabric);
  const Environment lasting =
      with(environment, {{"R2CC_FAILBACK_MS", "600000"}, {"R2CC_FAILBACK_MAX_MS", "600000"}});
  const Child receiver = start(fabric, 1, lasting, [=](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* c) {
      Slots buffer(Slots::Kind::kGpu, kLargest);
      auto reg = buffer.reg(n, c);
      ASSERT_TRUE(reg.ok()) << reg.error().message;
      Wrong wrong{count_wrong(n, c, buffer, *reg, 0, kBefore), 0};
      char word = 'r';
      link.send(&word, 1);
      ASSERT_TRUE(link.receive(&word, 1));
      wrong.after = count_wrong(n, c, buffer, *reg, kBefore, kAll);
      link.send(&wrong, sizeof wrong);
      ASSERT_TRUE(n.dereg(c, *reg).ok());
    });
  });
  const Child sender = start(fabric, 0, lasting, [=](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* c) { send_messages(n, c, 0, kAll, Slots::Kind::kGpu); });
  });
  relay_handle(receiver, sender);
  char word;
  EXPECT_TRUE(receiver.link.receive(&word, 1));
  EXPECT_GT(faulting_net.strike(1, 0), 0);
  receiver.link.send(&word, 1);
  Wrong wrong{~uint64_t{0}, ~uint64_t{0}};
  EXPECT_TRUE(receiver.link.receive(&wrong, sizeof wrong));
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  return wrong;
}

// Two of nine messages have a size of 0 or 1, and are rarely wrong by their looks.
constexpr uint64_t kMostlyWrong = 5;

TEST_F(GpuVisibility, a_flush_on_each_nic_is_enough) {
  for (const char* mode : {"1", "2"}) {
    const Wrong wrong = lose_home_nic(with(kLate, {{"R2CC_MODE", mode}}));
    EXPECT_EQ(wrong.before, 0u);
    EXPECT_EQ(wrong.after, 0u);
  }
}

TEST_F(GpuVisibility, without_a_flush_the_check_finds_old_bytes) {
  const Wrong wrong = lose_home_nic(with(kLate, {{"R2CC_GPU_FLUSH", "0"}}));
  EXPECT_GE(wrong.before, kMostlyWrong);
  EXPECT_GE(wrong.after, kMostlyWrong);
}

TEST_F(GpuVisibility, with_a_flush_on_the_home_nic_alone_the_check_finds_old_bytes) {
  for (const char* mode : {"1", "2"}) {
    const Wrong wrong = lose_home_nic(with(kLate, {{"R2CC_MODE", mode}, {"R2CC_GPU_FLUSH", "2"}}));
    EXPECT_EQ(wrong.before, 0u) << "mode " << mode;
    EXPECT_GE(wrong.after, kMostlyWrong) << "mode " << mode;
  }
}

TEST(Unflushed, a_flush_shows_what_came_over_its_path_before_it) {
  Unflushed unflushed;
  unflushed.arrived(7, 0, 100, 1);
  unflushed.arrived(7, 1, 50, 2);
  unflushed.arrived(8, 0, 10, 1);
  const uint64_t covered = unflushed.newest(1)->order;
  unflushed.arrived(9, 0, 10, 1);
  std::vector<uint64_t> seen;
  const auto note = [&](const Unflushed::Segment& segment) { seen.push_back(segment.message); };
  unflushed.take(1, covered, note);
  EXPECT_EQ(seen, (std::vector<uint64_t>{7, 8}));
  ASSERT_NE(unflushed.newest(1), nullptr);
  EXPECT_EQ(unflushed.newest(1)->message, 9u);
  EXPECT_EQ(unflushed.newest(3), nullptr);
  seen.clear();
  unflushed.take(2, note);  // the path is left
  EXPECT_EQ(seen, (std::vector<uint64_t>{7}));
  unflushed.take(1, note);
  EXPECT_TRUE(unflushed.empty());
}

}  // namespace
}  // namespace r2ccl
