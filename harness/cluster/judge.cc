// SPDX-License-Identifier: Apache-2.0
// What the facts and the pairs mean: nothing is asked here.
#include <algorithm>
#include <map>
#include <set>

#include "harness/cluster/preflight.h"

namespace r2bench {
namespace {

using Level = Finding::Level;

constexpr uint64_t kUsefulLockedBytes = 64u << 20;
constexpr int kRoceHeaders = 4200 - 4096;  // what an Ethernet frame holds beside 4096 bytes of RDMA

class Judge {
 public:
  Judge(const std::vector<RdmaHostFacts>& hosts, const std::vector<PairResult>& pairs, bool hosts_named)
      : hosts_(hosts), pairs_(pairs), hosts_named_(hosts_named) {}

  std::vector<Finding> all() {
    for (const RdmaHostFacts& host : hosts_) {
      of_host(host);
      for (const PortFacts& port : host.ports) of_port(host, port);
    }
    of_pairs();
    alike();
    return std::move(findings_);
  }

 private:
  /// `mend`: empty for what is well only.
  void say(Level level, const RdmaHostFacts* host, const PortFacts* port, const std::string& what,
           const std::string& text, const std::string& mend = "") {
    findings_.push_back({level, host ? host->host : "", port ? port->name() : "", what, text, mend});
  }

  void of_host(const RdmaHostFacts& host) {
    if (host.ports.empty())
      say(Level::kBad, &host, nullptr, "devices", "no RDMA device",
          "modprobe mlx5_ib; rdma link; ibv_devinfo");
    if (host.memlock_bytes < kUsefulLockedBytes)
      say(Level::kBad, &host, nullptr, "memlock",
          "locked memory is limited to " + std::to_string(host.memlock_bytes >> 10) + " KiB",
          "ulimit -l unlimited (for good: '* - memlock unlimited' in /etc/security/limits.d/90-rdma.conf)");
    else
      say(Level::kGood, &host, nullptr, "memlock",
          host.memlock_bytes == UINT64_MAX ? "unlimited" : std::to_string(host.memlock_bytes >> 20) + " MiB");
    if (host.gpus && !host.peer_memory)
      say(Level::kNote, &host, nullptr, "GPUDirect",
          "nvidia_peermem is not loaded; dma-buf needs the open driver", "modprobe nvidia_peermem");
    for (const std::string& tool : host.missing_tools)
      say(Level::kNote, &host, nullptr, "tools",
          tool + " is missing, so the properties that it reads are unknown",
          "apt-get install " + std::string(tool == "setpci"        ? "pciutils"
                                           : tool == "ibv_devinfo" ? "ibverbs-utils"
                                                                   : "iproute2"));
    acs(host);
    networks(host);
  }

  void acs(const RdmaHostFacts& host) {
    std::map<std::string, std::optional<int>> bridges;
    for (const PortFacts& port : host.ports)
      for (const BridgeFacts& bridge : port.bridges) {
        auto& known = bridges[bridge.address];
        if (bridge.acs_control.value_or(0) != 0 || !known) known = bridge.acs_control;
      }
    std::string on;
    size_t readable = 0;
    for (const auto& [address, control] : bridges) {
      readable += control.has_value();
      if (control.value_or(0) != 0)
        on += (on.empty() ? "" : "; ") + ("setpci -s " + address + " ECAP_ACS+6.w=0000");
    }
    if (!on.empty())
      say(host.gpus ? Level::kBad : Level::kNote, &host, nullptr, "ACS",
          std::string("access control services are on above a NIC") +
              (host.gpus ? ": traffic to GPUs makes a detour over the root port"
                         : "; that matters to GPUs only"),
          on);
    else if (!bridges.empty() && readable == 0 && !host.root)
      say(Level::kNote, &host, nullptr, "ACS", "only root can see it", "sudo r2bench doctor --cluster");
    else if (readable > 0)
      say(Level::kGood, &host, nullptr, "ACS", "off above all NICs");
  }

  /// Two ports of a host in one network: the kernel may answer for one through the other.
  void networks(const RdmaHostFacts& host) {
    for (const PairResult& pair : pairs_) {
      if (!pair.same_network || pair.a.host != pair.b.host || &hosts_[pair.a.host] != &host) continue;
      const PortFacts &a = host.ports[pair.a.port], &b = host.ports[pair.b.port];
      if (a.link_layer == "InfiniBand") continue;
      say(Level::kNote, &host, nullptr, "networks",
          a.name() + " and " + b.name() +
              " are in one IP network: give each port a /24 of its own, or at least",
          "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2");
      return;
    }
  }

