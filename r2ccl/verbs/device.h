// SPDX-License-Identifier: Apache-2.0
// A NIC that is open: its context, protection domain and the port that this process uses. Everything that is
// read from the port (state, GID, MTU) can be read again, because a port may come back changed.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>
#include <vector>

#include "r2ccl/base/config.h"
#include "r2ccl/base/result.h"
#include "r2ccl/verbs/port_address.h"

namespace r2ccl::verbs {

/// Calls the deleter function of a libibverbs object.
template <auto Destroy>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    if (object) Destroy(object);
  }
};

/// ibv_reg_dmabuf_mr, looked for at run time: rdma-core has it since version 34, and the plugin loads
/// without. nullptr in an older one.
using DmaBufRegistration = ibv_mr*(ibv_pd*, uint64_t, size_t, uint64_t, int, int);
DmaBufRegistration* dma_buf_registration();

class Device {
 public:
  Device(Device&&) = default;
  /// It would close this device's context before what was made with it.
  Device& operator=(Device&&) = delete;

  /// Opens every usable NIC, in the order of ibv_get_device_list, after NCCL_IB_HCA. A device without an
  /// active port of InfiniBand or RoCE is skipped with a log line. Error kNoDevice when none is left,
  /// kInvalidConfig when NCCL_IB_GID_INDEX or NCCL_IB_PKEY names what a port does not have.
  static Result<std::vector<Device>> open_all(const Config& config);

  const std::string& name() const { return name_; }
  /// Of no other NIC of this node (distinct_guid()).
  uint64_t guid() const { return guid_; }
  uint8_t port() const { return port_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  int gid_index() const { return gid_index_; }
  /// Packets need a global route header even within the subnet.
  bool needs_global_route() const { return needs_global_route_; }
  uint16_t pkey_index() const { return pkey_index_; }
  /// NCCL_IB_PCI_RELAXED_ORDERING asks for it, and the provider takes it.
  bool relaxed_ordering() const { return relaxed_ordering_; }
  const ibv_device_attr& limits() const { return limits_; }
  /// Active speed × width in Mbit/s.
  int speed_mbps() const { return speed_mbps_; }
  /// The provider and the kernel know ibv_reg_dmabuf_mr. A driver call, bounded by nothing.
  bool takes_dma_bufs() const;
  /// Polls as POLLERR, and as nothing else, when the kernel has taken the context away from a device that was
  /// removed, or reset for good, and has destroyed its queue pairs. −1: there is none, and the asynchronous
  /// descriptor is the only one that may tell.
  int removal_fd() const { return removal_ ? removal_->fd : -1; }
  const PortAddress& address() const { return address_; }

  /// Reads the port again. Returns true when it is active.
  bool refresh_port(const Config& config);

 private:
  Device() = default;
  /// Error kInvalidConfig when a setting names an entry that the port's tables do not have.
  Result<void> check_indices(const Config& config);
  void try_relaxed_ordering(const Config& config);

  std::unique_ptr<ibv_context, Deleter<&ibv_close_device>> context_;
  // Linux destroys what belongs to a context in the opposite order of its making (rdma_core.c), and closes
  // this kind of descriptor as it goes. From 5.7 on it no longer does so with the asynchronous one.
  std::unique_ptr<ibv_comp_channel, Deleter<&ibv_destroy_comp_channel>> removal_;
  std::unique_ptr<ibv_pd, Deleter<&ibv_dealloc_pd>> pd_;
  std::string name_;
  uint64_t guid_ = 0;
  uint8_t port_ = 1;
  int gid_index_ = 0;
  bool gid_as_asked_ = true;
  bool needs_global_route_ = false;
  uint16_t pkey_index_ = 0;
  bool relaxed_ordering_ = false;
  int gid_table_length_ = 0;
  int pkey_table_length_ = 0;
  int speed_mbps_ = 0;
  ibv_device_attr limits_{};
  PortAddress address_;
};

}  // namespace r2ccl::verbs
