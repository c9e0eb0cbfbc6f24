// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/plugin/shim.h"

#include <array>
#include <atomic>
#include <cinttypes>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "r2ccl/base/log.h"
#include "r2ccl/plugin/calls.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;

/// What init() leaves for all later calls. Made once and never destroyed: NCCL's threads may still call while
/// the process exits.
struct Process {
  Net* net = nullptr;
  std::vector<NicProperties> nics;  // NCCL keeps pointers into the strings
};

/// What one communicator's init leaves for its finalize (v11 and later).
struct Communicator {
  uint64_t id = 0;
};

std::atomic<const Process*> g_process{nullptr};
std::atomic<ncclDebugLogger_t> g_logger{nullptr};

void to_nccl(LogLevel level, const char* file, int line, const char* text) {
  const ncclDebugLogger_t logger = g_logger.load(std::memory_order_acquire);
  if (!logger) return;
  const ncclDebugLogLevel nccl_level = level == LogLevel::kWarn   ? NCCL_LOG_WARN
                                       : level == LogLevel::kInfo ? NCCL_LOG_INFO
                                                                  : NCCL_LOG_TRACE;
  logger(nccl_level, NCCL_INIT | NCCL_NET, file, line, "%s", text);
}

ncclResult_t to_nccl(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return ncclSuccess;
    case ErrorCode::kInvalidConfig:
    case ErrorCode::kVersionMismatch:
    case ErrorCode::kModeMismatch:
    case ErrorCode::kAfterFork:
      return ncclInvalidUsage;
    case ErrorCode::kBadHandle:
    case ErrorCode::kInvalidArgument:
      return ncclInvalidArgument;
    case ErrorCode::kAuthentication:
    case ErrorCode::kNicFailed:
    case ErrorCode::kAllPathsDown:
    case ErrorCode::kPeerGone:
      return ncclRemoteError;  // NCCL explains this one as "the network or the other process"
    case ErrorCode::kNoDevice:
    case ErrorCode::kVerbs:
    case ErrorCode::kMemoryLock:
    case ErrorCode::kOutOfResources:
    case ErrorCode::kSystem:
    case ErrorCode::kUnfenceable:
    case ErrorCode::kDeviceGone:
      return ncclSystemError;
  }
  return ncclInternalError;
}

/// True the first time that this text is seen. Remembers the last 64: after a failure every request of every
/// channel brings the same one.
bool first_time(std::string_view text) {
  static std::mutex mutex;
  static std::array<size_t, 64> seen{};
  static size_t next = 0;
  const size_t hash = std::hash<std::string_view>{}(text) | 1;
  std::lock_guard lock(mutex);
  for (size_t known : seen) {
    if (known == hash) return false;
  }
  seen[next++ % seen.size()] = hash;
  return true;
}

/// The same for calls that need the core.
template <typename Call>
ncclResult_t with_net(const char* name, Call&& call) noexcept {
  return guarded(name, [&]() -> ncclResult_t {
    Net* const core = net();
    if (!core) return refuse(ErrorCode::kInvalidArgument, "a call before a successful init");
    return call(*core);
  });
}

}  // namespace

ncclResult_t report(const Error& error) {
  const std::string_view advised = advice(error.code);
  std::string text(r2ccl::name(error.code));
  text.append(": ").append(error.message);
  if (!advised.empty()) text.append(". ").append(advised);
  if (first_time(text)) R2_WARN("NET/R2CCL: %s", text.c_str());
  return to_nccl(error.code);
}

Net* net() {
  const Process* process = g_process.load(std::memory_order_acquire);
  return process ? process->net : nullptr;
}