  void of_port(const RdmaHostFacts& host, const PortFacts& port) {
    if (!port.left_out.empty()) {
      const bool control = port.left_out.rfind("NCCL_IB_HCA", 0) != 0;
      say(control ? Level::kNote : Level::kGood, &host, &port, "left out",
          port.left_out + (control ? ": it is not proved, and a run takes it after all others" : ""),
          control
              ? "NCCL_IB_HCA==" + port.device + ",… (lists the devices to take: it is proved and taken then)"
              : "");
      return;
    }
    const bool ethernet = port.link_layer == "Ethernet";
    if (port.state != "ACTIVE") {
      const bool spare = !joins_a_rail(host, port);
      say(spare ? Level::kNote : Level::kBad, &host, &port, "link",
          "the port is " + (port.state.empty() ? "of unknown state" : port.state) +
              (spare ? "; no network of it is another host's: a spare port, which a run leaves out" : ""),
          port.interface.empty()
              ? "ibstat; is there a subnet manager?"
              : "ip link set " + port.interface + " up; ethtool " + port.interface + " (is there a cable?)");
      return;
    }
    say(Level::kGood, &host, &port, "link",
        port.link_layer + ", " + port.rate + (port.firmware.empty() ? "" : ", firmware " + port.firmware));
    if (ethernet) {
      const auto gid = port.chosen_gid();
      if (!gid)
        say(Level::kBad, &host, &port, "GID", "no RoCE v2 GID among " + std::to_string(port.gids.size()),
            "ip addr add ADDRESS/24 dev " + (port.interface.empty() ? "INTERFACE" : port.interface));
      else
        say(Level::kGood, &host, &port, "GID",
            "index " + std::to_string(gid->index) + ", " + gid->type + ", " + gid->gid);
      mtu(host, port);
      if (port.pfc && *port.pfc == "none" && !port.soft)
        say(Level::kNote, &host, &port, "PFC",
            "no priority has flow control: loss under congestion is repaired by retries",
            "dcb pfc set dev " + port.interface + " prio-pfc 3:on (and on the switch)");
      if (port.ecn && !*port.ecn)
        say(Level::kNote, &host, &port, "ECN", "congestion notification is off for priority 3",
            "echo 1 >/sys/class/net/" + port.interface + "/ecn/roce_np/enable/3");
    }
    if (port.rate_limit && *port.rate_limit != "none")
      say(Level::kNote, &host, &port, "rate limit",
          "the NIC sends at most " + *port.rate_limit + " a traffic class",
          "dcb maxrate set dev " + port.interface + " tc-maxrate all:0bit");
    if (port.pci_width > 0 && (port.pci_width < port.pci_width_max ||
                               (!port.pci_speed_max.empty() && port.pci_speed != port.pci_speed_max)))
      say(Level::kNote, &host, &port, "PCIe",
          port.pci_speed + " x" + std::to_string(port.pci_width) + ", where " + port.pci_speed_max + " x" +
              std::to_string(port.pci_width_max) + " is possible: a slower slot, or a card that sits badly",
          "lspci -vvs " + port.pci + " | grep -E 'LnkCap|LnkSta'; then reseat the card, or use another slot");
    dpu(host, port);
  }

  void mtu(const RdmaHostFacts& host, const PortFacts& port) {
    if (port.active_mtu == 0 || port.max_mtu == 0) return;
    const std::string text = std::to_string(port.active_mtu) + " of " + std::to_string(port.max_mtu) +
                             " bytes, interface " + std::to_string(port.interface_mtu);
    if (port.active_mtu < port.max_mtu)
      say(Level::kNote, &host, &port, "MTU", text,
          "ip link set " + port.interface + " mtu " + std::to_string(port.max_mtu + kRoceHeaders) +
              " (or 9000, if the switch supports it)");
    else
      say(Level::kGood, &host, &port, "MTU", text);
  }

  void dpu(const RdmaHostFacts& host, const PortFacts& port) {
    if (port.dpu_mode == "DPU")
      say(Level::kNote, &host, &port, "BlueField",
          "DPU mode: OVS on its Arm side forwards what this port sends",
          "ovs-vsctl show (on its Arm side: both ends of this port in one bridge)");
    else if (port.dpu_mode == "NIC")
      say(Level::kNote, &host, &port, "BlueField", "NIC mode: an OVS rule on it has no effect",
          "mstconfig -d " + port.pci +
              " set INTERNAL_CPU_OFFLOAD_ENGINE=0 (for real_ovs_drop; then a power cycle)");
    else if (port.dpu_mode == "unknown")
      say(Level::kNote, &host, &port, "BlueField", "its mode is not known",
          "apt-get install mstflint; mstconfig -d " + port.pci +
              " query INTERNAL_CPU_OFFLOAD_ENGINE (as root)");
  }

  /// Whether another host has a port in one of this port's networks.
  bool joins_a_rail(const RdmaHostFacts& host, const PortFacts& port) const {
    for (const RdmaHostFacts& other : hosts_)
      if (&other != &host)
        for (const PortFacts& its : other.ports)
          if (port.link_layer == its.link_layer && in_one_network(port, its)) return true;
    return false;
  }

