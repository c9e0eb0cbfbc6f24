// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <set>

#include "harness/cluster/preflight.h"

namespace r2bench {
namespace {

using Level = Finding::Level;

PortFacts good_port(const std::string& device, const std::string& address) {
  PortFacts port;
  port.device = device;
  port.state = "ACTIVE";
  port.link_layer = "Ethernet";
  port.rate = "100 Gb/sec (4X EDR)";
  port.active_mtu = port.max_mtu = 4096;
  port.interface = "ens_" + device;
  port.interface_mtu = 9000;
  port.addresses = {address};
  port.gids = {{0, "fe80:0000:0000:0000:0e42:a1ff:fedd:5802", "IB/RoCE v1"},
               {1, "fe80:0000:0000:0000:0e42:a1ff:fedd:5802", "RoCE v2"},
               {3, "0000:0000:0000:0000:0000:ffff:0a0a:0001", "RoCE v2"}};
  port.firmware = "16.35.2000";
  port.board = "MT_0000000008";
  port.pci = "0000:3b:00.0";
  port.pci_speed = port.pci_speed_max = "16.0 GT/s PCIe";
  port.pci_width = port.pci_width_max = 16;
  port.bridges = {{"0000:3a:00.0", 0}};
  return port;
}

struct Cluster {
  Cluster() {
    for (int h = 0; h < 2; ++h) {
      RdmaHostFacts host;
      host.host = "node" + std::to_string(h);
      host.memlock_bytes = UINT64_MAX;
      host.root = true;
      for (int p = 0; p < 2; ++p)
        host.ports.push_back(good_port("mlx5_" + std::to_string(p),
                                       "10.10." + std::to_string(p) + "." + std::to_string(h + 1) + "/24"));
      hosts.push_back(host);
    }
  }
  std::vector<Finding> judge(bool named = true) {
    pairs = pairs_of(hosts);
    for (PairResult& pair : pairs)
      if (!pair.same_network) pair.error = "no route";
    for (PairResult& pair : pairs) pair.error = change ? change(pair) : pair.error;
    return judge_cluster(hosts, pairs, named);
  }
  /// The first finding of that word, level and port.
  const Finding* find(const std::string& what, Level level, bool named = true) {
    found = judge(named);
    for (const Finding& finding : found)
      if (finding.what == what && finding.level == level) return &finding;
    return nullptr;
  }
  size_t bad() {
    size_t count = 0;
    for (const Finding& finding : judge()) count += finding.level == Level::kBad;
    return count;
  }
  std::vector<RdmaHostFacts> hosts;
  std::vector<PairResult> pairs;
  std::vector<Finding> found;
  std::function<std::string(const PairResult&)> change;
};

TEST(ClusterJudge, a_good_cluster_lacks_nothing) {
  Cluster cluster;
  EXPECT_EQ(cluster.bad(), 0u);
  ASSERT_EQ(cluster.pairs.size(), 6u);
  size_t rails = 0;
  for (const PairResult& pair : cluster.pairs) rails += pair.same_network;
  EXPECT_EQ(rails, 2u) << "mlx5_0 with mlx5_0, mlx5_1 with mlx5_1";
  ASSERT_NE(cluster.find("transfer", Level::kGood), nullptr);
  EXPECT_EQ(cluster.find("transfer", Level::kGood)->text, "2 of 6 pairs of ports carried bytes both ways");
  EXPECT_NE(cluster.find("cross rails", Level::kNote), nullptr);
  EXPECT_NE(cluster.find("GID", Level::kGood)->text.find("index 3, RoCE v2"), std::string::npos);
}

TEST(ClusterJudge, a_rail_that_pings_and_carries_nothing_is_bad) {
  Cluster cluster;
  cluster.change = [](const PairResult& pair) {
    return pair.same_network && pair.a.port == 1
               ? "node0: the transfer failed: transport retry counter exceeded"
               : pair.error;
  };
  const Finding* finding = cluster.find("transfer", Level::kBad);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->text,
            "node0/mlx5_1 and node1/mlx5_1: node0: the transfer failed: transport retry counter exceeded");
  EXPECT_NE(finding->mend.find("ib_write_bw -d mlx5_1 -x 3"), std::string::npos);
}

TEST(ClusterJudge, a_rail_that_no_host_can_use_is_bad) {
  Cluster cluster;
  for (RdmaHostFacts& host : cluster.hosts) {  // nobody has given the second ports an address
    host.ports[1].addresses.clear();
    host.ports[1].gids.resize(2);
  }
  const Finding* finding = cluster.find("reach", Level::kBad);
  ASSERT_NE(finding, nullptr) << "the first rail alone is proved";
  EXPECT_EQ(cluster.bad(), 2u) << "one for each end";
  finding = cluster.find("reach", Level::kBad);
  EXPECT_EQ(finding->host, "node0");
  EXPECT_EQ(finding->port, "mlx5_1");
  EXPECT_NE(finding->text.find("no port of node1"), std::string::npos) << finding->text;
  EXPECT_NE(finding->mend.find("ip addr add ADDRESS/24 dev ens_mlx5_1"), std::string::npos);
}

TEST(ClusterJudge, a_rail_that_has_no_link_on_any_host_is_bad) {
  Cluster cluster;
  for (RdmaHostFacts& host : cluster.hosts) host.ports[1].state = "DOWN";
  EXPECT_EQ(cluster.bad(), 2u) << "both have an address of the rail's network";
}

TEST(ClusterJudge, a_spare_port_without_a_cable_is_a_note) {
  Cluster cluster;
  cluster.hosts[0].ports.push_back(good_port("mlx5_2", "192.168.0.1/24"));
  cluster.hosts[0].ports[2].state = "DOWN";
  const Finding* finding = cluster.find("link", Level::kNote);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->port, "mlx5_2");
  EXPECT_EQ(cluster.bad(), 0u);
}

