// SPDX-License-Identifier: Apache-2.0
// Where an address leads, and the address handles that datagrams are sent with. The virtual fabric is one
// subnet: every port reaches every other of the same link layer.
#pragma once

#include "harness/vhca/objects.h"

namespace vhca {

inline constexpr std::size_t kGrhBytes = 40;

struct Resolved {
  std::uint32_t port =
      kNoPort;           // index in the fabric; kNoPort: nobody has that LID, what is sent there is lost
  std::uint8_t gid = 0;  // index of the address's destination GID there
};

// 0 or an errno: EINVAL for an address that cannot be one, EHOSTUNREACH for a GID that no port has (Ethernet;
// an InfiniBand subnet lets anybody send to any LID).
int resolve_address(const Fabric& fabric, const Port& from, const ibv_ah_attr& attr, Resolved& out);

ibv_ah* create_ah(ibv_pd* pd, const ibv_ah_attr& attr);
int destroy_ah(ibv_ah* ah);
// The address of whoever sent the datagram that the completion and the GRH speak of. 0 or an errno.
int address_from_completion(ibv_context* context, std::uint8_t port, const ibv_wc& wc, const ibv_grh* grh,
                            ibv_ah_attr& attr);

// The 40 bytes in front of a received datagram.
void fill_grh(const Port& from, const Port& to, const DatagramTarget& target, std::uint64_t payload_bytes,
              ibv_grh& grh);

}  // namespace vhca
