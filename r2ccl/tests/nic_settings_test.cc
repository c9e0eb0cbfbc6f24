// SPDX-License-Identifier: Apache-2.0
// NCCL's settings of the NIC, down to what the provider is asked for.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "r2ccl/channel/channel.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/traffic.h"

namespace {

/// What the provider was asked to register, by the access flags; and a provider that knows no relaxed
/// ordering.
struct Registered {
  inline static std::atomic<int> strict{0}, relaxed{0}, refused{0};
  inline static std::atomic<bool> refuse_relaxed{false};
  static void reset() { strict = relaxed = refused = 0; }
};

/// What the provider says of its devices, in this process.
struct Devices {
  inline static const char* limited = "";  ///< its queues are short
  inline static bool without_guids = false;
};

}  // namespace

extern "C" {
int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  static auto* const real =
      reinterpret_cast<decltype(&ibv_query_device)>(dlsym(RTLD_NEXT, "ibv_query_device"));
  const int error = real(context, attributes);
  if (error == 0 && std::string_view(ibv_get_device_name(context->device)) == Devices::limited)
    attributes->max_qp_wr = 64;
  return error;
}
__be64 ibv_get_device_guid(ibv_device* device) {
  static auto* const real =
      reinterpret_cast<decltype(&ibv_get_device_guid)>(dlsym(RTLD_NEXT, "ibv_get_device_guid"));
  return Devices::without_guids ? 0 : real(device);
}
#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, size_t length, int access) {
  static auto* const real = reinterpret_cast<decltype(&ibv_reg_mr)>(dlsym(RTLD_NEXT, "ibv_reg_mr"));
  ++Registered::strict;
  return real(domain, address, length, access);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, size_t length, uint64_t iova, unsigned access) {
  static auto* const real =
      reinterpret_cast<decltype(&ibv_reg_mr_iova2)>(dlsym(RTLD_NEXT, "ibv_reg_mr_iova2"));
  if (access & IBV_ACCESS_RELAXED_ORDERING) {
    if (Registered::refuse_relaxed) {
      ++Registered::refused;
      errno = EINVAL;
      return nullptr;
    }
    ++Registered::relaxed;
  } else {
    ++Registered::strict;
  }
  return real(domain, address, length, iova, access);
}
}

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr int kNics = 2;
constexpr uint64_t kMessages = 60;

