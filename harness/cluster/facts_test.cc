// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "harness/base/testing/eventually.h"
#include "harness/cluster/facts.h"
#include "harness/cluster/probe_link.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

/// A configuration space whose extended capabilities are `ids`, each at the next 0x20 bytes.
std::string config(const std::vector<int>& ids, int acs) {
  std::string space(4096, '\0');
  size_t at = 0x100;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t next = i + 1 < ids.size() ? at + 0x20 : 0;
    space[at] = char(ids[i]);
    space[at + 1] = char(ids[i] >> 8);
    space[at + 2] = char((next << 4 & 0xf0) | 1);
    space[at + 3] = char(next >> 4);
    if (ids[i] == 0x0d) space[at + 6] = char(acs);
    at = next;
  }
  return space;
}

TEST(AcsControl, is_found_behind_other_capabilities) {
  EXPECT_EQ(acs_control(config({0x01, 0x0d, 0x15}, 0x1d)), 0x1d);
  EXPECT_EQ(acs_control(config({0x0d}, 0)), 0);
  EXPECT_EQ(acs_control(config({0x01, 0x15}, 0)), std::nullopt);
  EXPECT_EQ(acs_control(config({0x01, 0x0d}, 0x1d).substr(0, 256)), std::nullopt)
      << "what a user who is not root reads";
  EXPECT_EQ(acs_control(""), std::nullopt);
  std::string loop = config({0x01}, 0);
  loop[0x102] = char(0x01), loop[0x103] = char(0x10);  // points to itself
  EXPECT_EQ(acs_control(loop), std::nullopt);
}

class FakeSysfs : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cluster_facts_XXXXXX";
    root = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(root); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name, std::ios::binary) << text;
  }
  void card(const std::string& device, const std::string& id) {
    const std::string bridge = "sys/devices/pci0000:3a/0000:3a:00.0", pci = bridge + "/0000:3b:00.0",
                      port = "sys/class/infiniband/" + device + "/ports/1";
    write(bridge + "/class", "0x060400\n");
    write(bridge + "/config", config({0x01, 0x0d}, 0x5d));
    for (const auto& [name, text] :
         std::map<std::string, std::string>{{"class", "0x020700"},
                                            {"vendor", "0x15b3"},
                                            {"device", id},
                                            {"current_link_speed", "8.0 GT/s PCIe"},
                                            {"max_link_speed", "16.0 GT/s PCIe"},
                                            {"current_link_width", "8"},
                                            {"max_link_width", "16"},
                                            {"numa_node", "1"}})
      write(pci + "/" + name, text + "\n");
    write(port + "/state", "4: ACTIVE\n");
    write(port + "/link_layer", "Ethernet\n");
    write(port + "/rate", "100 Gb/sec (4X EDR)\n");
    write(port + "/gids/0", "fe80:0000:0000:0000:0e42:a1ff:fedd:5802\n");
    write(port + "/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    write(port + "/gids/2", "0000:0000:0000:0000:0000:ffff:0a0a:0001\n");
    write(port + "/gid_attrs/types/0", "IB/RoCE v1\n");
    write(port + "/gid_attrs/types/2", "RoCE v2\n");
    write(port + "/gid_attrs/ndevs/0", "ens1f0\n");
    write("sys/class/infiniband/" + device + "/fw_ver", "16.35.2000\n");
    write("sys/class/infiniband/" + device + "/board_id", "MT_0000000008\n");
    fs::create_symlink(root / pci, root / "sys/class/infiniband" / device / "device");
    write("sys/class/net/ens1f0/mtu", "1500\n");
    write("sys/class/net/ens1f0/ecn/roce_np/enable/3", "0\n");
  }
  fs::path root;
};

TEST_F(FakeSysfs, all_that_sysfs_tells_of_a_card) {
  card("mlx5_0", "0x1017");
  fs::create_directories(root / "proc/driver/nvidia/gpus/0000:c1:00.0");
  const RdmaHostFacts host = rdma_facts_of_this_host(root);
  EXPECT_TRUE(host.gpus);
  EXPECT_FALSE(host.peer_memory);
  ASSERT_EQ(host.ports.size(), 1u);
  const PortFacts& port = host.ports[0];
  EXPECT_EQ(port.name() + " " + port.state + " " + port.link_layer + " " + port.interface,
            "mlx5_0 ACTIVE Ethernet ens1f0");
  EXPECT_EQ(port.interface_mtu, 1500);
  ASSERT_EQ(port.gids.size(), 2u) << "an empty row is none";
  EXPECT_EQ(port.chosen_gid()->index, 2);
  EXPECT_EQ(port.firmware + " " + port.board, "16.35.2000 MT_0000000008");
  EXPECT_EQ(port.pci + " " + port.pci_speed, "0000:3b:00.0 8.0 GT/s PCIe");
  EXPECT_EQ(port.rate, "100 Gb/sec (4X EDR)");
  EXPECT_EQ(port.pci_speed_max, "16.0 GT/s PCIe");
  EXPECT_EQ(port.pci_width_max, 16);
  EXPECT_FALSE(port.default_route);
  EXPECT_EQ(port.pci_width, 8);
  EXPECT_EQ(port.numa_node, 1);
  ASSERT_EQ(port.bridges.size(), 1u);
  EXPECT_EQ(port.bridges[0].address, "0000:3a:00.0");
  EXPECT_EQ(port.bridges[0].acs_control, 0x5d);
  EXPECT_EQ(port.ecn, false);
  EXPECT_EQ(port.dpu_mode, "");
}