  /// A port that reaches no port of some other host carries nothing between the two, whatever the other rails
  /// do. A pair in one network is told by itself.
  void reach(size_t h, size_t p) {
    std::string without;
    for (size_t other = 0; other < hosts_.size(); ++other) {
      if (other == h) continue;
      bool reached = false, told = false;
      for (const PairResult& pair : pairs_) {
        const bool first = pair.a.host == h && pair.a.port == p && pair.b.host == other;
        const bool second = pair.b.host == h && pair.b.port == p && pair.a.host == other;
        if (!first && !second) continue;
        reached = reached || pair.error.empty();
        told = told || pair.same_network;
      }
      if (!reached && !told) without += (without.empty() ? "" : ", ") + hosts_[other].host;
    }
    if (without.empty()) return;
    const PortFacts& port = hosts_[h].ports[p];
    std::string has;
    for (const std::string& address : port.addresses) has += (has.empty() ? "" : ", ") + address;
    const std::string interface = port.interface.empty() ? "INTERFACE" : port.interface;
    say(Level::kBad, &hosts_[h], &port, "reach",
        "it reaches no port of " + without + ", and none is in its network (" +
            (has.empty() ? "it has no IPv4 address" : has) + ")",
        "ip addr add ADDRESS/24 dev " + interface +
            " (of the rail's network); a port that no job is to use: " + "NCCL_IB_HCA=^=" + port.device);
  }

  std::string pair_in_words(const PairResult& pair) const {
    const auto end = [&](const PortId& id) {
      return (hosts_.size() > 1 ? hosts_[id.host].host + "/" : "") + hosts_[id.host].ports[id.port].name();
    };
    return end(pair.a) + " and " + end(pair.b);
  }

  void of_pairs() {
    size_t proved = 0, apart = 0;
    for (const PairResult& pair : pairs_) {
      if (pair.error.empty()) {
        ++proved;
      } else if (!pair.same_network) {
        ++apart;
      } else {
        const PortFacts& a = hosts_[pair.a.host].ports[pair.a.port];
        say(Level::kBad, nullptr, nullptr, "transfer", pair_in_words(pair) + ": " + pair.error,
            "compare addresses, VLANs and MTUs of both; then: ib_write_bw -d " + a.device + " -x " +
                (a.chosen_gid() ? std::to_string(a.chosen_gid()->index) : std::string("0")));
      }
    }
    const std::string of =
        std::to_string(proved) + " of " + std::to_string(pairs_.size()) + " pairs of ports";
    if (proved == 0)
      say(Level::kBad, nullptr, nullptr, "transfer",
          "no pair of ports was proved" + std::string(pairs_.empty() ? ": there are not two" : ""),
          hosts_named_ ? "rdma link; ip -br addr (on each host: which ports are ACTIVE, in which networks?)"
                       : "r2bench doctor --cluster --host HOST,HOST…");
    else
      say(Level::kGood, nullptr, nullptr, "transfer", of + " carried bytes both ways");
    if (apart > 0)
      say(Level::kNote, nullptr, nullptr, "cross rails",
          std::to_string(apart) +
              " pairs of ports in different networks do not reach each other: if two nodes lose NICs of "
              "different rails at the same time, no path may be left between them",
          "ip route add NETWORK via GATEWAY dev INTERFACE (for each rail, where the switch routes between "
          "them)");
    for (size_t h = 0; h < hosts_.size(); ++h)
      for (size_t p = 0; p < hosts_[h].ports.size(); ++p)
        if (hosts_[h].ports[p].state == "ACTIVE" && hosts_[h].ports[p].left_out.empty()) reach(h, p);
  }

  /// Ports that should be alike and are not.
  void alike() {
    std::map<std::string, std::set<std::string>> firmware;
    std::set<std::string> rates;
    for (const RdmaHostFacts& host : hosts_)
      for (const PortFacts& port : host.ports) {
        if (!port.board.empty() && !port.firmware.empty()) firmware[port.board].insert(port.firmware);
        if (port.state == "ACTIVE" && port.left_out.empty()) rates.insert(port.rate);
      }
    for (const auto& [board, versions] : firmware) {
      if (versions.size() < 2) continue;
      std::string list;
      for (const std::string& version : versions) list += (list.empty() ? "" : ", ") + version;
      say(Level::kNote, nullptr, nullptr, "firmware", "boards " + board + " have " + list,
          "mstfwmanager (apt-get install mstflint)");
    }
    if (rates.size() > 1) {
      std::string list;
      for (const std::string& rate : rates) list += (list.empty() ? "" : "; ") + rate;
      say(Level::kNote, nullptr, nullptr, "link speed", "ports differ: " + list,
          "ethtool INTERFACE (what each end offers); ethtool -s INTERFACE autoneg on");
    }
  }

  const std::vector<RdmaHostFacts>& hosts_;
  const std::vector<PairResult>& pairs_;
  bool hosts_named_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> judge_cluster(const std::vector<RdmaHostFacts>& hosts,
                                   const std::vector<PairResult>& pairs, bool hosts_named) {
  return Judge(hosts, pairs, hosts_named).all();
}

}  // namespace r2bench