TEST(ClusterJudge, the_mend_of_a_port_that_no_job_is_to_use_mends_it) {
  Cluster cluster;
  for (RdmaHostFacts& host : cluster.hosts) {
    host.ports.push_back(good_port("mlx5_10", "192.168." + host.host.substr(4) + ".1/24"));
    host.ports.back().gids.clear();
  }
  const Finding* finding = cluster.find("reach", Level::kBad);
  ASSERT_NE(finding, nullptr);
  const size_t at = finding->mend.find("NCCL_IB_HCA=");
  ASSERT_NE(at, std::string::npos);
  leave_out(cluster.hosts, finding->mend.substr(at + strlen("NCCL_IB_HCA=")));
  EXPECT_EQ(cluster.bad(), 0u);
  EXPECT_EQ(cluster.pairs.size(), 6u) << "it is not proved either";
  EXPECT_EQ(cluster.find("left out", Level::kGood)->port, "mlx5_10");
  EXPECT_EQ(cluster.hosts[0].ports[1].left_out, "") << "mlx5_1 is no mlx5_10";
}

TEST(ClusterJudge, the_port_of_the_default_route_is_left_out_unless_it_is_listed) {
  Cluster cluster;
  for (RdmaHostFacts& host : cluster.hosts) host.ports[0].default_route = true;
  leave_out(cluster.hosts, "");
  const Finding* finding = cluster.find("left out", Level::kNote);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->port, "mlx5_0");
  EXPECT_NE(finding->text.find("default route"), std::string::npos) << finding->text;
  EXPECT_EQ(cluster.pairs.size(), 1u) << "the other ports' own";
  leave_out(cluster.hosts, "mlx5_0,mlx5_1");
  EXPECT_EQ(cluster.find("left out", Level::kNote), nullptr);
  EXPECT_EQ(cluster.pairs.size(), 6u);
  for (RdmaHostFacts& host : cluster.hosts) host.ports[1].state = "DOWN";
  leave_out(cluster.hosts, "");
  EXPECT_EQ(cluster.find("left out", Level::kNote), nullptr) << "a run has no other";
}

TEST(ClusterJudge, where_nothing_was_proved_nothing_is_ready) {
  Cluster cluster;
  cluster.hosts.pop_back();
  const Finding* finding = cluster.find("transfer", Level::kBad, false);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->mend.find("--host HOST"), std::string::npos);
  cluster.hosts[0].ports.clear();
  EXPECT_NE(cluster.find("devices", Level::kBad)->mend.find("modprobe mlx5_ib"), std::string::npos);
}

