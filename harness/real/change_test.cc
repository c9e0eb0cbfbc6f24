// SPDX-License-Identifier: Apache-2.0
#include "harness/real/change.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/real/lifelines.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using faultinject::FaultSpec;

FaultSpec fault(const std::string& text) {
  return faultinject::parse_fault(YAML::Load("{at: now, target: node1/nic0, " + text + "}"), "plan.yaml");
}

NicPlace soft() { return {1, 0, "rxe0", "eth5", "", true}; }
NicPlace hardware() { return {1, 0, "mlx5_2", "ens1f0", "0000:3b:00.0", false}; }

std::string refusal(const FaultSpec& spec, const NicPlace& place) {
  try {
    change_for(spec, place, {});
  } catch (const RealFaultError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(RealChange, a_link_goes_down_and_comes_back_with_what_it_lost) {
  const Change change =
      change_for(fault("kind: real_link_down"), hardware(), {{"ip route R"}, {"ip addr A"}}, "/s");
  EXPECT_EQ(change.apply, (std::vector<std::string>{"ip link set dev ens1f0 down"}));
  EXPECT_EQ(change.undo, (std::vector<std::string>{"ip link set dev ens1f0 up", "ip addr A", "ip route R"}));
  EXPECT_EQ(change.cut.of + " " + change.cut.wanted, "/s/class/net/ens1f0/operstate down");
  EXPECT_EQ(change.back.wanted, "up");
  EXPECT_NE(
      change.in_words().find("node1/nic0 (mlx5_2, ens1f0, 0000:3b:00.0): `ip link set dev ens1f0 down`"),
      std::string::npos);
  NicPlace nowhere = hardware();
  nowhere.interface.clear();
  EXPECT_NE(refusal(fault("kind: real_link_down"), nowhere).find("no network interface"), std::string::npos);
}

TEST(RealChange, tc_is_for_soft_roce_and_says_all_that_was_asked) {
  const FaultSpec spec = fault("kind: real_tc, loss: 2.5 %, delay: 3 ms, rate: 100 Mbit/s");
  const Change change = change_for(spec, soft(), {});
  EXPECT_EQ(change.apply.at(0),
            "tc qdisc replace dev eth5 root handle 7232: netem limit 100000 loss 2.5% delay 3000us rate "
            "100000000bit");
  EXPECT_EQ(change.undo.at(0), "tc qdisc del dev eth5 root handle 7232:");
  EXPECT_NE(refusal(spec, hardware()).find("for soft RoCE only"), std::string::npos);
}

TEST(RealChange, an_ovs_rule_is_set_over_there) {
  const Change change =
      change_for(fault("kind: real_ovs_drop, bridge: ovsbr1, via: ssh arm sudo"), hardware(), {});
  EXPECT_EQ(
      change.apply.at(0),
      "ssh arm sudo ovs-ofctl add-flow ovsbr1 cookie=0x7232,priority=65535,udp,tp_dst=4791,actions=drop");
  EXPECT_EQ(change.undo.at(0), "ssh arm sudo ovs-ofctl del-flows ovsbr1 cookie=0x7232/-1");
  EXPECT_EQ(change.cut.of,
            "ssh arm sudo ovs-ofctl dump-flows ovsbr1 cookie=0x7232/-1 | grep actions=drop | "
            "grep -v n_packets=0,");
}

TEST(RealChange, a_pci_function_is_removed_and_looked_for_again) {
  const Change change = change_for(fault("kind: real_pcie_remove"), hardware(), {{}, {"ip addr A"}}, "/s");
  EXPECT_EQ(change.apply.at(0), "echo 1 >/s/bus/pci/devices/0000:3b:00.0/remove");
  EXPECT_EQ(change.undo.front(), "echo 1 >/s/bus/pci/rescan");
  EXPECT_EQ(change.undo.back(), "ip addr A");
  EXPECT_EQ(change.cut.kind, Probe::Kind::kPathGone);
  EXPECT_NE(refusal(fault("kind: real_pcie_remove"), soft()).find("no PCI device"), std::string::npos);
}

TEST(RealChange, a_switch_port_is_the_users_own_affair) {
  const Change change =
      change_for(fault("kind: real_switch_port, cut: 'off {interface} {node} {nic}', mend: 'on {device}'"),
                 hardware(), {});
  EXPECT_EQ(change.apply.at(0), "off ens1f0 1 0");
  EXPECT_EQ(change.undo.at(0), "on mlx5_2");
  EXPECT_EQ(change.cut.of, "/sys/class/net/ens1f0/carrier");
  const Change checked =
      change_for(fault("kind: real_switch_port, cut: off, mend: on, check: 'is-off {nic}'"), hardware(), {});
  EXPECT_EQ(checked.cut.of, "is-off 0");
  EXPECT_EQ(checked.back.kind, Probe::Kind::kFails);
  NicPlace infiniband = hardware();
  infiniband.interface.clear();
  EXPECT_NE(refusal(fault("kind: real_switch_port, cut: off, mend: on"), infiniband).find("check: COMMAND"),
            std::string::npos);
}

TEST(RealChange, survives_its_way_to_the_guard) {
  const Change change = change_for(fault("kind: real_tc, loss: 1 %"), soft(), {});
  const Change same = nlohmann::json::parse(nlohmann::json(change).dump()).get<Change>();
  EXPECT_EQ(same.in_words(), change.in_words());
  EXPECT_EQ(same.cut.kind, Probe::Kind::kOutputHas);
  EXPECT_EQ(same.cut.wanted, change.cut.wanted);
  EXPECT_EQ(same.effect, faultinject::Effect::kQdiscSet);
}

TEST(RealChange, what_a_link_takes_with_it_is_kept) {
  const Kept kept = keep_from(
      "eth5",
      "10.0.0.0/8 table 1000 scope link src 10.0.0.1 \n"
      "192.168.3.0/24 proto kernel scope link src 192.168.3.1 linkdown \n"
      "default via 192.168.3.254 dev eth5 metric 7 \n"
      "local 10.0.0.1 table local proto kernel scope host src 10.0.0.1 \n",
      "fd00:1::/64 table 77 metric 1024 pref medium\n",
      "5: eth5    inet 10.0.0.1/8 scope global noprefixroute eth5\\       valid_lft forever preferred_lft "
      "forever\n"
      "5: eth5    inet6 fd00:1::2/64 scope global \\       valid_lft forever preferred_lft forever\n"
      "5: eth5    inet6 fe80::1/64 scope link \\       valid_lft forever preferred_lft forever\n");
  EXPECT_EQ(kept.routes, (std::vector<std::string>{
                             "ip -4 route replace 10.0.0.0/8 dev eth5 table 1000 scope link src 10.0.0.1",
                             "ip -4 route replace default dev eth5 via 192.168.3.254 metric 7",
                             "ip -6 route replace fd00:1::/64 dev eth5 table 77 metric 1024 pref medium"}));
  EXPECT_EQ(kept.addresses, (std::vector<std::string>{"ip addr replace 10.0.0.1/8 dev eth5",
                                                      "ip addr replace fd00:1::2/64 dev eth5 nodad"}));
}

TEST(RealChange, what_cannot_be_kept_is_no_fault_to_make) {
  try {
    keep("no-such-one");
    FAIL() << "it has no routes that anybody knows";
  } catch (const RealFaultError& error) {
    EXPECT_NE(std::string(error.what()).find("the routes and addresses of no-such-one cannot be read"),
              std::string::npos)
        << error.what();
  }
}

class Sysfs : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/real_place_XXXXXX";
    root = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(root); }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text << "\n";
  }
  fs::path root;
};

