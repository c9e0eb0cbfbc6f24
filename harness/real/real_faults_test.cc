// SPDX-License-Identifier: Apache-2.0
// Real faults on a board, end to end: interfaces are veth in a network namespace of this test's own, PCI and
// the switch are made up.
#include "harness/real/real_faults.h"

#include <atomic>
#include <csignal>

#include "harness/real/testing/machine.h"

namespace r2bench {
namespace {

TEST_F(RealFaultsTest, a_link_goes_down_and_comes_back_with_its_routes) {
  strikes_and_is_put_back("kind: real_link_down", Effect::kKernelLinkDown, [&] {
    EXPECT_EQ(sh("cat /sys/class/net/v0/operstate"), "down");
    EXPECT_EQ(run_shell("ip route show table 77", 10s).output, "");
  });
  EXPECT_EQ(sh("cat /sys/class/net/v0/operstate"), "up");
  EXPECT_NE(sh("ip route show table 77").find("10.8.0.0/16 dev v0"), std::string::npos);
  EXPECT_NE(sh("ip route").find("10.7.0.0/24"), std::string::npos);
  EXPECT_NE(notes.find("operstate says down"), std::string::npos) << notes;
}

TEST_F(RealFaultsTest, a_link_comes_back_though_the_guard_is_killed) {
  with("kind: real_link_down");
  const auto real = make();
  const uint32_t id = board.arm(scenario.faults[0]);
  ASSERT_TRUE(witnessed(*real, id, 1)) << notes;
  ASSERT_EQ(kill(real->guard_pid(), SIGKILL), 0);
  EXPECT_EQ(sh("cat /sys/class/net/v0/operstate"), "down");
  board.heal(id);
  ASSERT_TRUE(witnessed(*real, id, 2)) << notes;
  EXPECT_EQ(sh("cat /sys/class/net/v0/operstate"), "up");
  EXPECT_NE(notes.find("guard_replaced"), std::string::npos) << notes;
  real->finish(board);
}

TEST_F(RealFaultsTest, packets_are_lost_while_tc_says_so) {
  if (run_shell("tc qdisc add dev v1 root netem loss 1% && tc qdisc del dev v1 root", 10s).exit_code != 0)
    GTEST_SKIP() << "this kernel has no netem; rxe_real_faults tries it in a guest that has";
  strikes_and_is_put_back("kind: real_tc, loss: 100 %, delay: 1 ms", Effect::kQdiscSet, [&] {
    EXPECT_NE(sh("tc qdisc show dev v0").find("netem 7232: root"), std::string::npos);
    EXPECT_NE(sh("tc qdisc show dev v0").find("loss 100%"), std::string::npos);
    run_shell("ping -c 1 -W 1 10.7.0.2", 10s);  // ARP, at least, goes into it
    EXPECT_EQ(sh("tc -s qdisc show dev v0").find("dropped 0,"), std::string::npos);
  });
  EXPECT_NE(sh("tc qdisc show dev v0").find("noqueue"), std::string::npos);
}

TEST_F(RealFaultsTest, a_qdisc_of_somebody_elses_is_not_replaced) {
  sh("tc qdisc add dev v0 root tbf rate 1gbit burst 100k latency 10ms");
  with("kind: real_tc, loss: 1 %");
  EXPECT_NE(refusal().find("it already has a queueing discipline (qdisc tbf"), std::string::npos)
      << refusal();
}

TEST_F(RealFaultsTest, the_way_out_of_the_machine_stays) {
  sh("ip route add default via 10.7.0.254 dev v0");
  with("kind: real_link_down");
  EXPECT_NE(refusal().find("default route leaves by it"), std::string::npos) << refusal();
}

TEST_F(RealFaultsTest, what_the_job_itself_hangs_on_stays) {
  with("kind: real_link_down");
  sources.runner_link = "v0";
  EXPECT_NE(refusal().find("the host's connection to r2bench run goes over it; start with names in --hosts"),
            std::string::npos)
      << refusal();
  sources = {};
  sources.socket_names = "=v0";
  EXPECT_NE(refusal().find("NCCL_SOCKET_IFNAME==v0); set NCCL_SOCKET_IFNAME to another"), std::string::npos)
      << refusal();
  sources = {};
  const fs::path proc = root / "proc" / std::to_string(getpid());
  fs::create_directories(proc);
  std::ofstream(proc / "environ") << "A=1" << '\0' << "SSH_CONNECTION=10.7.0.2 40000 10.7.0.1 22" << '\0';
  sources.proc = (root / "proc").string();
  EXPECT_NE(refusal().find("came in over it (10.7.0.1); log in by another interface's address"),
            std::string::npos)
      << refusal();
  std::ofstream(proc / "environ") << "SSH_CONNECTION=10.9.0.2 40000 10.9.0.1 22" << '\0';
  EXPECT_EQ(refusal(), "not refused");
}

TEST_F(RealFaultsTest, a_port_of_a_bond_or_bridge_carries_what_goes_over_that) {
  fs::remove(root / "class/net");
  fs::create_directories(root / "class/net/v0/upper_bond0");
  fs::create_directories(root / "class/net/bond0/upper_bond0.7");
  EXPECT_TRUE(carries("v0", "bond0.7", root.string()));
  EXPECT_FALSE(carries("v1", "bond0.7", root.string()));
  with("kind: real_link_down");
  sources.runner_link = "bond0.7";
  EXPECT_NE(refusal().find("r2bench run goes over it"), std::string::npos);
}

TEST(Lifelines, ssh_is_found_through_sudo) {
  if (in_own_namespaces()) run_shell("ip link set lo up", 10s);
  char name[] = "/tmp/lifelines_XXXXXX";
  const fs::path proc = mkdtemp(name);
  const fs::path own = proc / std::to_string(getpid()), parent = proc / "77";
  fs::create_directories(own);
  fs::create_directories(parent);
  std::ofstream(own / "stat") << getpid() << " (r2 bench) ) S 77 1 1";
  std::ofstream(own / "environ") << "SUDO_USER=me" << '\0';
  std::ofstream(parent / "environ") << "SSH_CONNECTION=a 1 b 22" << '\0';
  EXPECT_EQ(ssh_connection(proc.string()), "a 1 b 22");
  EXPECT_EQ(interface_with_address("127.0.0.1"), "lo");
  EXPECT_EQ(interface_with_address("::ffff:127.0.0.1"), "lo");
  EXPECT_EQ(interface_with_address("fe80::1%eth7"), "eth7");
  EXPECT_EQ(interface_with_address("192.0.2.1"), "");
  fs::remove_all(proc);
}

TEST_F(RealFaultsTest, a_pci_device_goes_and_comes_back) {
  const MadeUpBus bus(root);
  strikes_and_is_put_back(
      "kind: real_pcie_remove", Effect::kPciDeviceGone, [&] { EXPECT_FALSE(fs::exists(bus.device)); }, "mlx5_0");
  EXPECT_TRUE(fs::exists(bus.device / "vendor"));
}

TEST_F(RealFaultsTest, a_rule_on_the_dpu_drops_and_is_taken_away) {
  const std::string flows = (root / "flows").string(), tool = (root / "ovs-ofctl").string();
  std::ofstream(tool) << "#!/bin/sh\ncase $1 in\nadd-flow) echo \"$2 $3\" >>" << flows
                      << " ;;\ndel-flows) : >" << flows << " ;;\n*) n=0; [ ! -e "
                      << (root / "packets").string() << " ] || n=3\nsed \"s/^/n_packets=$n, /\" " << flows
                      << " 2>/dev/null; true ;;\nesac\n";
  fs::permissions(tool, fs::perms::owner_all);
  std::thread traffic([&] {  // the rule alone is no cut: it has to meet a packet
    std::this_thread::sleep_for(700ms);
    EXPECT_TRUE(board.witnesses(1).empty());
    EXPECT_FALSE(sh("cat " + flows).empty());
    write("packets", "");
  });
  strikes_and_is_put_back("kind: real_ovs_drop, bridge: ovsbr1, via: 'PATH=" + root.string() + ":$PATH'",
                          Effect::kFlowRuleSet, [&] {
                            EXPECT_EQ(sh("cat " + flows),
                                      "ovsbr1 cookie=0x7232,priority=65535,udp,tp_dst=4791,actions=drop");
                          });
  traffic.join();
  EXPECT_EQ(sh("cat " + flows), "");
  EXPECT_NE(notes.find("n_packets=3"), std::string::npos) << notes;
}

TEST_F(RealFaultsTest, a_rule_on_a_bluefield_in_nic_mode_is_refused) {
  for (const auto& [name, text] : {std::pair{"vendor", "0x15b3"}, {"device", "0xa2d6"}})
    write(std::string("bus/pci/devices/0000:3b:00.0/") + name, text);
  write("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "v0");
  fs::create_symlink(root / "bus/pci/devices/0000:3b:00.0", root / "class/infiniband/mlx5_0/device");
  const std::string old = getenv("PATH");
  setenv("PATH", (root.string() + ":" + old).c_str(), 1);
  const auto says = [&](const std::string& mode) {
    std::ofstream(root / "mlxconfig") << "#!/bin/sh\necho ' INTERNAL_CPU_OFFLOAD_ENGINE  " << mode << "'\n";
    fs::permissions(root / "mlxconfig", fs::perms::owner_all);
    with("kind: real_ovs_drop, bridge: ovsbr1");
    return refusal("mlx5_0");
  };
  EXPECT_NE(says("DISABLED(1)").find("this BlueField is in NIC mode"), std::string::npos);
  EXPECT_EQ(says("ENABLED(0)"), "not refused");
  setenv("PATH", old.c_str(), 1);
}

TEST_F(RealFaultsTest, a_users_command_cuts_and_the_carrier_says_so) {
  strikes_and_is_put_back("kind: real_switch_port, cut: ip link set v1 down, mend: ip link set v1 up",
                          Effect::kKernelLinkDown,
                          [&] { EXPECT_EQ(sh("cat /sys/class/net/v0/carrier"), "0"); });
  EXPECT_EQ(sh("cat /sys/class/net/v0/carrier"), "1");
}

TEST_F(RealFaultsTest, a_change_that_the_machine_does_not_confirm_is_no_witness) {
  with("kind: real_switch_port, cut: exit 9, mend: 'true'");
  const auto real = make();
  const uint32_t id = board.arm(scenario.faults[0]);
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (notes.find("real_fault_failed") == std::string::npos &&
         std::chrono::steady_clock::now() < deadline) {
    real->tick(board);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_NE(notes.find("`exit 9` ended with 9"), std::string::npos) << notes;
  EXPECT_EQ(board.state(id).t0_ns, 0u);
}

TEST_F(RealFaultsTest, what_another_host_has_is_left_to_it) {
  with("kind: real_link_down");
  nodes = {0, 1, {}};  // the fault's node1 lives elsewhere
  const auto real = make();
  EXPECT_TRUE(real->in_words().empty());
  const uint32_t id = board.arm(scenario.faults[0]);
  for (int i = 0; i < 100; ++i) {
    real->tick(board);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(board.witnesses(id).empty());
  EXPECT_EQ(sh("cat /sys/class/net/v0/operstate"), "up");
}

TEST_F(RealFaultsTest, rounds_strike_one_after_the_other_and_the_end_puts_back) {
  with("kind: real_link_down, for: 50 ms, repeat: 2, every: 2 s");
  const auto real = make();
  const uint32_t id = board.arm(scenario.faults[0]);
  ASSERT_TRUE(witnessed(*real, id, 3)) << notes;
  const auto all = board.witnesses(id);
  EXPECT_EQ(all[1].effect, Effect::kPutBack);
  EXPECT_EQ(all[2].effect, Effect::kKernelLinkDown);
  real->finish(board);
  std::vector<uint32_t> rounds;
  for (const faultinject::Witness& witness : board.witnesses(id)) rounds.push_back(witness.round);
  EXPECT_EQ(rounds, (std::vector<uint32_t>{0, 0, 1, 1}));
  EXPECT_EQ(sh("cat /sys/class/net/v0/operstate"), "up");
}

std::string check(const Scenario& scenario, const std::string& fabric, bool allowed, bool root) {
  try {
    check_real_faults(scenario, fabric, allowed, root);
  } catch (const FabricError& error) {
    return error.what();
  }
  return "";
}

TEST(RealFaultsCheck, nothing_is_changed_without_being_asked) {
  Scenario scenario;
  EXPECT_EQ(check(scenario, "vhca", false, false), "") << "injected faults need no leave";
  scenario.faults = {
      faultinject::parse_fault(YAML::Load("{at: now, target: node1/nic0, kind: real_link_down}"), "t.yaml")};
  EXPECT_TRUE(has_real_faults(scenario));
  EXPECT_NE(
      check(scenario, "vhca", true, true).find("the fabric vhca has none; choose --fabric verbs or rxe"),
      std::string::npos);
  EXPECT_NE(check(scenario, "verbs", false, true).find("`ip link set dev INTERFACE down`"),
            std::string::npos);
  EXPECT_NE(check(scenario, "verbs", false, true).find("--allow-real-faults"), std::string::npos);
  EXPECT_NE(check(scenario, "verbs", true, false).find("run as root"), std::string::npos);
  EXPECT_EQ(check(scenario, "verbs", true, true), "");
}

}  // namespace
}  // namespace r2bench