ncclResult_t init(ncclDebugLogger_t logger) {
  return guarded("init", [&]() -> ncclResult_t {
    if (logger) g_logger.store(logger, std::memory_order_release);
    const LogSink sink = g_logger.load(std::memory_order_acquire) ? static_cast<LogSink>(to_nccl) : nullptr;
    set_log_sink(sink);
    Result<Net*> net = Net::acquire(sink);
    if (!net) return report(net.error());

    static std::mutex mutex;
    std::lock_guard lock(mutex);
    if (g_process.load(std::memory_order_acquire)) return ncclSuccess;
    auto process = std::make_unique<Process>();
    process->net = net.value();
    for (int device = 0; device < process->net->devices(); ++device) {
      process->nics.push_back(process->net->properties(device));
    }
    g_process.store(process.release(), std::memory_order_release);
    return ncclSuccess;
  });
}

ncclResult_t init_context(void** context, uint64_t communicator, ncclNetCommConfig_t* config,
                          ncclDebugLogger_t logger, ncclProfilerCallback_t /*profiler*/) {
  return guarded("init", [&]() -> ncclResult_t {
    if (!context) return refuse(ErrorCode::kInvalidArgument, "init without a place for its context");
    *context = nullptr;
    if (ncclResult_t result = init(logger); result != ncclSuccess) return result;
    if (config && config->trafficClass != NCCL_NET_TRAFFIC_CLASS_UNDEF) {
      R2_INFO(
          "NET/R2CCL: the communicator's traffic class %d is not used: NCCL_IB_TC sets it for the process",
          config->trafficClass);
    }
    R2_INFO("NET/R2CCL: communicator %016" PRIx64 " uses %d NICs", communicator,
            g_process.load(std::memory_order_acquire)->net->devices());
    *context = std::make_unique<Communicator>(Communicator{communicator}).release();
    return ncclSuccess;
  });
}

// The core outlives the communicators: NICs, rails and registrations are the process's.
ncclResult_t finalize(void* context) {
  const std::unique_ptr<Communicator> owned(static_cast<Communicator*>(context));
  return ncclSuccess;
}

ncclResult_t devices(int* count) {
  return with_net("devices", [&](Net& net) {
    *count = net.devices();
    return ncclSuccess;
  });
}

const NicProperties* nic(int device) {
  const NicProperties* found = nullptr;
  with_net("getProperties", [&](Net&) {
    const std::vector<NicProperties>& nics = g_process.load(std::memory_order_acquire)->nics;
    if (device < 0 || static_cast<size_t>(device) >= nics.size()) {
      return refuse(ErrorCode::kInvalidArgument, "no such device");
    }
    found = &nics[static_cast<size_t>(device)];
    return ncclSuccess;
  });
  return found;
}

ncclResult_t listen(int device, void* handle, void** listen_comm) {
  return with_net("listen", [&](Net& net) {
    *listen_comm = nullptr;
    if (!nic(device)) return ncclInvalidArgument;
    return answer(net.listen(device, handle), listen_comm);
  });
}

ncclResult_t listen_in_context(void* /*context*/, int device, void* handle, void** listen_comm) {
  return listen(device, handle, listen_comm);
}

ncclResult_t connect(int device, void* handle, void** send_comm, ncclNetDeviceHandle_t** /*offload*/) {
  return with_net("connect", [&](Net& net) {
    *send_comm = nullptr;
    if (!nic(device)) return ncclInvalidArgument;
    return answer(net.connect(device, handle), send_comm);
  });
}

ncclResult_t connect_with_config(int device, ncclNetCommConfig_t* /*config*/, void* handle, void** send_comm,
                                 ncclNetDeviceHandle_t** offload) {
  return connect(device, handle, send_comm, offload);
}

ncclResult_t connect_in_context(void* /*context*/, int device, void* handle, void** send_comm,
                                ncclNetDeviceHandle_t** offload) {
  return connect(device, handle, send_comm, offload);
}

ncclResult_t accept(void* listen_comm, void** recv_comm, ncclNetDeviceHandle_t** /*offload*/) {
  return with_net("accept", [&](Net& net) {
    *recv_comm = nullptr;
    return answer(net.accept(static_cast<Listener*>(listen_comm)), recv_comm);
  });
}

