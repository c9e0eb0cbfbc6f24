// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/net_plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <type_traits>

#include "harness/workload/cpu/nccl_ib.h"

namespace r2bench {
namespace {

using namespace r2ccl::nccl_abi;  // NOLINT: the whole file speaks this interface

/// What differs between the versions.
template <int Version>
struct Abi;
template <>
struct Abi<8> {
  using Net = ncclNet_v8_t;
  using Properties = ncclNetProperties_v8_t;
};
template <>
struct Abi<9> {
  using Net = ncclNet_v9_t;
  using Properties = ncclNetProperties_v9_t;
};
template <>
struct Abi<10> {
  using Net = ncclNet_v10_t;
  using Properties = ncclNetProperties_v10_t;
};
template <>
struct Abi<11> {
  using Net = ncclNet_v11_t;
  using Properties = ncclNetProperties_v11_t;
};
template <>
struct Abi<12> {
  using Net = ncclNet_v12_t;
  using Properties = ncclNetProperties_v12_t;
};

/// True when every byte still holds the poison.
template <typename T>
bool untouched(const T& member) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &member, sizeof(T));
  for (unsigned char byte : bytes)
    if (byte != kPoison) return false;
  return true;
}

template <int Version>
class Adapter final : public NetPlugin {
 public:
  using Net = typename Abi<Version>::Net;
  using Properties = typename Abi<Version>::Properties;
  explicit Adapter(const Net* net) : net_(net) {}

  int abi() const override { return Version; }
  std::string name() const override { return net_->name ? net_->name : "(unnamed)"; }

  Status init(ncclDebugLogger_t logger) override {
    if constexpr (Version >= 11) {
      ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return net_->init(&context_, 0x7232626e63680001, &config, logger, nullptr);
    } else if constexpr (Version == 10) {
      return net_->init(logger, nullptr);
    } else {
      return net_->init(logger);
    }
  }

  Status devices(int* count) override { return net_->devices(count); }

  NetDevice properties(int device) override {
    Properties p;
    std::memset(static_cast<void*>(&p), kPoison, sizeof(p));
    const Status status = net_->getProperties(device, &p);
    const std::string where = "getProperties of device " + std::to_string(device) + " ";
    if (status != ncclSuccess) throw PluginError(where + "failed: " + describe(status));
    const auto require = [&](bool set, const char* member) {
      if (!set) throw PluginError(where + "left '" + member + "' unset; NCCL hands in uninitialised memory");
    };
    require(!untouched(p.name) && p.name, "name");
    require(!untouched(p.pciPath), "pciPath");
    require(!untouched(p.guid), "guid");
    require(!untouched(p.ptrSupport), "ptrSupport");
    require(!untouched(p.regIsGlobal), "regIsGlobal");
    require(!untouched(p.speed), "speed");
    require(!untouched(p.port), "port");
    require(!untouched(p.latency), "latency");
    require(!untouched(p.maxComms), "maxComms");
    require(!untouched(p.maxRecvs), "maxRecvs");
    require(!untouched(p.netDeviceType), "netDeviceType");
    require(!untouched(p.netDeviceVersion), "netDeviceVersion");
    if (!(p.ptrSupport & NCCL_PTR_HOST)) throw PluginError(where + "offers no host memory (NCCL_PTR_HOST)");
    NetDevice result{p.name, p.guid, p.port, p.speed, p.maxComms, p.maxRecvs, size_t(INT_MAX)};
    if constexpr (Version >= 9) {
      require(!untouched(p.forceFlush), "forceFlush");
      require(!untouched(p.vProps.ndevs), "vProps.ndevs");
      require(!untouched(p.maxP2pBytes), "maxP2pBytes");
      require(!untouched(p.maxCollBytes), "maxCollBytes");
      if (p.maxP2pBytes == 0 || p.maxP2pBytes > NCCL_MAX_NET_SIZE_BYTES)
        throw PluginError(where + "gave maxP2pBytes " + std::to_string(p.maxP2pBytes) +
                          ", which NCCL refuses");
      result.max_message_bytes = p.maxP2pBytes;
    }
    if constexpr (Version >= 11) require(!untouched(p.maxMultiRequestSize), "maxMultiRequestSize");
    if constexpr (Version >= 12) {
      require(!untouched(p.railId), "railId");
      require(!untouched(p.planeId), "planeId");
    }
    return result;
  }

  Status listen(int device, void* handle, void** listener) override {
    if constexpr (Version >= 11)
      return net_->listen(context_, device, handle, listener);
    else
      return net_->listen(device, handle, listener);
  }

  Status connect(int device, void* handle, void** comm) override {
    ncclNetDeviceHandle_t* offload = nullptr;
    if constexpr (Version >= 11) {
      return net_->connect(context_, device, handle, comm, &offload);
    } else if constexpr (Version == 10) {
      ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
      return net_->connect(device, &config, handle, comm, &offload);
    } else {
      return net_->connect(device, handle, comm, &offload);
    }
  }

  Status accept(void* listener, void** comm) override {
    ncclNetDeviceHandle_t* offload = nullptr;
    return net_->accept(listener, comm, &offload);
  }

  Status reg(void* comm, void* data, size_t bytes, void** registration) override {
    return net_->regMr(comm, data, bytes, NCCL_PTR_HOST, registration);
  }
  Status dereg(void* comm, void* registration) override { return net_->deregMr(comm, registration); }

  Status isend(void* comm, void* data, size_t bytes, int tag, void* registration, void** request) override {
    preset(request);
    if constexpr (Version >= 10)
      return net_->isend(comm, data, bytes, tag, registration, nullptr, request);
    else if constexpr (Version == 9)
      return net_->isend(comm, data, bytes, tag, registration, request);
    else
      return net_->isend(comm, data, int(bytes), tag, registration, request);
  }

