// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/fabric/fabric_host.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/fabric/arena.h"
#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/fabric/port_clock.h"
#include "harness/vhca/fabric/process_table.h"

namespace vhca {
namespace {

void check(const FabricSpec& spec) {
  if (spec.nodes.empty() || spec.nodes.size() > kMaxNodes)
    throw std::invalid_argument("a fabric has 1 to " + std::to_string(kMaxNodes) + " nodes, not " +
                                std::to_string(spec.nodes.size()));
  if (spec.ports_per_nic < 1 || spec.ports_per_nic > kMaxPortsPerNic)
    throw std::invalid_argument("a NIC has 1 to " + std::to_string(kMaxPortsPerNic) + " ports, not " +
                                std::to_string(spec.ports_per_nic));
  if (spec.mtu < 256 || spec.mtu > 4096 || !std::has_single_bit(spec.mtu))
    throw std::invalid_argument("an MTU is 256, 512, 1024, 2048 or 4096 bytes, not " +
                                std::to_string(spec.mtu));
  if (spec.cross_percent < 1 || spec.cross_percent > 100)
    throw std::invalid_argument("across NUMA nodes a port carries 1 to 100 % of its rate, not " +
                                std::to_string(spec.cross_percent) + " %");
  std::size_t ports = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec& node = spec.nodes[i];
    if (node.name.empty() || node.name.size() >= sizeof(Node::name))
      throw std::invalid_argument("node name '" + node.name + "': 1 to " +
                                  std::to_string(sizeof(Node::name) - 1) + " characters are wanted");
    if (node.nics.empty() || node.nics.size() > kMaxNicsPerNode)
      throw std::invalid_argument("node '" + node.name + "': a node has 1 to " +
                                  std::to_string(kMaxNicsPerNode) + " NICs, not " +
                                  std::to_string(node.nics.size()));
    for (std::size_t j = 0; j < i; ++j)
      if (spec.nodes[j].name == node.name)
        throw std::invalid_argument("two nodes are named '" + node.name + "'");
    for (const PortSpec& nic : node.nics) {
      if (nic.latency.count() < 0)
        throw std::invalid_argument("node '" + node.name + "': a latency is negative");
      if (nic.memory_node < -1 || nic.memory_node >= static_cast<int>(kMaxMemoryNodes))
        throw std::invalid_argument("node '" + node.name + "': a NIC is on NUMA node " +
                                    std::to_string(nic.memory_node) + "; they are 0 to " +
                                    std::to_string(kMaxMemoryNodes - 1));
      if (nic.rate_bits_per_s > 10'000'000'000'000ull)
        throw std::invalid_argument("node '" + node.name + "': a rate is above 10 Tbit/s");
    }
    ports += node.nics.size() * spec.ports_per_nic;
  }
  if (ports > kMaxPorts)
    throw std::invalid_argument("a fabric has at most " + std::to_string(kMaxPorts) + " ports, not " +
                                std::to_string(ports));
}

void lay_out(Fabric& fabric, const FabricSpec& spec) {
  const std::uint64_t now = now_ns();
  for (const NodeSpec& node : spec.nodes) {
    const std::uint32_t n = fabric.node_count++;
    std::memcpy(fabric.nodes[n].name, node.name.c_str(), node.name.size() + 1);
    fabric.nodes[n].first_port = fabric.port_count;
    fabric.nodes[n].nic_count = static_cast<std::uint32_t>(node.nics.size());
    fabric.nodes[n].ports_per_nic = static_cast<std::uint32_t>(spec.ports_per_nic);
    for (std::uint32_t i = 0; i < node.nics.size(); ++i) {
      for (std::uint32_t k = 0; k < spec.ports_per_nic; ++k) {
        Port& port = fabric.ports[fabric.port_count++];
        port.node = n;
        port.nic = i;
        port.number = k + 1;
        port.lid = spec.link_layer == LinkLayer::kInfiniBand ? fabric.port_count : 0;
        port.mtu = spec.mtu;
        port.memory_node = node.nics[i].memory_node < 0
                               ? kNoMemoryNode
                               : static_cast<std::uint32_t>(node.nics[i].memory_node);
        port.rate_bits_per_s = node.nics[i].rate_bits_per_s;
        port.latency_ns = static_cast<std::uint64_t>(node.nics[i].latency.count());
        port.guid = 0x02c2'ccff'fe00'0000ull | k << 16 | n << 8 | i;  // locally administered
        init_server(port.tx, port.rate_bits_per_s, now);
        init_server(port.rx, port.rate_bits_per_s, now);
      }
    }
  }
  fabric.is_infiniband = spec.link_layer == LinkLayer::kInfiniBand;
  fabric.cross_percent = spec.cross_percent;
  fabric.bytes = kFabricBytes;
  fabric.version = kLayoutVersion;
  fabric.magic = kFabricMagic;
}

}  // namespace

