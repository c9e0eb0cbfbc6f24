// SPDX-License-Identifier: Apache-2.0
// What the ports of the fabric are called, where an address leads, and the header that tells a datagram's
// receiver both. The virtual fabric is one subnet: every port reaches every other of the same link layer.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/process/objects.h"

namespace vhca {

// GID 0: fe80:: with the port's GUID. GID 1, Ethernet only: RoCE v2, ::ffff:10.<nic + 16 * (port - 1)>.<node
// / 256>.<node % 256 + 1>.
union ibv_gid port_gid(const Port& port, int index);
int gid_count(const Port& port);
bool same_gid(const ibv_gid& a, const ibv_gid& b);
// The port's table, in host order: the default partition, and on InfiniBand a second one.
std::span<const std::uint16_t> partition_keys(const Port& port);

struct Resolved {
  std::uint32_t port =
      kNoPort;           // index in the fabric; kNoPort: nobody has that LID, what is sent there is lost
  std::uint8_t gid = 0;  // index of the address's destination GID there
};

// 0 or an errno: EINVAL for an address that cannot be one, EHOSTUNREACH for a GID that no port has (Ethernet;
// an InfiniBand subnet lets anybody send to any LID).
int resolve_address(const Fabric& fabric, const Port& from, const ibv_ah_attr& attr, Resolved& out);

inline constexpr std::size_t kGrhBytes = 40;

// The 40 bytes in front of a received datagram.
void fill_grh(const Port& from, const Port& to, const DatagramTarget& target, std::uint64_t payload_bytes,
              ibv_grh& grh);

}  // namespace vhca
