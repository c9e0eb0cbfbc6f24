// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/verbs/port.h"

#include <algorithm>
#include <charconv>
#include <fstream>

namespace r2ccl::verbs {
namespace {

// IBTA volume 1, PortInfo: active_speed and active_width are bit codes.
constexpr int kNdr = 128;

int lane_mbps(int speed) {
  // clang-format off
  switch (speed) {
    case 1: return 2500;
    case 2: return 5000;
    case 4: case 8: return 10000;
    case 16: return 14000;
    case 32: return 25000;
    case 64: return 50000;
    case kNdr: return 100000;
    case 256: return 200000;
    default: return 10000;
  }
  // clang-format on
}
int lanes(int width) {
  // clang-format off
  switch (width) {
    case 1: return 1;
    case 2: return 4;
    case 4: return 8;
    case 8: return 12;
    case 16: return 2;
    default: return 4;
  }
  // clang-format on
}

// Newer headers of rdma-core have a wider field; 0 in it says that the other one holds.
template <typename Attributes>
int speed_of(const Attributes& attributes) {
  if constexpr (requires { attributes.active_speed_ex; }) {
    if (attributes.active_speed_ex != 0) return int(attributes.active_speed_ex);
  }
  return attributes.active_speed;
}

// 0: it is none.
int mbps_of(std::string_view rate) {
  double number = 0;
  const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), number);
  if (error != std::errc() || !(number > 0 && number < 1e6)) return 0;
  const std::string_view unit = rate.substr(size_t(end - rate.data()));
  return unit.starts_with(" Gb/sec") ? int(number * 1000) : 0;
}

// InfiniBand: a GID is 10 fixed bits, 22 zeros, the FLID, the subnet's 16 bits, and the port's GUID.
uint16_t subnet(const ibv_gid& gid) { return uint16_t(gid.raw[6] << 8 | gid.raw[7]); }

}  // namespace

bool carries_reliable_connections(int transport_type, int link_layer) {
  return transport_type == IBV_TRANSPORT_IB &&
         (link_layer == IBV_LINK_LAYER_INFINIBAND || link_layer == IBV_LINK_LAYER_ETHERNET);
}

bool wants_rate(const ibv_port_attr& attributes) { return speed_of(attributes) == kNdr; }

int port_mbps(const ibv_port_attr& attributes, std::string_view rate) {
  const int said = lane_mbps(speed_of(attributes)) * lanes(attributes.active_width);
  return wants_rate(attributes) ? std::max(said, mbps_of(rate)) : said;
}

std::string rate_in_sysfs(const std::string& device, int port, const std::string& sysfs) {
  std::ifstream in(sysfs + "/class/infiniband/" + device + "/ports/" + std::to_string(port) + "/rate");
  std::string line;
  std::getline(in, line);
  return line;
}

uint64_t distinct_guid(uint64_t guid, std::string_view name, std::span<const uint64_t> taken) {
  const auto is_taken = [&] {
    return guid == 0 || std::find(taken.begin(), taken.end(), guid) != taken.end();
  };
  if (!is_taken()) return guid;
  guid = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) guid = (guid ^ uint8_t(c)) * 0x100000001b3;
  while (is_taken()) ++guid;
  return guid;
}

uint16_t routable_lid(const ibv_gid& gid) { return uint16_t(gid.raw[4] << 8 | gid.raw[5]); }

ibv_ah_attr address_vector(const LocalPort& port, const PortAddress& local, const PortAddress& remote,
                           const Config& config) {
  ibv_ah_attr to{};
  to.sl = uint8_t(config.service_level);
  to.port_num = port.port;
  to.dlid = remote.lid;
  const bool ethernet = local.link_layer == IBV_LINK_LAYER_ETHERNET;
  const bool routed = !ethernet && subnet(local.gid) != subnet(remote.gid);
  if (routed && routable_lid(remote.gid) != 0) to.dlid = routable_lid(remote.gid);
  if (!ethernet && !routed && !port.needs_global_route) return to;
  to.is_global = 1;
  to.grh.dgid = remote.gid;
  to.grh.sgid_index = port.gid_index;
  to.grh.hop_limit = 255;
  to.grh.traffic_class = ethernet ? uint8_t(config.traffic_class) : uint8_t(0);
  return to;
}

}  // namespace r2ccl::verbs
