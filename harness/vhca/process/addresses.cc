// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/process/addresses.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace vhca {
namespace {

constexpr std::uint8_t kNextHeaderIba = 0x1b;

bool find_gid(const Fabric& fabric, const ibv_gid& gid, Resolved& out) {
  for (std::uint32_t p = 0; p < fabric.port_count; ++p)
    for (int index = 0; index < gid_count(fabric.ports[p]); ++index)
      if (same_gid(port_gid(fabric.ports[p], index), gid)) {
        out = {p, static_cast<std::uint8_t>(index)};
        return true;
      }
  return false;
}

}  // namespace

int gid_count(const Port& port) { return port.lid != 0 ? 1 : 2; }

union ibv_gid port_gid(const Port& port, int index) {
  ibv_gid gid{};
  if (index == 0) {
    const std::uint64_t guid = htobe64(port.guid);
    gid.raw[0] = 0xfe;
    gid.raw[1] = 0x80;
    std::memcpy(gid.raw + 8, &guid, sizeof guid);
  } else {
    gid.raw[10] = gid.raw[11] = 0xff;
    gid.raw[12] = 10;
    gid.raw[13] = static_cast<std::uint8_t>(port.nic + kMaxNicsPerNode * (port.number - 1));
    gid.raw[14] = static_cast<std::uint8_t>(port.node / 256);
    gid.raw[15] = static_cast<std::uint8_t>(port.node % 256 + 1);
  }
  return gid;
}

std::span<const std::uint16_t> partition_keys(const Port& port) {
  static constexpr std::uint16_t kKeys[] = {0xffff, 0x8001};
  return {kKeys, port.lid != 0 ? 2u : 1u};
}

bool same_gid(const ibv_gid& a, const ibv_gid& b) {
  return std::equal(std::begin(a.raw), std::end(a.raw), std::begin(b.raw));
}

int resolve_address(const Fabric& fabric, const Port& from, const ibv_ah_attr& attr, Resolved& out) {
  out = {};
  if (attr.is_global && attr.grh.sgid_index >= gid_count(from)) return EINVAL;
  if (from.lid == 0) {
    if (!attr.is_global) return EINVAL;  // Ethernet: without a GRH there is no address
    return find_gid(fabric, attr.grh.dgid, out) ? 0 : EHOSTUNREACH;
  }
  if (attr.dlid == 0) {
    if (!attr.is_global) return EINVAL;
    find_gid(fabric, attr.grh.dgid, out);
    return 0;
  }
  for (std::uint32_t p = 0; p < fabric.port_count; ++p)
    if (fabric.ports[p].lid == attr.dlid) out.port = p;
  return 0;
}

void fill_grh(const Port& from, const Port& to, const DatagramTarget& target, std::uint64_t payload_bytes,
              ibv_grh& grh) {
  grh = {};
  grh.version_tclass_flow = htobe32(target.grh_word);
  grh.paylen = htobe16(static_cast<std::uint16_t>(payload_bytes));
  grh.next_hdr = kNextHeaderIba;
  grh.hop_limit = target.hop_limit;
  grh.sgid = port_gid(from, target.source_gid);
  grh.dgid = port_gid(to, target.target_gid);
}

}  // namespace vhca
