// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/verbs/device.h"

#include <dlfcn.h>
#include <endian.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "r2ccl/base/hca_filter.h"
#include "r2ccl/base/log.h"
#include "r2ccl/verbs/gid.h"
#include "r2ccl/verbs/port.h"

namespace r2ccl::verbs {
namespace {

std::vector<ibv_gid_entry> gid_table(ibv_context* context, uint8_t port, int length) {
  std::vector<ibv_gid_entry> table;
  for (int i = 0; i < length; ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, port, uint32_t(i), &entry, 0) == 0) table.push_back(entry);
  }
  return table;
}

}  // namespace

bool Device::refresh_port(const Config& config) {
  ibv_port_attr attributes{};
  if (ibv_query_port(context_.get(), port_, &attributes) != 0) return false;
  if (attributes.state != IBV_PORT_ACTIVE) return false;
  if (!carries_reliable_connections(context_->device->transport_type, attributes.link_layer)) return false;
  gid_table_length_ = attributes.gid_tbl_len;
  pkey_table_length_ = attributes.pkey_tbl_len;
  needs_global_route_ = (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  GidChoice gid;  // InfiniBand addresses by LID, and its first GID is the port's
  if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET) {
    if (config.gid_index >= 0)
      gid.index = config.gid_index;
    else
      gid = choose_gid(gid_table(context_.get(), port_, attributes.gid_tbl_len), config);
  } else if (ibv_gid routable{}; attributes.gid_tbl_len > 1 &&
                                 ibv_query_gid(context_.get(), port_, 1, &routable) == 0 &&
                                 routable_lid(routable) != 0) {
    gid.index = 1;  // … and the second, where there are several subnets, is the one that routers know
  }
  gid_index_ = gid.index;
  gid_as_asked_ = gid.as_asked;
  address_.link_layer = attributes.link_layer;
  address_.mtu = uint8_t(attributes.active_mtu);
  address_.lid = attributes.lid;
  if (ibv_query_gid(context_.get(), port_, gid_index_, &address_.gid) != 0) address_.gid = ibv_gid{};
  speed_mbps_ = port_mbps(attributes, wants_rate(attributes) ? rate_in_sysfs(name_, port_) : std::string());
  return true;
}

Result<void> Device::check_indices(const Config& config) {
  const auto refuse = [this](const char* variable, int index, const char* table, int length) {
    return Error{ErrorCode::kInvalidConfig, std::string(variable) + "='" + std::to_string(index) +
                                                "': the table of " + table + " of NIC " + name_ + " has " +
                                                std::to_string(length) + " entries, numbered from 0"};
  };
  if (address_.link_layer == IBV_LINK_LAYER_ETHERNET && config.gid_index >= gid_table_length_)
    return refuse("NCCL_IB_GID_INDEX", config.gid_index, "GIDs", gid_table_length_);
  if (config.pkey_index > 0 && config.pkey_index >= pkey_table_length_)
    return refuse("NCCL_IB_PKEY", config.pkey_index, "partition keys", pkey_table_length_);
  pkey_index_ = uint16_t(config.pkey_index);
  if (!gid_as_asked_)
    R2_WARN(
        "NET/R2CCL: no GID of NIC %s is of RoCE version %d and in NCCL_IB_ADDR_RANGE='%s' (%s); GID %d is "
        "used",
        name_.c_str(), config.roce_version, config.address_range_text.c_str(),
        r2ccl::name(config.address_range.family()), gid_index_);
  return {};
}

