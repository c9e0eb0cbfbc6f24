// SPDX-License-Identifier: Apache-2.0
// The owner's side of a virtual fabric: creates the shared memory that all virtual HCAs of a job live in, and
// reads its counters. Must never take part in the traffic: the fabric works on while its host is stopped.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vhca {

enum class LinkLayer { kEthernet, kInfiniBand };

// One NIC; each of its ports is like this. The rate holds in each direction on its own (full duplex); 0 = as
// fast as the memory. The latency is added once per one-way trip that leaves this port.
struct PortSpec {
  std::uint64_t rate_bits_per_s = 0;
  std::chrono::nanoseconds latency{0};
  int memory_node = -1;  // the NUMA node it hangs on, 0..63; -1: no matter
};

struct NodeSpec {
  std::string name;  // 1..31 characters, unique within the fabric; processes name it in VHCA_NODE
  std::vector<PortSpec> nics;
};

struct FabricSpec {
  std::vector<NodeSpec> nodes;
  LinkLayer link_layer = LinkLayer::kEthernet;
  std::size_t ports_per_nic = 1;  // 1..4
  std::uint32_t mtu =
      4096;  // bytes, one of 256, 512, 1024, 2048, 4096: the most that a datagram or a QP's path_mtu may be
  // 1..100: what a port carries of its rate to and from a process whose memory is on another NUMA node than
  // the port's. A process says where its memory is in VHCA_MEMORY_NODE; one that does not is everywhere near.
  unsigned cross_percent = 100;
};

// What one port has carried since the fabric was made: payload bytes and messages (WRs; READ responses count
// at the side that sends them).
struct PortCounters {
  std::uint64_t tx_bytes = 0;
  std::uint64_t rx_bytes = 0;
  std::uint64_t tx_messages = 0;
  std::uint64_t rx_messages = 0;
  std::uint64_t rnr_naks = 0;         // counted at the requester
  std::uint64_t retry_exhausted = 0;  // counted at the requester
  std::uint64_t dropped = 0;          // UC and UD messages that reached nobody; counted at the sender
};

// Owns the fabric's memfd. Processes of the job find it through path() in VHCA_FABRIC; the path names a
// descriptor of the creating process, so it can be opened for as long as this object lives, and the memory is
// gone when the last process that maps it is gone, however they end.
class FabricHost {
 public:
  // Limits: 64 nodes, 16 NICs per node, 4 ports per NIC, 512 ports in all.
  // Throws std::invalid_argument (what is wrong with the spec) or std::system_error (memfd_create, ftruncate,
  // mmap).
  static FabricHost create(const FabricSpec& spec);

  FabricHost(FabricHost&&) noexcept;
  FabricHost& operator=(FabricHost&&) noexcept;
  FabricHost(const FabricHost&) = delete;
  FabricHost& operator=(const FabricHost&) = delete;
  ~FabricHost();

  // The value for VHCA_FABRIC, e.g. /proc/4711/fd/5.
  const std::string& path() const;

  // Nodes by name or by their index in the spec; ports of a NIC from 1, as verbs count them. Throws
  // std::out_of_range.
  PortCounters counters(const std::string& node, std::size_t nic, std::size_t port = 1) const;
  PortCounters counters(std::size_t node, std::size_t nic, std::size_t port = 1) const;

  // What processes hold at this moment, all nodes together: tests use it to show that nothing leaks.
  struct Usage {
    std::size_t processes = 0;
    std::size_t queue_pairs = 0;
    std::size_t completion_queues = 0;
    std::size_t shared_receive_queues = 0;
    std::size_t memory_regions = 0;
    std::size_t arena_bytes = 0;
  };
  // Reclaims what dead processes left behind first, as any process of the fabric would.
  Usage usage() const;

 private:
  struct Impl;
  explicit FabricHost(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vhca