TEST_F(FakeSysfs, a_bluefield_is_known_by_its_number) {
  card("mlx5_2", "0xa2d6");
  EXPECT_EQ(rdma_facts_of_this_host(root).ports.at(0).dpu_mode, "unknown") << "its tool was not asked here";
}

/// The tools' words, as their manuals have them; with a PATH of the test's own.
class FakeTools : public FakeSysfs {
 protected:
  void SetUp() override {
    FakeSysfs::SetUp();
    before = getenv("PATH");
    setenv("PATH", (root.string() + "/tools:" + before).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", before.c_str(), 1);
    FakeSysfs::TearDown();
  }
  /// A program that says `says` when it is asked for exactly `words`; anything else is an error.
  void tool(const std::string& name, const std::string& words, const std::string& says) {
    const fs::path path = root / "tools" / name;
    const bool first = !fs::exists(path);
    fs::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::app);
    if (first) file << "#!/bin/sh\n";
    file << "[ \"$*\" != '" << words << "' ] || { echo '" << says << "'; exit 0; }\n";
    file.close();
    fs::permissions(path, fs::perms::owner_all);
  }
  /// Without the tool's word it fails, as it does for an interface without DCB.
  void end(const std::string& name) { std::ofstream(root / "tools" / name, std::ios::app) << "exit 1\n"; }
  PortFacts port() { return rdma_facts_of_this_host(root, true).ports.at(0); }
  std::string before;
};

TEST_F(FakeTools, dcb_tells_priorities_with_flow_control_and_the_rate_limit) {
  card("mlx5_0", "0x1017");
  tool("dcb", "pfc show dev ens1f0 prio-pfc", "prio-pfc 0:off 1:off 2:off 3:on 4:on 5:off 6:off 7:off");
  tool("dcb", "maxrate show dev ens1f0 tc-maxrate",
       "tc-maxrate 0:25Gbit 1:0bit 2:0bit 3:0bit 4:0bit 5:0bit 6:0bit 7:0bit");
  end("dcb");
  EXPECT_EQ(port().pfc, "3,4");
  EXPECT_EQ(port().rate_limit, "25Gbit");
}

TEST_F(FakeTools, dcb_without_flow_control_or_limit_says_none) {
  card("mlx5_0", "0x1017");
  tool("dcb", "pfc show dev ens1f0 prio-pfc", "prio-pfc 0:off 1:off 2:off 3:off 4:off 5:off 6:off 7:off");
  tool("dcb", "maxrate show dev ens1f0 tc-maxrate",
       "tc-maxrate 0:0bit 1:0bit 2:0bit 3:0bit 4:0bit 5:0bit 6:0bit 7:0bit");
  end("dcb");
  EXPECT_EQ(port().pfc, "none");
  EXPECT_EQ(port().rate_limit, "none");
}

TEST_F(FakeTools, what_dcb_cannot_tell_is_not_guessed) {
  card("mlx5_0", "0x1017");
  tool("dcb", "nothing", "");
  end("dcb");
  EXPECT_EQ(port().pfc, std::nullopt);
  EXPECT_EQ(port().rate_limit, std::nullopt);
}

TEST_F(FakeTools, mstconfig_tells_the_mode_of_a_bluefield) {
  card("mlx5_2", "0xa2d6");
  const std::string asks = "-d 0000:3b:00.0 query INTERNAL_CPU_OFFLOAD_ENGINE";
  const auto says = [&](const std::string& value) {
    fs::remove_all(root / "tools");
    for (const char* name : {"mlxconfig", "mstconfig"}) {
      if (std::string(name) == "mstconfig")
        tool(name, asks, "Configurations:  Next Boot\n INTERNAL_CPU_OFFLOAD_ENGINE  " + value);
      tool(name, "nothing", "");
      end(name);
    }
    return port().dpu_mode;
  };
  EXPECT_EQ(says("ENABLED(0)"), "DPU") << "mlxconfig fails, mstconfig tells";
  EXPECT_EQ(says("DISABLED(1)"), "NIC");
  EXPECT_EQ(says("N/A"), "unknown");
}

