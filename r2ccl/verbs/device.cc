#include "r2ccl/verbs/device.h"

#include <endian.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "r2ccl/base/log.h"

namespace r2ccl::verbs {
namespace {

// IBTA volume 1, PortInfo: active_speed and active_width are bit codes.
int lane_mbps(int speed) {
  // clang-format off
  switch (speed) {
    case 1: return 2500;
    case 2: return 5000;
    case 4: case 8: return 10000;
    case 16: return 14000;
    case 32: return 25000;
    case 64: return 50000;
    case 128: return 100000;
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

bool is_ipv4_mapped(const ibv_gid& gid) {
  static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, prefix, sizeof prefix) == 0;
}

// RoCE v2 over IPv4 first, then any RoCE v2, then whatever index 0 is.
int choose_gid(ibv_context* context, uint8_t port, const ibv_port_attr& attributes) {
  int best = 0, best_score = -1;
  for (int i = 0; i < attributes.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, port, uint32_t(i), &entry, 0) != 0) continue;
    int score = 0;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) score = is_ipv4_mapped(entry.gid) ? 2 : 1;
    if (score > best_score) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

/// NCCL_IB_HCA: "mlx5_0,mlx5_1" prefixes, "=name" exact, "^" excludes; ":port" is matched when given.
bool selected(const std::string& filter, std::string_view name, int port) {
  if (filter.empty()) return true;
  std::string_view rest = filter;
  const bool exclude = rest.front() == '^';
  if (exclude) rest.remove_prefix(1);
  bool exact = false;
  if (!rest.empty() && rest.front() == '=') {
    exact = true;
    rest.remove_prefix(1);
  }
  bool match = false;
  while (!rest.empty() && !match) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const size_t colon = item.find(':');
    if (colon != std::string_view::npos) {
      if (item.substr(colon + 1) != std::to_string(port)) continue;
      item = item.substr(0, colon);
    }
    match = exact ? name == item : name.substr(0, item.size()) == item;
  }
  return match != exclude;
}

}  // namespace

bool Device::refresh_port(const Config& config) {
  ibv_port_attr attributes{};
  if (ibv_query_port(context_.get(), port_, &attributes) != 0) return false;
  if (attributes.state != IBV_PORT_ACTIVE) return false;
  gid_index_ = config.gid_index >= 0 ? config.gid_index : choose_gid(context_.get(), port_, attributes);
  address_.link_layer = attributes.link_layer;
  address_.mtu = uint8_t(attributes.active_mtu);
  address_.lid = attributes.lid;
  if (ibv_query_gid(context_.get(), port_, gid_index_, &address_.gid) != 0) address_.gid = ibv_gid{};
  speed_mbps_ = lane_mbps(attributes.active_speed) * lanes(attributes.active_width);
  return true;
}

Result<std::vector<Device>> Device::open_all(const Config& config) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (!list) return Error{ErrorCode::kNoDevice, std::string("ibv_get_device_list: ") + std::strerror(errno)};
  const std::unique_ptr<ibv_device*, Deleter<&ibv_free_device_list>> guard(list);
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    Device device;
    device.name_ = ibv_get_device_name(list[i]);
    device.guid_ = be64toh(ibv_get_device_guid(list[i]));
    if (!selected(config.hca_filter, device.name_, 1)) continue;
    device.context_.reset(ibv_open_device(list[i]));
    if (!device.context_ || ibv_query_device(device.context_.get(), &device.limits_) != 0) {
      R2_WARN("NET/R2CCL: NIC %s cannot be opened: %s; it is left out", device.name_.c_str(),
              std::strerror(errno));
      continue;
    }
    bool active = false;
    for (uint8_t port = 1; port <= device.limits_.phys_port_cnt && !active; ++port) {
      device.port_ = port;
      active = device.refresh_port(config);
    }
    if (!active) {
      R2_WARN("NET/R2CCL: NIC %s has no active port; it is left out", device.name_.c_str());
      continue;
    }
    device.pd_.reset(ibv_alloc_pd(device.context_.get()));
    if (!device.pd_) {
      R2_WARN("NET/R2CCL: NIC %s: ibv_alloc_pd: %s; it is left out", device.name_.c_str(),
              std::strerror(errno));
      continue;
    }
    devices.push_back(std::move(device));
  }
  if (devices.empty())
    return Error{ErrorCode::kNoDevice,
                 "none of " + std::to_string(count) + " RDMA devices has an active port" +
                     (config.hca_filter.empty() ? "" : " and passes NCCL_IB_HCA=" + config.hca_filter)};
  return devices;
}

}  // namespace r2ccl::verbs
