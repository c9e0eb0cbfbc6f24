// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/abi/device.h"

#include <endian.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "harness/vhca/abi/context_ops.h"
#include "harness/vhca/abi/memory_region.h"
#include "harness/vhca/process/addresses.h"
#include "harness/vhca/process/limits.h"
#include "harness/vhca/queues/completion.h"
#include "harness/vhca/queues/queue_pair.h"
#include "harness/vhca/queues/runtime.h"
#include "harness/vhca/queues/shared_receive.h"

namespace vhca {
namespace {

// Provider libraries read fields of rdma-core's larger verbs_device behind the ibv_device they are shown.
struct Device {
  ibv_device base;
  char room_of_verbs_device[512];
  std::uint32_t port;
  int index;
};

struct DeviceTable {
  std::mutex lock;
  Runtime* runtime = nullptr;
  std::array<Device, kMaxNicsPerNode> devices;
};

DeviceTable& table() {
  static DeviceTable instance;
  return instance;
}

const Device& device_of(const ibv_device* device) { return *reinterpret_cast<const Device*>(device); }
void fill_device(Device& device, const Node& node, std::uint32_t nic) {
  device = {};
  device.base.node_type = IBV_NODE_CA;
  device.base.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(device.base.name, sizeof device.base.name, "vhca%u", nic);
  std::snprintf(device.base.dev_name, sizeof device.base.dev_name, "uverbs%u", nic);
  std::snprintf(device.base.dev_path, sizeof device.base.dev_path, "/sys/class/infiniband_verbs/uverbs%u",
                nic);
  std::snprintf(device.base.ibdev_path, sizeof device.base.ibdev_path, "/sys/class/infiniband/vhca%u", nic);
  device.port = node.first_port + nic * node.ports_per_nic;
  device.index = static_cast<int>(nic);
}

// The rate as InfiniBand names it: the product of width and speed that comes nearest from above.
void name_rate(std::uint64_t bits_per_s, std::uint8_t& width, std::uint8_t& speed) {
  struct Name {
    double gbit;
    std::uint8_t width, speed;
  };
  static constexpr Name kNames[] = {{2.5, 1, 1}, {5, 1, 2},    {10, 1, 4},   {14, 1, 16},   {25, 1, 32},
                                    {50, 1, 64}, {100, 2, 32}, {200, 2, 64}, {400, 2, 128}, {800, 4, 128}};
  const double gbit = bits_per_s == 0 ? 400.0 : static_cast<double>(bits_per_s) / 1e9;
  for (const Name& name : kNames) {
    width = name.width;
    speed = name.speed;
    if (gbit <= name.gbit) return;
  }
}

}  // namespace

ibv_device** get_device_list(int* count) {
  if (count) *count = 0;
  Runtime* runtime = Runtime::get();
  DeviceTable& devices = table();
  const std::uint32_t nics = runtime ? runtime->node().nic_count : 0;
  auto** list = static_cast<ibv_device**>(std::calloc(nics + 1, sizeof(ibv_device*)));
  if (!list) return nullptr;
  const std::lock_guard guard(devices.lock);
  for (std::uint32_t i = 0; i < nics; ++i) {
    if (devices.runtime != runtime) fill_device(devices.devices[i], runtime->node(), i);
    list[i] = &devices.devices[i].base;
  }
  devices.runtime = runtime;
  if (count) *count = static_cast<int>(nics);
  return list;
}

std::uint64_t device_guid(const ibv_device* device) {
  Runtime* runtime = Runtime::get();
  return runtime ? htobe64(runtime->fabric().ports[device_of(device).port].guid) : 0;
}

int device_index(const ibv_device* device) { return device_of(device).index; }

ibv_context* open_device(ibv_device* device) {
  Runtime* runtime = Runtime::get();
  if (!runtime) {
    errno = ENODEV;
    return nullptr;
  }
  if (const int error = runtime->add_user()) {
    errno = error;
    return nullptr;
  }
  auto context = std::make_unique<Context>();
  context->runtime = runtime;
  context->id = runtime->fabric().next_pd.fetch_add(1) + 1;
  context->first_port = device_of(device).port;
  context->port_count = runtime->node().ports_per_nic;
  fill_operations(context->verbs);
  ibv_context& handle = context->verbs.context;
  handle.device = device;
  handle.cmd_fd = -1;
  handle.async_fd = context->async_eventfd = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  handle.num_comp_vectors = 8;
  pthread_mutex_init(&handle.mutex, nullptr);
  if (handle.async_fd < 0) {
    const int error = errno;
    runtime->remove_user();
    errno = error;
    return nullptr;
  }
  return &context.release()->verbs.context;
}

namespace {

// What the program has not destroyed goes with the device, as in a kernel: no peer reaches its queue pairs
// and memory any more. The objects themselves stay, as libibverbs' do: the program may still look at them.
void end_leftovers(Context& context) {
  const Runtime::Objects left = context.runtime->objects_of(context);
  const auto end = [](auto& object, auto end_object) {
    end_object(object);
    release_slot(object);
  };
  for (Qp* qp : left.qps) end(*qp, end_qp);
  for (Srq* srq : left.srqs) end(*srq, end_srq);
  for (Cq* cq : left.cqs) end(*cq, end_cq);
  end_regions_of(context);
}

}  // namespace

int close_device(ibv_context* handle) {
  const std::unique_ptr<Context> context(&Context::of(handle));
  if (!context->runtime->is_forked_copy()) end_leftovers(*context);
  ::close(handle->async_fd);
  pthread_mutex_destroy(&handle->mutex);
  if (!context->runtime->is_forked_copy()) context->runtime->remove_user();
  return 0;
}

int query_device(ibv_context* handle, ibv_device_attr* attr) {
  const Port& port = port_of(handle, 1);
  *attr = {};
  std::snprintf(attr->fw_ver, sizeof attr->fw_ver, "1.%u.0", kLayoutVersion);
  attr->node_guid = attr->sys_image_guid = htobe64(port.guid);
  attr->max_mr_size = ~0ull;
  attr->page_size_cap = ~0ull << 12;
  attr->vendor_id = 0x02c2cc;
  attr->vendor_part_id = 1;
  attr->hw_ver = kLayoutVersion;
  attr->max_qp = kMaxQueuePairs / 2;
  attr->max_qp_wr = kMaxQpWr;
  attr->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
                           IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_CURR_QP_STATE_MOD;
  attr->max_sge = attr->max_sge_rd = kMaxSge;
  attr->max_cq = kMaxCompletionQueues / 2;
  attr->max_cqe = kMaxCqe;
  attr->max_mr = kMaxMemoryRegions / 2;
  attr->max_pd = 1 << 20;
  attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = kMaxReadsOutstanding;
  attr->max_res_rd_atom = attr->max_qp * static_cast<int>(kMaxReadsOutstanding);
  attr->atomic_cap = IBV_ATOMIC_HCA;
  attr->max_srq = kMaxSharedReceiveQueues / 2;
  attr->max_srq_wr = kMaxSrqWr;
  attr->max_srq_sge = kMaxSge;
  attr->max_ah = 1 << 16;
  attr->max_pkeys = static_cast<std::uint16_t>(partition_keys(port).size());
  attr->local_ca_ack_delay = 0;
  attr->phys_port_cnt = static_cast<std::uint8_t>(Context::of(handle).port_count);
  return 0;
}

int query_port(ibv_context* handle, std::uint8_t number, ibv_port_attr* out, std::size_t size) {
  if (!has_port(handle, number)) return EINVAL;
  const Port& port = port_of(handle, number);
  ibv_port_attr attr{};
  attr.state = IBV_PORT_ACTIVE;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = static_cast<ibv_mtu>(std::countr_zero(port.mtu) - 7);  // IBV_MTU_256 is 1
  attr.gid_tbl_len = gid_count(port);
  attr.max_msg_sz = static_cast<std::uint32_t>(kMaxMessageBytes);
  attr.pkey_tbl_len = static_cast<std::uint16_t>(partition_keys(port).size());
  attr.max_vl_num = 1;
  attr.phys_state = 5;  // LinkUp
  if (port.lid != 0) {
    attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_SYS_IMAGE_GUID_SUP;
    attr.lid = static_cast<std::uint16_t>(port.lid);
    attr.sm_lid = 1;
    attr.subnet_timeout = 18;
  } else {
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    attr.flags = IBV_QPF_GRH_REQUIRED;
  }
  name_rate(port.rate_bits_per_s, attr.active_width, attr.active_speed);
  std::memset(out, 0, size);
  std::memcpy(out, &attr, std::min(size, sizeof attr));
  return 0;
}

int query_gid_entry(ibv_context* handle, std::uint32_t number, std::uint32_t index, ibv_gid_entry* out,
                    std::size_t size) {
  if (!has_port(handle, number)) return EINVAL;
  const Port& port = port_of(handle, number);
  if (index >= static_cast<std::uint32_t>(gid_count(port))) return EINVAL;
  ibv_gid_entry entry{};
  entry.gid = port_gid(port, static_cast<int>(index));
  entry.gid_index = index;
  entry.port_num = number;
  entry.gid_type = port.lid != 0 ? IBV_GID_TYPE_IB : index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  std::memset(out, 0, size);
  std::memcpy(out, &entry, std::min(size, sizeof entry));
  return 0;
}

}  // namespace vhca