// Registers a few bytes. Old kernels ignore the flag, some providers refuse it.
void Device::try_relaxed_ordering(const Config& config) {
  if (config.relaxed_ordering == RelaxedOrdering::kOff) return;
  alignas(4096) std::array<uint8_t, 4096> page;
  const std::unique_ptr<ibv_mr, Deleter<&ibv_dereg_mr>> region(
      ibv_reg_mr_iova2(pd_.get(), page.data(), page.size(), uintptr_t(page.data()),
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
  relaxed_ordering_ = region != nullptr;
  if (!region && config.relaxed_ordering == RelaxedOrdering::kOn)
    R2_WARN(
        "NET/R2CCL: NIC %s cannot register memory with relaxed ordering (%s): NCCL_IB_PCI_RELAXED_ORDERING=1 "
        "has no "
        "effect on it",
        name_.c_str(), std::strerror(errno));
}

DmaBufRegistration* dma_buf_registration() {
  static auto* const found = reinterpret_cast<DmaBufRegistration*>(dlsym(RTLD_DEFAULT, "ibv_reg_dmabuf_mr"));
  return found;
}

// A descriptor that cannot be one: whoever gets as far as looking at it knows the call.
bool Device::takes_dma_bufs() const {
  auto* const register_it = dma_buf_registration();
  if (!register_it) return false;
  const std::unique_ptr<ibv_mr, Deleter<&ibv_dereg_mr>> none(register_it(pd_.get(), 0, 0, 0, -1, 0));
  return none || (errno != EOPNOTSUPP && errno != EPROTONOSUPPORT);
}

Result<std::vector<Device>> Device::open_all(const Config& config) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (!list) return Error{ErrorCode::kNoDevice, std::string("ibv_get_device_list: ") + std::strerror(errno)};
  const std::unique_ptr<ibv_device*, Deleter<&ibv_free_device_list>> guard(list);
  std::vector<Device> devices;
  std::vector<uint64_t> guids;
  for (int i = 0; i < count; ++i) {
    Device device;
    device.name_ = ibv_get_device_name(list[i]);
    device.guid_ = be64toh(ibv_get_device_guid(list[i]));
    const auto passes = [&](int port) { return passes_hca_filter(config.hca_filter, device.name_, port); };
    bool any = false;  // a device that is left out is not even opened
    for (int port = 1; port <= UINT8_MAX && !any; ++port) any = passes(port);
    if (!any) continue;
    device.context_.reset(ibv_open_device(list[i]));
    if (!device.context_ || ibv_query_device(device.context_.get(), &device.limits_) != 0) {
      R2_WARN("NET/R2CCL: NIC %s cannot be opened: %s; it is not used", device.name_.c_str(),
              std::strerror(errno));
      continue;
    }
    device.removal_.reset(ibv_create_comp_channel(device.context_.get()));
    if (!device.removal_)
      R2_WARN(
          "NET/R2CCL: NIC %s: ibv_create_comp_channel: %s; if the device is removed, it is not known when it "
          "has stopped, and channels that receive over it end in an error",
          device.name_.c_str(), std::strerror(errno));
    bool active = false;
    for (int port = 1; port <= device.limits_.phys_port_cnt && !active; ++port) {
      if (!passes(port)) continue;
      device.port_ = uint8_t(port);
      active = device.refresh_port(config);
    }
    if (!active) {
      R2_WARN("NET/R2CCL: NIC %s has no active port of InfiniBand or RoCE; it is not used",
              device.name_.c_str());
      continue;
    }
    if (auto fine = device.check_indices(config); !fine) return fine.error();
    device.pd_.reset(ibv_alloc_pd(device.context_.get()));
    if (!device.pd_) {
      R2_WARN("NET/R2CCL: NIC %s: ibv_alloc_pd: %s; it is not used", device.name_.c_str(),
              std::strerror(errno));
      continue;
    }
    device.guid_ = distinct_guid(device.guid_, device.name_, guids);
    guids.push_back(device.guid_);
    device.try_relaxed_ordering(config);
    devices.push_back(std::move(device));
  }
  if (devices.empty())
    return Error{ErrorCode::kNoDevice,
                 "none of " + std::to_string(count) + " RDMA devices has an active port" +
                     (config.hca_filter.empty() ? "" : " and passes NCCL_IB_HCA=" + config.hca_filter)};
  return devices;
}

}  // namespace r2ccl::verbs
