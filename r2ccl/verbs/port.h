// SPDX-License-Identifier: Apache-2.0
// What a port says of itself, and what that means: whether it can carry queue pairs, how fast it is, how its
// packets find another port. Pure, but for rate_in_sysfs().
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "r2ccl/base/config.h"
#include "r2ccl/verbs/port_address.h"

namespace r2ccl::verbs {

/// Reliable connections can be made over it as this project makes them. Not so over iWARP, whose queue pairs
/// are connected by rdma_cm, nor over ports without a link layer of RDMA (EFA, usNIC), which NCCL's own
/// transport passes over, too.
bool carries_reliable_connections(int transport_type, int link_layer);

/// Speed × width in Mbit/s. The kernel's old interface knows no speed beyond NDR and says NDR then; so where
/// the attributes say that, `rate` counts: how sysfs words it ("800 Gb/sec (4X XDR)"), empty if unknown.
int port_mbps(const ibv_port_attr& attributes, std::string_view rate);
/// Do the attributes leave it open?
bool wants_rate(const ibv_port_attr& attributes);
/// The port's rate in the words of sysfs, which is mounted at `sysfs`; empty where there is none.
std::string rate_in_sysfs(const std::string& device, int port, const std::string& sysfs = "/sys");

/// A number for a NIC that no other of this node has: its GUID, unless that is 0 (an SR-IOV function that
/// nobody has given one) or among those that are `taken`; then one that follows from its name, the same in
/// all processes of the node. NCCL takes NICs with equal GUIDs and ports for one.
uint64_t distinct_guid(uint64_t guid, std::string_view name, std::span<const uint64_t> taken);

/// Where this end of a queue pair is, beside its address.
struct LocalPort {
  uint8_t port = 1;
  uint8_t gid_index = 0;
  bool needs_global_route = false;  ///< IBV_QPF_GRH_REQUIRED: the port has no LID of its own
};
/// How packets find the other port. Over InfiniBand by its LID; with a global route header as well where
/// that is in another subnet, by the LID that its GID has for routers if it has one (FLID), or where the port
/// wants the header always.
ibv_ah_attr address_vector(const LocalPort& port, const PortAddress& local, const PortAddress& remote,
                           const Config& config);
/// The router's LID for that GID; 0: none.
uint16_t routable_lid(const ibv_gid& gid);

}  // namespace r2ccl::verbs
