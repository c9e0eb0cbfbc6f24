// SPDX-License-Identifier: Apache-2.0
// Which interface carries the control connections: the one that NCCL takes for its own, so that what works
// for NCCL works for us. Pure but for interfaces().
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "r2ccl/control/socket.h"

namespace r2ccl::control {

/// One address of an interface.
struct Interface {
  std::string name;
  Endpoint address;
  std::vector<uint8_t> mask;  ///< of the address's subnet, network order
  bool running = true;
};

/// What the user says, in NCCL's words; empty: nothing.
struct InterfaceWish {
  /// NCCL_SOCKET_IFNAME: names separated by commas, taken as prefixes; '^' before them: anything else, '='
  /// before them: whole names (both: '^='). NCCL passes over what is shorter than two letters.
  std::string names;
  std::string family;   ///< NCCL_SOCKET_FAMILY: AF_INET or AF_INET6; anything else: both
  std::string comm_id;  ///< NCCL_COMM_ID: "address:port" or "[address]:port", of a subnet that is taken
};

/// The first of `all` that fits `wish.names`. Without names, the first that there is of: one whose name
/// begins with ib; one in the subnet of NCCL_COMM_ID; any but docker…, lo… and virbr…; docker…; lo…; virbr….
/// Only interfaces that run count, and of loopback no IPv6 address. nullptr: none.
const Interface* choose(std::span<const Interface> all, const InterfaceWish& wish);

/// Those of this machine, in the kernel's order.
Result<std::vector<Interface>> interfaces();

}  // namespace r2ccl::control
