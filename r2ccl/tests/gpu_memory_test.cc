// SPDX-License-Identifier: Apache-2.0
// GPU memory by dma-buf, as far as a machine without GPUs shows it: a memfd stands for the dma-buf, and the
// address that NCCL would pass cannot be read or written by anybody.
#include <gtest/gtest.h>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

const Environment kDirect{{"R2CC_GPU_DIRECT", "1"},
                          {"R2CC_FAILBACK_MS", "5"},
                          {"R2CC_FAILBACK_MAX_MS", "20"},
                          {"R2CC_FAIL_BOUND_MS", "20000"}};

Environment with(Environment environment, const char* name, const char* value) {
  environment[name] = value;
  return environment;
}

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
  faulting_net.start([random = std::minstd_rand(7)](FaultingNet& s) mutable {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    s.strike(int(random() % 2), int(random() % 3));
  });
  run_rounds(receiver, sender, [&] { return faulting_net.broken() >= 40; });
  faulting_net.stop();
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
  EXPECT_GE(faulting_net.broken(), 40);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes + fabric.counters(0, 2).tx_bytes, 1'000'000u) << "no migration";
}

TEST(GpuMemory, by_descriptor_survives_the_loss_of_nics) {
  carry_through_failures(kDirect, Slots::Kind::kDmaBuf, Slots::Kind::kDmaBuf);
}

TEST(GpuMemory, by_descriptor_is_spread_and_survives_the_loss_of_nics) {
  carry_through_failures(with(kDirect, "R2CC_MODE", "2"), Slots::Kind::kDmaBuf, Slots::Kind::kDmaBuf);
}

TEST(GpuMemory, meets_host_memory_at_the_other_end) {
  carry_through_failures(kDirect, Slots::Kind::kDmaBuf, Slots::Kind::kHost);
  carry_through_failures(kDirect, Slots::Kind::kHost, Slots::Kind::kDmaBuf);
}

TEST(GpuMemory, with_relaxed_ordering) {
  carry_through_failures(with(kDirect, "NCCL_IB_PCI_RELAXED_ORDERING", "1"), Slots::Kind::kDmaBuf,
                         Slots::Kind::kDmaBuf);
}

