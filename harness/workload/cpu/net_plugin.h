// SPDX-License-Identifier: Apache-2.0
// Any NCCL net plugin, version 8 to 12, behind one small interface: the calls that NCCL's proxy makes, in the
// form of the newest version. Calls it exactly as NCCL does; adds no retries and hides no error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "r2ccl/plugin/nccl_net_abi.h"

namespace r2bench {

/// Structures are filled with this byte before a plugin writes them: what still holds it was left out.
inline constexpr unsigned char kPoison = 0xa5;

/// What a request is before a plugin says what it is: NULL for version 8. Not
/// NCCL_NET_OPTIONAL_RECV_COMPLETION, with which NCCL says that it does without the completion of a receive,
/// and NCCL's IB transport then has none.
inline void* const kPresetRequest = reinterpret_cast<void*>(~uintptr_t{0} / 0xff * kPoison);

/// Of a device, as far as a host-memory workload looks at it.
struct NetDevice {
  std::string name;
  uint64_t guid = 0;
  int port = 0;
  int speed_mbps = 0;
  int max_comms = 0;
  int max_receives = 0;
  size_t max_message_bytes = 0;
};

/// A plugin that cannot be loaded or breaks the interface's contract at start-up. One sentence.
class PluginError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class NetPlugin {
 public:
  using Status = r2ccl::nccl_abi::ncclResult_t;
  virtual ~NetPlugin() = default;

  virtual int abi() const = 0;
  virtual std::string name() const = 0;
  virtual Status init(r2ccl::nccl_abi::ncclDebugLogger_t logger) = 0;
  virtual Status devices(int* count) = 0;
  /// The struct is handed in poisoned. Throws PluginError when a member that NCCL relies on was not set.
  virtual NetDevice properties(int device) = 0;
  virtual Status listen(int device, void* handle, void** listener) = 0;
  virtual Status connect(int device, void* handle, void** comm) = 0;
  virtual Status accept(void* listener, void** comm) = 0;
  virtual Status reg(void* comm, void* data, size_t bytes, void** registration) = 0;
  virtual Status dereg(void* comm, void* registration) = 0;
  /// `*request` is pre-set: kPresetRequest from version 9 on, NULL before.
  virtual Status isend(void* comm, void* data, size_t bytes, int tag, void* registration, void** request) = 0;
  virtual Status irecv(void* comm, void* data, size_t bytes, int tag, void* registration, void** request) = 0;
  virtual Status test(void* request, bool* done, size_t* bytes) = 0;
  virtual Status close_send(void* comm) = 0;
  virtual Status close_recv(void* comm) = 0;
  virtual Status close_listen(void* listener) = 0;
  virtual Status finalize() = 0;
};

/// Loads `name` by NCCL_NET_PLUGIN's rules: a path or file name that the loader finds, else
/// libnccl-net-<name>.so. `abi` 8 … 12 wants that version, 0 the highest that is exported. Of libnccl itself
/// it is the IB transport (nccl_ib.h). The library stays loaded until the process ends. Throws PluginError.
std::unique_ptr<NetPlugin> load_net_plugin(const std::string& name, int abi);

/// The plugin whose calls are in `table`, of version `abi`, 8 … 12. `table` must stay.
std::unique_ptr<NetPlugin> net_plugin_of(const void* table, int abi);

/// Both names are of one library, also through links. Throws PluginError.
bool is_same_plugin(const std::string& one, const std::string& other);

/// A name under which the library of plugin `name` can be loaded once more, with variables of its own: a copy in
/// memory, which stays until the process ends. Throws PluginError.
std::string copy_of_plugin(const std::string& name);

/// "ncclRemoteError (6)" etc.
std::string describe(r2ccl::nccl_abi::ncclResult_t status);

}  // namespace r2bench