TEST(ClusterJudge, each_missing_thing_has_its_command) {
  const auto only = [](const std::function<void(RdmaHostFacts&, PortFacts&)>& spoil, const std::string& what,
                       Level level, const std::string& mend) {
    Cluster cluster;
    spoil(cluster.hosts[1], cluster.hosts[1].ports[0]);
    const Finding* finding = cluster.find(what, level);
    ASSERT_NE(finding, nullptr) << what;
    EXPECT_EQ(finding->host, "node1") << what;
    EXPECT_NE(finding->mend.find(mend), std::string::npos) << what << ": " << finding->mend;
  };
  only([](RdmaHostFacts& h, PortFacts&) { h.memlock_bytes = 64 << 10; }, "memlock", Level::kBad,
       "ulimit -l unlimited");
  only([](RdmaHostFacts&, PortFacts& p) { p.state = "DOWN"; }, "link", Level::kBad,
       "ip link set ens_mlx5_0 up");
  only(
      [](RdmaHostFacts&, PortFacts& p) {
        p.gids = {{0, "fe80::1", "IB/RoCE v1"}};
      },
      "GID", Level::kBad, "ip addr add");
  only([](RdmaHostFacts&, PortFacts& p) { p.active_mtu = 1024, p.interface_mtu = 1500; }, "MTU", Level::kNote,
       "ip link set ens_mlx5_0 mtu 4200");
  only([](RdmaHostFacts&, PortFacts& p) { p.pfc = "none"; }, "PFC", Level::kNote,
       "dcb pfc set dev ens_mlx5_0");
  only([](RdmaHostFacts&, PortFacts& p) { p.ecn = false; }, "ECN", Level::kNote, "ecn/roce_np/enable/3");
  only([](RdmaHostFacts&, PortFacts& p) { p.rate_limit = "25Gbit"; }, "rate limit", Level::kNote,
       "dcb maxrate set");
  only([](RdmaHostFacts&, PortFacts& p) { p.dpu_mode = "unknown"; }, "BlueField", Level::kNote,
       "mstconfig -d 0000:3b:00.0");
  only([](RdmaHostFacts& h, PortFacts& p) { h.gpus = h.peer_memory = true, p.bridges[0].acs_control = 0x1d; },
       "ACS", Level::kBad, "setpci -s 0000:3a:00.0 ECAP_ACS+6.w=0000");
  only([](RdmaHostFacts&, PortFacts& p) { p.bridges[0].acs_control = 0x1d; }, "ACS", Level::kNote, "setpci");
  only([](RdmaHostFacts& h, PortFacts&) { h.gpus = true; }, "GPUDirect", Level::kNote,
       "modprobe nvidia_peermem");
  only([](RdmaHostFacts& h, PortFacts&) { h.missing_tools = {"dcb"}; }, "tools", Level::kNote,
       "apt-get install iproute2");
}

/// Everything that can be wrong, each on a cluster of its own.
const std::vector<std::function<void(Cluster&)>>& all_that_can_be_wrong() {
  static const auto port = [](auto change) { return [change](Cluster& c) { change(c.hosts[1].ports[0]); }; };
  static const std::vector<std::function<void(Cluster&)>> all = {
      [](Cluster& c) { c.hosts[1].ports.clear(); },
      [](Cluster& c) { c.hosts[1].memlock_bytes = 64 << 10; },
      [](Cluster& c) { c.hosts[1].gpus = true; },
      [](Cluster& c) {
        c.hosts[1].missing_tools = {"ip", "dcb", "setpci", "ibv_devinfo"};
      },
      [](Cluster& c) { c.hosts[1].gpus = true, c.hosts[1].ports[0].bridges[0].acs_control = 1; },
      [](Cluster& c) { c.hosts[1].ports[0].bridges[0].acs_control = 1; },
      [](Cluster& c) {
        c.hosts[1].root = false;
        for (PortFacts& p : c.hosts[1].ports) p.bridges[0].acs_control = std::nullopt;
      },
      [](Cluster& c) { c.hosts[1].ports[1].addresses = c.hosts[1].ports[0].addresses; },
      port([](PortFacts& p) { p.state = "DOWN"; }),
      port([](PortFacts& p) { p.state = ""; }),
      port([](PortFacts& p) { p.state = "INIT", p.link_layer = "InfiniBand", p.interface = ""; }),
      port([](PortFacts& p) { p.state = "DOWN", p.addresses.clear(); }),
      port([](PortFacts& p) { p.gids.clear(); }),
      port([](PortFacts& p) { p.addresses.clear(); }),
      port([](PortFacts& p) { p.active_mtu = 1024; }),
      port([](PortFacts& p) { p.pfc = "none"; }),
      port([](PortFacts& p) { p.ecn = false; }),
      port([](PortFacts& p) { p.rate_limit = "25Gbit"; }),
      port([](PortFacts& p) { p.pci_width = 8; }),
      port([](PortFacts& p) { p.dpu_mode = "DPU"; }),
      port([](PortFacts& p) { p.dpu_mode = "NIC"; }),
      port([](PortFacts& p) { p.dpu_mode = "unknown"; }),
      port([](PortFacts& p) { p.firmware = "16.31.1014"; }),
      port([](PortFacts& p) { p.rate = "25 Gb/sec (1X EDR)"; }),
      port([](PortFacts& p) { p.left_out = "the machine's default route leaves by it"; }),
      [](Cluster& c) { c.change = [](const PairResult&) { return std::string("retry counter exceeded"); }; },
      [](Cluster& c) { c.hosts.clear(); },
  };
  return all;
}