/// A channel between two processes of which the receiver does `body`; the sender stands by until it is done.
void in_a_receiver(const Environment& environment, const std::function<void(Net&, Channel*)>& body,
                   const vhca::FabricHost& fabric) {
  const Child receiver =
      start(fabric, 1, environment, [&](const Link& link) { receive_with(link, 0, body); });
  const Child sender = start(fabric, 0, environment, [](const Link& link) {
    send_with(link, 0, [&](Net&, Channel*) {
      char word;
      EXPECT_TRUE(link.receive(&word, 1));
    });
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(receiver.wait(60s), 0);
  sender.link.send("!", 1);
  EXPECT_EQ(sender.wait(60s), 0);
}

int memfd(size_t bytes) {
  const int fd = memfd_create("memory", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(fd, off_t(bytes)), 0);
  return fd;
}

TEST(GpuMemory, one_registration_for_one_memory_and_another_for_each_other) {
  const auto fabric = make_fabric(2, 2);
  in_a_receiver(
      with(kDirect, "R2CC_STANDBYS", "0"),  // nothing else is registered meanwhile
      [&](Net& net, Channel* channel) {
        std::vector<uint8_t> host(3 * 65536);
        void* const address = host.data() + (4096 - uintptr_t(host.data()) % 4096);
        const int one = memfd(3 * 65536), same = dup(one), other = memfd(3 * 65536);
        const auto reg = [&](const BufferMemory& memory) {
          auto registered = net.reg(channel, address, 65536, memory);
          EXPECT_TRUE(registered.ok()) << registered.error().message;
          return registered.ok() ? *registered : nullptr;
        };
        using Kind = BufferMemory::Kind;
        const size_t before = fabric.usage().memory_regions;
        const std::vector<Registration*> all = {
            reg({}), reg({Kind::kGpu, -1, 0}), reg({Kind::kDmaBuf, one, 0}), reg({Kind::kDmaBuf, one, 65536}),
            reg({Kind::kDmaBuf, other, 0})};
        for (size_t i = 0; i < all.size(); ++i)
          for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
        EXPECT_EQ(fabric.usage().memory_regions, before + 2 * all.size()) << "each on both NICs";
        Registration* const again = reg({Kind::kDmaBuf, same, 0});
        EXPECT_EQ(again, all[2]) << "another descriptor of the same memory";
        for (Registration* registration : all) EXPECT_TRUE(net.dereg(channel, registration).ok());
        EXPECT_EQ(fabric.usage().memory_regions, before + 2);
        EXPECT_TRUE(net.dereg(channel, again).ok());
        EXPECT_EQ(fabric.usage().memory_regions, before);
        EXPECT_FALSE(net.dereg(channel, again).ok()) << "removed twice";
        for (const int fd : {one, same, other}) close(fd);
      },
      fabric);
}

TEST(GpuMemory, is_offered_when_told_and_by_descriptor_where_all_nics_take_them) {
  const auto fabric = make_fabric(2, 2);
  const auto expect_offer = [&](const Environment& environment, bool gpu, bool dma_buf) {
    const Child looks = start(fabric, 0, environment, [=](const Link&) {
      for (const int nic : {0, 1}) {
        EXPECT_EQ(net()->properties(nic).gpu_memory, gpu);
        EXPECT_EQ(net()->properties(nic).dma_buf, dma_buf);
      }
    });
    EXPECT_EQ(looks.wait(), 0);
    in_a_receiver(
        environment,
        [=](Net& net, Channel* channel) {
          std::vector<uint8_t> memory(65536);
          const int fd = memfd(2 * 65536);
          const auto takes = [&](const BufferMemory& kind) {
            auto registered = net.reg(channel, memory.data(), 8192, kind);
            if (registered) {
              EXPECT_TRUE(net.dereg(channel, *registered).ok());
            } else {
              EXPECT_EQ(registered.error().code, ErrorCode::kInvalidArgument);
            }
            return registered.ok();
          };
          EXPECT_TRUE(takes({}));
          EXPECT_EQ(takes({BufferMemory::Kind::kGpu, -1, 0}), gpu);
          EXPECT_EQ(takes({BufferMemory::Kind::kDmaBuf, fd, uintptr_t(memory.data()) % 4096}), dma_buf);
          close(fd);
        },
        fabric);
  };
  expect_offer({}, false, false);
  expect_offer(kDirect, true, true);
  expect_offer(with(kDirect, "VHCA_DMABUF", "0"), true, false);
}

TEST(GpuMemory, a_descriptor_that_is_none_is_an_error_and_no_nic_is_left_for_it) {
  const auto fabric = make_fabric(2, 2);
  in_a_receiver(
      kDirect,
      [](Net& net, Channel* channel) {
        std::vector<uint8_t> memory(65536);
        auto registered = net.reg(channel, memory.data(), 4096, {BufferMemory::Kind::kDmaBuf, 12345, 0});
        ASSERT_FALSE(registered.ok());
        EXPECT_EQ(registered.error().code, ErrorCode::kSystem);
        const int small = memfd(4096);
        registered = net.reg(channel, memory.data(), 65536,
                             {BufferMemory::Kind::kDmaBuf, small, uintptr_t(memory.data()) % 4096});
        ASSERT_FALSE(registered.ok()) << "beyond its end";
        EXPECT_EQ(registered.error().code, ErrorCode::kVerbs);
        EXPECT_NE(registered.error().message.find("ibv_reg_dmabuf_mr of 65536 bytes on vhca0"),
                  std::string::npos)
            << registered.error().message;
        for (const auto& unusable : channel->context().nic_unusable) EXPECT_FALSE(unusable);
        close(small);
      },
      fabric);
}

}  // namespace
}  // namespace r2ccl