ncclResult_t reg_mr(void* comm, void* data, size_t bytes, int type, void** registration) {
  return with_net("regMr", [&](Net& net) {
    *registration = nullptr;
    BufferMemory memory;
    if (type == NCCL_PTR_CUDA)
      memory.kind = BufferMemory::Kind::kGpu;
    else if (type != NCCL_PTR_HOST)
      return refuse(ErrorCode::kInvalidArgument, "regMr: neither host memory nor a GPU's");
    return answer(net.reg(static_cast<Channel*>(comm), data, bytes, memory), registration);
  });
}

ncclResult_t reg_mr_dma_buf(void* comm, void* data, size_t bytes, int /*type*/, uint64_t offset, int fd,
                            void** registration) {
  return with_net("regMrDmaBuf", [&](Net& net) {
    *registration = nullptr;
    const BufferMemory memory{BufferMemory::Kind::kDmaBuf, fd, offset};
    return answer(net.reg(static_cast<Channel*>(comm), data, bytes, memory), registration);
  });
}

// As NCCL's own transports do it, giving back what was never made is no error.
ncclResult_t dereg_mr(void* comm, void* registration) {
  return with_net("deregMr", [&](Net& net) {
    if (!registration) return ncclSuccess;
    return answer(net.dereg(static_cast<Channel*>(comm), static_cast<Registration*>(registration)));
  });
}

ncclResult_t isend(void* send_comm, void* data, size_t bytes, void* registration, void** request) {
  return with_net("isend", [&](Net& net) {
    *request = nullptr;
    if (bytes > kLongestMessage) return refuse(ErrorCode::kInvalidArgument, "isend: longer than maxP2pBytes");
    return answer(
        net.isend(static_cast<Channel*>(send_comm), data, bytes, static_cast<Registration*>(registration)),
        request);
  });
}

ncclResult_t irecv(void* recv_comm, int count, void** data, size_t bytes, void** registrations,
                   void** request) {
  return with_net("irecv", [&](Net& net) {
    *request = nullptr;  // NCCL leaves 1 here when it does not need the completion; we always give one
    if (count != 1) return refuse(ErrorCode::kInvalidArgument, "irecv: grouped receives (maxRecvs is 1)");
    if (bytes > kLongestMessage) return refuse(ErrorCode::kInvalidArgument, "irecv: longer than maxP2pBytes");
    return answer(net.irecv(static_cast<Channel*>(recv_comm), data[0], bytes,
                            static_cast<Registration*>(registrations[0])),
                  request);
  });
}

// Nothing is left to flush: a receive is done when each NIC that wrote has been flushed.
ncclResult_t iflush(void* /*recv_comm*/, int /*count*/, void** /*data*/, int* /*bytes*/,
                    void** /*registrations*/, void** request) {
  return with_net("iflush", [&](Net&) {
    *request = nullptr;
    return ncclSuccess;
  });
}

ncclResult_t test(void* request, int* done, int* bytes) {
  return with_net("test", [&](Net& net) {
    *done = 0;
    Result<TestOutcome> outcome = net.test(static_cast<Request*>(request));
    if (!outcome) return report(outcome.error());
    if (outcome->done) {
      *done = 1;
      if (bytes) *bytes = static_cast<int>(outcome->bytes);
    }
    return ncclSuccess;
  });
}

ncclResult_t close_comm(void* comm) {
  return with_net(
      "close", [&](Net& net) { return comm ? answer(net.close(static_cast<Channel*>(comm))) : ncclSuccess; });
}

ncclResult_t close_listen(void* listen_comm) {
  return with_net("closeListen", [&](Net& net) {
    return listen_comm ? answer(net.close(static_cast<Listener*>(listen_comm))) : ncclSuccess;
  });
}

// Hints for networks that set up flows per peer. Our paths are made per channel whatever NCCL is about to do.
ncclResult_t set_net_attr(void* /*context*/, ncclNetAttr_t* /*attributes*/) { return ncclSuccess; }

}  // namespace r2ccl::plugin