TEST(ClusterJudge, nothing_that_is_said_to_lack_is_without_its_command) {
  std::set<std::string> words;
  for (size_t i = 0; i < all_that_can_be_wrong().size(); ++i)
    for (const bool named : {true, false}) {
      Cluster cluster;
      all_that_can_be_wrong()[i](cluster);
      bool any = false;
      for (const Finding& finding : cluster.judge(named)) {
        if (finding.level == Level::kGood) continue;
        any = any || finding.what != "cross rails";
        words.insert(finding.what);
        EXPECT_FALSE(finding.mend.empty()) << finding.what << ": " << finding.text;
      }
      EXPECT_TRUE(any) << "case " << i << " is told";
    }
  EXPECT_EQ(words, (std::set<std::string>{"ACS",      "BlueField",  "ECN",   "GID",         "GPUDirect",
                                          "MTU",      "PCIe",       "PFC",   "cross rails", "devices",
                                          "firmware", "left out",   "link",  "link speed",  "memlock",
                                          "networks", "rate limit", "reach", "tools",       "transfer"}));
}

TEST(ClusterJudge, ports_that_are_not_alike_are_told) {
  Cluster cluster;
  cluster.hosts[1].ports[0].firmware = "16.31.1014";
  EXPECT_NE(cluster.find("firmware", Level::kNote)->text.find("16.31.1014, 16.35.2000"), std::string::npos);
  cluster.hosts[1].ports[1].rate = "25 Gb/sec (1X EDR)";
  EXPECT_NE(cluster.find("link speed", Level::kNote), nullptr);
  cluster.hosts[0].ports[0].pci_width = 8;
  EXPECT_NE(cluster.find("PCIe", Level::kNote)->text.find("16.0 GT/s PCIe x8, where 16.0 GT/s PCIe x16"),
            std::string::npos);
  EXPECT_EQ(cluster.bad(), 0u) << "differences are notes";
}

TEST(ClusterJudge, two_ports_in_one_network_are_a_pitfall) {
  Cluster cluster;
  cluster.hosts[0].ports[1].addresses = {"10.10.0.7/24"};
  EXPECT_NE(cluster.find("networks", Level::kNote)->mend.find("arp_ignore=1"), std::string::npos);
}

TEST(ClusterJudge, infiniband_needs_no_gid) {
  Cluster cluster;
  for (RdmaHostFacts& host : cluster.hosts)
    for (PortFacts& port : host.ports)
      port.link_layer = "InfiniBand", port.gids.clear(), port.addresses.clear();
  for (const PairResult& pair : pairs_of(cluster.hosts)) EXPECT_TRUE(pair.same_network);
  EXPECT_EQ(cluster.bad(), 0u);
}

TEST(ClusterFacts, survive_their_way_from_another_host) {
  Cluster cluster;
  cluster.hosts[0].ports[0].pfc = "3";
  cluster.hosts[0].ports[0].ecn = true;
  cluster.hosts[0].ports[1].bridges[0].acs_control = std::nullopt;
  cluster.hosts[0].ports[1].default_route = true;
  cluster.hosts[0].ports[1].left_out = "NCCL_IB_HCA=^=mlx5_1";
  const nlohmann::json json = cluster.hosts[0];
  const RdmaHostFacts same = nlohmann::json::parse(json.dump()).get<RdmaHostFacts>();
  EXPECT_EQ(nlohmann::json(same), json);
  EXPECT_EQ(same.memlock_bytes, UINT64_MAX);
  EXPECT_EQ(same.ports[0].pfc, "3");
  EXPECT_TRUE(same.ports[1].default_route);
  EXPECT_EQ(same.ports[1].left_out, "NCCL_IB_HCA=^=mlx5_1");
  EXPECT_FALSE(same.ports[1].bridges[0].acs_control);
}

}  // namespace
}  // namespace r2bench