/// One channel with traffic; `after` sees what was registered at each end.
void carry(const Environment& environment, const std::function<void()>& after,
           const vhca::FabricHost& fabric = make_fabric(2, kNics)) {
  const auto end = [&](bool receives) {
    return [&, receives](const Link& link) {
      (receives ? receive_with : send_with)(link, 0, [&](Net& n, Channel* channel) {
        receives ? receive_messages(n, channel, 0, kMessages) : send_messages(n, channel, 0, kMessages);
        after();
      });
    };
  };
  const Child receiver = start(fabric, 1, environment, end(true));
  const Child sender = start(fabric, 0, environment, end(false));
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

// A trial per NIC when it is opened, and the one buffer on each NIC. The rings, the acknowledgements and the
// probes' word, which are polled, are registered once per path.
TEST(NicSettings, buffers_alone_are_registered_with_relaxed_ordering) {
  for (const char* asked : {"1", "2"})
    carry({{"NCCL_IB_PCI_RELAXED_ORDERING", asked}}, [] {
      EXPECT_EQ(Registered::relaxed, 2 * kNics);
      EXPECT_GE(Registered::strict, 1);
    });
}

TEST(NicSettings, nothing_is_registered_with_relaxed_ordering_unless_told) {
  carry({}, [] {
    EXPECT_EQ(Registered::relaxed, 0);
    EXPECT_GE(Registered::strict, kNics + 1);
  });
}

TEST(NicSettings, a_provider_without_relaxed_ordering_gets_buffers_without_it) {
  Registered::refuse_relaxed = true;
  carry({{"NCCL_IB_PCI_RELAXED_ORDERING", "1"}}, [] {
    EXPECT_EQ(Registered::refused, kNics) << "asked once per NIC";
    EXPECT_EQ(Registered::relaxed, 0);
    EXPECT_GE(Registered::strict, kNics + 1);
  });
  Registered::refuse_relaxed = false;
}

TEST(NicSettings, relaxed_buffers_survive_failures) {
  const auto fabric = make_fabric(2, kNics);
  FaultingNet faulting_net(fabric);
  const Environment environment{{"NCCL_IB_PCI_RELAXED_ORDERING", "1"}, {"R2CC_FAILBACK_MS", "5"}};
  const Child receiver = start(fabric, 1, environment, [](const Link& link) {
    receive_with(link, 0, [&](Net& n, Channel* channel) { receive_rounds(n, channel, link); });
  });
  const Child sender = start(fabric, 0, environment, [](const Link& link) {
    send_with(link, 0, [&](Net& n, Channel* channel) { send_rounds(n, channel, link); });
  });
  relay_handle(receiver, sender);
  int rounds = 0;
  run_rounds(receiver, sender, [&] {
    faulting_net.strike(rounds % 2, 0);
    return ++rounds > 2 && faulting_net.broken() >= 6;
  });
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
  EXPECT_GE(faulting_net.broken(), 6);
  EXPECT_GT(fabric.counters(0, 1).tx_bytes, 1'000'000u) << "no migration";
}

vhca::FabricHost infiniband() {
  vhca::FabricSpec spec;
  for (const char* node : {"node0", "node1"})
    spec.nodes.push_back({node, std::vector<vhca::PortSpec>(kNics)});
  spec.link_layer = vhca::LinkLayer::kInfiniBand;
  return vhca::FabricHost::create(spec);
}

TEST(NicSettings, both_ends_in_the_partition_that_the_index_names) {
  const auto fabric = infiniband();
  carry(
      {{"NCCL_IB_PKEY", "1"}}, [] {}, fabric);
  EXPECT_GT(fabric.counters(0, 0).tx_bytes, 1'000'000u);
}

TEST(NicSettings, ends_in_different_partitions_do_not_reach_each_other) {
  const auto fabric = infiniband();
  const Environment quick{{"NCCL_IB_TIMEOUT", "8"},
                          {"NCCL_IB_RETRY_CNT", "1"},
                          {"R2CC_FAIL_BOUND_MS", "300"},
                          {"R2CC_CONNECT_MS", "2000"}};
  Environment other = quick;
  other["NCCL_IB_PKEY"] = "1";
  const auto body = [](bool receives) {
    return [receives](const Link& link) {
      Net* n = net();
      ASSERT_NE(n, nullptr);
      std::array<std::byte, kHandleBytes> handle{};
      Listener* listener = nullptr;
      if (receives) {
        auto listening = n->listen(0, handle.data());
        ASSERT_TRUE(listening.ok());
        listener = *listening;
        link.send(handle.data(), handle.size());
      } else {
        ASSERT_TRUE(link.receive(handle.data(), handle.size()));
      }
      // Whatever becomes of the connection, no byte may arrive.
      const auto deadline = std::chrono::steady_clock::now() + 20s;
      std::vector<uint8_t> buffer(4096);
      Channel* channel = nullptr;
      Registration* memory = nullptr;
      Request* request = nullptr;
      while (std::chrono::steady_clock::now() < deadline) {
        if (!channel) {
          auto made = receives ? n->accept(listener) : n->connect(0, handle.data());
          if (!made) return;
          channel = *made;
        } else if (!memory) {
          auto reg = n->reg(channel, buffer.data(), buffer.size());
          ASSERT_TRUE(reg.ok());
          memory = *reg;
        } else if (!request) {
          auto posted = receives ? n->irecv(channel, buffer.data(), buffer.size(), memory)
                                 : n->isend(channel, buffer.data(), buffer.size(), memory);
          if (!posted) return;
          request = *posted;
        } else {
          auto outcome = n->test(request);
          if (!outcome) return;
          ASSERT_FALSE(outcome->done) << "across partitions";
        }
        std::this_thread::sleep_for(100us);
      }
      FAIL() << "neither an error nor a message";
    };
  };
  const Child receiver = start(fabric, 1, other, body(true));
  const Child sender = start(fabric, 0, quick, body(false));
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
  for (size_t node : {0, 1})
    for (size_t nic = 0; nic < kNics; ++nic) EXPECT_EQ(fabric.counters(node, nic).rx_bytes, 0u);
}

/// The error of a process that starts with `environment`.
void expect_refused(const vhca::FabricHost& fabric, const Environment& environment, const char* message) {
  const Child child = start(fabric, 0, environment, [message](const Link&) {
    auto acquired = Net::acquire(nullptr);
    ASSERT_FALSE(acquired.ok());
    EXPECT_EQ(acquired.error().code, ErrorCode::kInvalidConfig);
    EXPECT_EQ(acquired.error().message, message);
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(NicSettings, an_index_that_the_port_does_not_have_is_refused_by_name) {
  expect_refused(infiniband(), {{"NCCL_IB_PKEY", "2"}},
                 "NCCL_IB_PKEY='2': the table of partition keys of NIC vhca0 has 2 entries, numbered from 0");
  expect_refused(make_fabric(1, 1), {{"NCCL_IB_PKEY", "1"}},
                 "NCCL_IB_PKEY='1': the table of partition keys of NIC vhca0 has 1 entries, numbered from 0");
  expect_refused(make_fabric(1, 1), {{"NCCL_IB_GID_INDEX", "2"}},
                 "NCCL_IB_GID_INDEX='2': the table of GIDs of NIC vhca0 has 2 entries, numbered from 0");
}

/// The names of the NICs that a process uses when `before` has been called in it.
void expect_nics(const vhca::FabricHost& fabric, const std::vector<std::string>& names,
                 const std::function<void()>& before) {
  const Child child = start(fabric, 0, {}, [&](const Link&) {
    before();
    auto acquired = Net::acquire(nullptr);
    ASSERT_TRUE(acquired.ok());
    std::vector<std::string> used;
    std::set<uint64_t> guids;
    for (int device = 0; device < (*acquired)->devices(); ++device) {
      used.push_back((*acquired)->properties(device).name);
      guids.insert((*acquired)->properties(device).guid);
    }
    EXPECT_EQ(used, names);
    EXPECT_EQ(guids.size(), used.size()) << "NCCL takes NICs with equal GUIDs for one";
    EXPECT_FALSE(guids.contains(0));
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(NicSettings, a_nic_that_offers_too_little_is_left_out) {
  expect_nics(make_fabric(1, 3), {"vhca0", "vhca2"}, [] { Devices::limited = "vhca1"; });
}

TEST(NicSettings, a_nic_of_another_transport_is_left_out) {
  expect_nics(make_fabric(1, 3), {"vhca1", "vhca2"}, [] {
    ibv_device** list = ibv_get_device_list(nullptr);
    ASSERT_NE(list, nullptr);
    list[0]->transport_type = IBV_TRANSPORT_IWARP;
    ibv_free_device_list(list);
  });
}

TEST(NicSettings, nics_without_guids_are_told_apart) {
  expect_nics(make_fabric(1, 3), {"vhca0", "vhca1", "vhca2"}, [] { Devices::without_guids = true; });
}

TEST(NicSettings, of_too_many_nics_the_fastest_are_used) {
  vhca::FabricSpec spec;
  const vhca::PortSpec slow{1'000'000'000}, fast{100'000'000'000};
  spec.nodes.push_back({"node0", {fast, slow, fast, fast, fast, slow, fast, fast, fast, fast}});
  expect_nics(vhca::FabricHost::create(spec),
              {"vhca0", "vhca2", "vhca3", "vhca4", "vhca6", "vhca7", "vhca8", "vhca9"}, [] {});
}

TEST(NicSettings, the_gid_follows_the_address_range) {
  const auto fabric = make_fabric(1, 1);
  const Child child = start(fabric, 0, {}, [](const Link&) {
    for (const auto& [variable, value, index] :
         {std::tuple("NCCL_IB_ADDR_RANGE", "10.0.0.0/24", 1), std::tuple("NCCL_IB_ROCE_VERSION_NUM", "1", 1),
          std::tuple("NCCL_IB_ADDR_FAMILY", "AF_INET6", 1), std::tuple("NCCL_IB_GID_INDEX", "0", 0)}) {
      setenv(variable, value, 1);
      auto config = Config::from_environment();
      ASSERT_TRUE(config.ok());
      auto devices = verbs::Device::open_all(*config);
      ASSERT_TRUE(devices.ok());
      EXPECT_EQ(devices->front().gid_index(), index) << variable;
      EXPECT_EQ(devices->front().address().gid.raw[0], index == 0 ? 0xfe : 0);
      unsetenv(variable);
    }
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace r2ccl