  Status irecv(void* comm, void* data, size_t bytes, int tag, void* registration, void** request) override {
    preset(request);
    using Size = std::conditional_t<Version >= 9, size_t, int>;
    Size size = Size(bytes);
    if constexpr (Version >= 10) {
      void* profiler = nullptr;
      return net_->irecv(comm, 1, &data, &size, &tag, &registration, &profiler, request);
    } else {
      return net_->irecv(comm, 1, &data, &size, &tag, &registration, request);
    }
  }

  Status test(void* request, bool* done, size_t* bytes) override {
    int finished = 0;
    int sizes[8] = {0, 0, 0, 0, 0, 0, 0, 0};  // as many as NCCL can group
    const Status status = net_->test(request, &finished, sizes);
    *done = finished != 0;
    *bytes = size_t(sizes[0]);
    return status;
  }

  Status close_send(void* comm) override { return net_->closeSend(comm); }
  Status close_recv(void* comm) override { return net_->closeRecv(comm); }
  Status close_listen(void* listener) override { return net_->closeListen(listener); }

  Status finalize() override {
    if constexpr (Version >= 11) {
      if (!net_->finalize) throw PluginError("the plugin's finalize is NULL; NCCL calls it");
      return net_->finalize(context_);
    } else {
      return ncclSuccess;
    }
  }

 private:
  static void preset(void** request) { *request = Version >= 9 ? kPresetRequest : nullptr; }

  const Net* net_;
  void* context_ = nullptr;
};

template <int Version>
std::unique_ptr<NetPlugin> adapt(const void* table) {
  return std::make_unique<Adapter<Version>>(static_cast<const typename Abi<Version>::Net*>(table));
}

std::unique_ptr<NetPlugin> adapt(void* library, int version) {
  const void* const table = dlsym(library, ("ncclNetPlugin_v" + std::to_string(version)).c_str());
  return table ? net_plugin_of(table, version) : nullptr;
}

void* open_library(const std::string& name, std::string& said) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    said += (said.empty() ? "" : "; ") + std::string(why ? why : name + ": cannot be loaded");
  }
  return library;
}

/// Throws PluginError.
void* find_library(const std::string& name) {
  std::string said;
  void* library = open_library(name, said);
  if (!library && name.find('/') == std::string::npos)
    library = open_library("libnccl-net-" + name + ".so", said);
  if (!library) throw PluginError("the net plugin '" + name + "' cannot be loaded: " + said);
  return library;
}

}  // namespace

bool is_same_plugin(const std::string& one, const std::string& other) {
  return one == other || find_library(one) == find_library(other);
}

std::string copy_of_plugin(const std::string& name) {
  void* const library = find_library(name);
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
    throw PluginError("the net plugin '" + name + "' cannot be copied: " + dlerror());
  const int from = open(map->l_name, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  // Not closed: the loader reads it, and knows the copy by this name.
  const int to = from < 0 ? -1 : memfd_create("net-plugin", MFD_CLOEXEC);
  bool copied = to >= 0 && fstat(from, &status) == 0;
  for (off_t done = 0; copied && done < status.st_size;)
    copied = sendfile(to, from, &done, size_t(status.st_size - done)) > 0;
  const int error = errno;
  if (from >= 0) close(from);
  // The library stays loaded: the loader would else take the copy for it, which has the same SONAME.
  if (copied) return "/proc/self/fd/" + std::to_string(to);
  if (to >= 0) close(to);
  throw PluginError("the net plugin '" + name + "' cannot be copied: " + std::strerror(error));
}

std::unique_ptr<NetPlugin> net_plugin_of(const void* table, int abi) {
  // clang-format off
  switch (abi) {
    case 8: return adapt<8>(table);
    case 9: return adapt<9>(table);
    case 10: return adapt<10>(table);
    case 11: return adapt<11>(table);
    case 12: return adapt<12>(table);
    default: return nullptr;
  }
  // clang-format on
}

std::unique_ptr<NetPlugin> load_net_plugin(const std::string& name, int abi) {
  void* const library = find_library(name);
  if (abi != 0) {
    if (abi < 8 || abi > 12)
      throw PluginError("net plugin versions 8 to 12 are known, not " + std::to_string(abi));
    if (auto plugin = adapt(library, abi)) return plugin;
    throw PluginError("the net plugin '" + name + "' does not export ncclNetPlugin_v" + std::to_string(abi));
  }
  for (int version = 12; version >= 8; --version)
    if (auto plugin = adapt(library, version)) return plugin;
  if (auto transport = nccl_ib_of(library)) return transport;
  throw PluginError("the net plugin '" + name + "' exports none of ncclNetPlugin_v8 … ncclNetPlugin_v12");
}

std::string describe(ncclResult_t status) {
  const char* text = "unknown";
  // clang-format off
  switch (status) {
    case ncclSuccess: text = "ncclSuccess"; break;
    case ncclUnhandledCudaError: text = "ncclUnhandledCudaError"; break;
    case ncclSystemError: text = "ncclSystemError"; break;
    case ncclInternalError: text = "ncclInternalError"; break;
    case ncclInvalidArgument: text = "ncclInvalidArgument"; break;
    case ncclInvalidUsage: text = "ncclInvalidUsage"; break;
    case ncclRemoteError: text = "ncclRemoteError"; break;
    case ncclInProgress: text = "ncclInProgress"; break;
  }
  // clang-format on
  return std::string(text) + " (" + std::to_string(int(status)) + ")";
}

}  // namespace r2bench