TEST_F(FakeSysfs, the_interface_of_the_default_route_is_known_below_a_bond_too) {
  card("mlx5_0", "0x1017");
  const std::string header = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n";
  const auto route = [&](const std::string& interface) {
    write("proc/net/route", header + interface + "\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n");
    return rdma_facts_of_this_host(root).ports.at(0).default_route;
  };
  EXPECT_TRUE(route("ens1f0"));
  EXPECT_FALSE(route("bond0"));
  fs::create_directories(root / "sys/class/net/ens1f0/upper_bond0");
  EXPECT_TRUE(route("bond0"));
}

TEST_F(FakeSysfs, a_machine_without_rdma_has_no_ports) {
  fs::create_directories(root / "sys");
  EXPECT_TRUE(rdma_facts_of_this_host(root).ports.empty());
}

TEST(PortProbe, answers_what_it_is_asked_and_says_what_it_cannot) {
  ProbeLink probe("here", PORT_PROBE);
  const auto facts = probe.ask({{"do", "facts"}}).get<RdmaHostFacts>();
  EXPECT_FALSE(facts.host.empty());
  EXPECT_FALSE(facts.kernel.empty());
  const auto none = probe.ask({{"do", "open"}, {"id", 1}, {"device", "mlx5_77"}, {"port", 1}, {"gid", 0}});
  EXPECT_NE(none.value("error", "").find("mlx5_77 cannot be opened"), std::string::npos) << none;
  EXPECT_NE(probe.ask({{"do", "write"}, {"id", 1}, {"seed", 1}}).value("error", "").find("no open end 1"),
            std::string::npos);
  EXPECT_NE(probe.ask({{"do", "dance"}}).value("error", "").find("unknown request"), std::string::npos);
}

TEST(PortProbe, tells_the_limit_of_locked_memory_that_it_has) {
  const auto locked = [](const std::string& limit) {
    return ProbeLink("here", "sh -c 'ulimit -l " + limit + " && exec " PORT_PROBE "'")
        .ask({{"do", "facts"}})
        .get<RdmaHostFacts>()
        .memlock_bytes;
  };
  EXPECT_EQ(locked("48"), 48u << 10);
  rlimit own{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &own), 0);
  if (own.rlim_max == RLIM_INFINITY) {
    EXPECT_EQ(locked("unlimited"), UINT64_MAX);
  }
}

TEST(PortProbe, an_answer_that_comes_too_late_is_not_the_next_ones) {
  ProbeLink probe("there",
                  R"(sh -c 'read one; sleep 2; echo "{\"of\": 1}"; read two; echo "{\"of\": 2}"; sleep 9')");
  const auto ask = [&](int seconds) -> std::string {
    try {
      return probe.ask({{"do", "facts"}}, std::chrono::seconds(seconds)).dump();
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  EXPECT_NE(ask(1).find("says nothing for 1 s"), std::string::npos);
  EXPECT_NE(ask(5).find("says nothing for 1 s"), std::string::npos) << "it is not asked again";
}

// As an ssh that waits for its connection, which does not read its input.
TEST(PortProbe, one_that_waits_does_not_outlive_its_owner) {
  char name[] = "/tmp/port_probe_XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::filesystem::path pid_file = std::filesystem::path(name) / "pid";
  const pid_t owner = fork();
  if (owner == 0) {
    const ProbeLink probe("there", "sh -c 'echo $$ >" + pid_file.string() + "; exec sleep 30 </dev/null'");
    pause();
  }
  pid_t probe = 0;
  EXPECT_TRUE(eventually([&] { return bool(std::ifstream(pid_file) >> probe); }));
  kill(owner, SIGKILL);
  ASSERT_EQ(waitpid(owner, nullptr, 0), owner);
  const auto lives = [&] {
    std::string number, program, state;
    std::ifstream("/proc/" + std::to_string(probe) + "/stat") >> number >> program >> state;
    return !state.empty() && state != "Z";
  };
  EXPECT_TRUE(eventually([&] { return !lives(); }, std::chrono::seconds(10)));
  std::filesystem::remove_all(name);
}

TEST(PortProbe, one_that_cannot_be_started_or_says_nothing_is_told) {
  const auto error_of = [](const std::string& command, int seconds) -> std::string {
    try {
      ProbeLink("there", command).ask({{"do", "facts"}}, std::chrono::seconds(seconds));
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(
      error_of("sh -c 'echo Permission denied >&2; exit 255'", 30).find("it has ended (Permission denied"),
      std::string::npos);
  EXPECT_NE(error_of("sleep 30", 1).find("says nothing for 1 s"), std::string::npos);
  EXPECT_EQ(
      ProbeLink("there", "sh -c 'echo Welcome; exec " PORT_PROBE "'").ask({{"do", "facts"}}).count("ports"),
      1u)
      << "a login script that greets";
}

}  // namespace
}  // namespace r2bench