/// A kernel that was booted with ipv6.disable=1: `ip -6` fails, and /proc/net/if_inet6 is not there.
class WithoutIpv6 : public Sysfs {
 protected:
  void SetUp() override {
    Sysfs::SetUp();
    const fs::path tool = root / "ip";
    std::ofstream(tool) << "#!/bin/sh\n"
                           "case \"$*\" in\n"
                           "*-6*) echo 'RTNETLINK answers: Operation not supported'; exit 2 ;;\n"
                           "*-4*) echo '10.8.0.0/16 dev eth5 table 77 scope link' ;;\n"
                           "*addr*) echo '5: eth5 inet 10.7.0.1/24 scope global eth5' ;;\n"
                           "esac\n";
    fs::permissions(tool, fs::perms::owner_all);
    fs::create_directories(root / "net");
    setenv("PATH", (root.string() + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    Sysfs::TearDown();
  }

 private:
  const std::string path_ = getenv("PATH");
};

TEST_F(WithoutIpv6, routes_and_addresses_are_kept) {
  const Kept kept = keep("eth5", root.string());
  EXPECT_EQ(kept.routes,
            (std::vector<std::string>{"ip -4 route replace 10.8.0.0/16 dev eth5 table 77 scope link"}));
  EXPECT_EQ(kept.addresses, (std::vector<std::string>{"ip addr replace 10.7.0.1/24 dev eth5"}));
}

TEST_F(WithoutIpv6, a_failure_is_told_where_the_kernel_has_ipv6) {
  write("net/if_inet6", "");
  EXPECT_THROW(keep("eth5", root.string()), RealFaultError);
}

TEST_F(Sysfs, a_card_has_an_interface_and_a_pci_function) {
  write("devices/pci0000:3a/0000:3b:00.0/vendor", "0x15b3");
  fs::create_directories(root / "devices/pci0000:3a/0000:3b:00.0/net/ens1f0");
  write("class/infiniband/mlx5_2/ports/1/gid_attrs/ndevs/1", "ens1f0");
  fs::create_symlink(root / "devices/pci0000:3a/0000:3b:00.0", root / "class/infiniband/mlx5_2/device");
  EXPECT_EQ(place_of(1, 0, "mlx5_2", root).in_words(), "node1/nic0 (mlx5_2, ens1f0, 0000:3b:00.0)");
  EXPECT_FALSE(place_of(1, 0, "mlx5_2", root).soft);
  EXPECT_EQ(place_of(1, 0, "mlx5_9", root).in_words(), "node1/nic0 (mlx5_9)");
}

TEST_F(Sysfs, soft_roce_has_an_interface_alone) {
  write("class/infiniband/rxe0/parent", "eth5");
  write("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth5");
  EXPECT_EQ(place_of(0, 3, "rxe0", root).in_words(), "node0/nic3 (rxe0, eth5)");
  EXPECT_TRUE(place_of(0, 3, "rxe0", root).soft);
}

TEST_F(Sysfs, the_way_out_of_the_machine_is_known) {
  write("net/route",
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "eno1\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\n"
        "ens1f0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF");
  write("net/ipv6_route",
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
        "fe800000000000000000000000000001 00000400 00000001 00000000 00450003 eno2\n"
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
        "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo");
  LifelineSources sources;
  sources.proc = root;
  std::string ways;
  for (const Lifeline& line : lifelines(sources)) ways += line.interface + ": " + line.what + "\n";
  EXPECT_EQ(
      ways,
      "eno1: the machine's default route leaves by it\neno2: the machine's default route leaves by it\n");
}

}  // namespace
}  // namespace r2bench
