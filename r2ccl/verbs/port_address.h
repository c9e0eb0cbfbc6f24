// SPDX-License-Identifier: Apache-2.0
// Where a port is, as it travels between processes. Plain data.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace r2ccl::verbs {

/// What a peer must know to reach a port.
struct PortAddress {
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  uint8_t mtu = IBV_MTU_1024;
  uint16_t lid = 0;
  ibv_gid gid{};
};

}  // namespace r2ccl::verbs