struct FabricHost::Impl {
  int fd = -1;
  Fabric* fabric = nullptr;
  std::string path;

  ~Impl() {
    if (fabric) ::munmap(fabric, kFabricBytes);
    if (fd >= 0) ::close(fd);
  }
};

FabricHost FabricHost::create(const FabricSpec& spec) {
  check(spec);
  auto impl = std::make_unique<Impl>();
  impl->fd = ::memfd_create("vhca-fabric", MFD_CLOEXEC);
  if (impl->fd < 0)
    throw std::system_error(errno, std::generic_category(), "memfd_create for a virtual fabric");
  if (::ftruncate(impl->fd, static_cast<off_t>(kFabricBytes)) != 0)
    throw std::system_error(errno, std::generic_category(), "ftruncate of a virtual fabric");
  void* memory =
      ::mmap(nullptr, kFabricBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, impl->fd, 0);
  if (memory == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "mmap of a virtual fabric");
  impl->fabric = static_cast<Fabric*>(memory);
  impl->path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(impl->fd);
  lay_out(*impl->fabric, spec);
  return FabricHost(std::move(impl));
}

FabricHost::FabricHost(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FabricHost::FabricHost(FabricHost&&) noexcept = default;
FabricHost& FabricHost::operator=(FabricHost&&) noexcept = default;
FabricHost::~FabricHost() = default;

const std::string& FabricHost::path() const { return impl_->path; }

PortCounters FabricHost::counters(std::size_t node, std::size_t nic, std::size_t number) const {
  const Fabric& fabric = *impl_->fabric;
  if (node >= fabric.node_count || nic >= fabric.nodes[node].nic_count || number < 1 ||
      number > fabric.nodes[node].ports_per_nic)
    throw std::out_of_range("no port " + std::to_string(number) + " of NIC " + std::to_string(nic) +
                            " in node " + std::to_string(node) + " of the fabric");
  const Port& port =
      fabric.ports[fabric.nodes[node].first_port + nic * fabric.nodes[node].ports_per_nic + number - 1];
  return {port.tx_bytes.load(), port.rx_bytes.load(),        port.tx_messages.load(), port.rx_messages.load(),
          port.rnr_naks.load(), port.retry_exhausted.load(), port.dropped.load()};
}

PortCounters FabricHost::counters(const std::string& node, std::size_t nic, std::size_t number) const {
  const Fabric& fabric = *impl_->fabric;
  for (std::size_t i = 0; i < fabric.node_count; ++i)
    if (node == fabric.nodes[i].name) return counters(i, nic, number);
  throw std::out_of_range("no node '" + node + "' in the fabric");
}

FabricHost::Usage FabricHost::usage() const {
  Fabric& fabric = *impl_->fabric;
  reclaim_dead_processes(fabric);
  Usage usage;
  for (const ProcessSlot& slot : fabric.processes) usage.processes += slot.claim.load() != 0;
  for (const QpSlot& slot : fabric.queue_pairs.used()) usage.queue_pairs += slot.owner.load() != 0;
  for (const CqSlot& slot : fabric.completion_queues.used())
    usage.completion_queues += slot.owner.load() != 0;
  for (const SrqSlot& slot : fabric.shared_receive_queues.used())
    usage.shared_receive_queues += slot.owner.load() != 0;
  for (const MrSlot& slot : fabric.memory_regions.used()) usage.memory_regions += slot.owner.load() != 0;
  for (std::size_t i = 0; i < fabric.pages_used.load(); ++i)
    usage.arena_bytes += fabric.page_owner[i].load() != 0 ? kArenaPageBytes : 0;
  return usage;
}

}  // namespace vhca
