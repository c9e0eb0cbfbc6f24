// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/plugin/collnet_shim.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "r2ccl/base/config.h"
#include "r2ccl/collective/host/advise.h"
#include "r2ccl/collective/host/selection.h"
#include "r2ccl/plugin/calls.h"
#include "r2ccl/plugin/collnet_windows.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;
using collective::DataType;
using collective::Engine;
using collective::Group;
using collective::GroupListener;
using collective::Operation;
using collective::Reduction;

static_assert(collective::kDataTypes == ncclNumTypes && int(DataType::kFloat32) == ncclFloat32 &&
              int(DataType::kFloat8e5m2) == ncclFloat8e5m2);
static_assert(collective::kMaxOperationBytes <= size_t(std::numeric_limits<int>::max()));

/// The process's engine; set by the first init that is not refused, never taken back.
std::atomic<Engine*> g_engine{nullptr};

/// What one communicator's init leaves for its listen and finalize (v11 and later).
struct Communicator {
  uint64_t id = 0;
};

/// NCCL's listenComm.
struct CollListener {
  GroupListener* listener = nullptr;
  uint64_t communicator = 0;
};

/// NCCL's collComm.
struct CollComm {
  CollComm(Engine& engine, Group* joined, int own_rank, int all)
      : group(joined), rank(own_rank), ranks(all), windows(engine, joined, own_rank) {}
  Group* group;
  int rank, ranks;
  Windows windows;
  std::unique_ptr<collective::GroupOffer> offer;  ///< to decide for the communicator's tuners
};

/// A request is an Operation*, or a WindowOperation* with the lowest bit set.
constexpr uintptr_t kWindowed = 1;

template <typename Call>
ncclResult_t with_engine(const char* name, Call&& call) noexcept {
  return guarded(name, [&]() -> ncclResult_t {
    Engine* const engine = g_engine.load(std::memory_order_acquire);
    if (!engine)
      return refuse(ErrorCode::kInvalidArgument, "a CollNet call before a successful init of CollNet");
    return call(*engine);
  });
}

bool known(ncclDataType_t type, ncclRedOp_t operation) {
  return type >= 0 && type < collective::kDataTypes && operation >= ncclSum && operation <= ncclMin;
}

Reduction reduction_of(ncclRedOp_t operation) {
  switch (operation) {
    case ncclProd:
      return Reduction::kProd;
    case ncclMax:
      return Reduction::kMax;
    case ncclMin:
      return Reduction::kMin;
    case ncclSum:
      break;
  }
  return Reduction::kSum;
}

/// Whether this process offers CollNet. A refusal says nothing in modes 0 to 2: nobody asked for it.
bool offered() {
  Result<Config> config = Config::from_environment();
  if (!config || config->mode != Mode::kAllReduce) return false;
  if (config->gpu_direct) {
    R2_WARN(
        "NET/R2CCL: R2CC_GPU_DIRECT is set: GPU memory cannot be reduced on the CPU, so mode 3 acts as mode "
        "2. "
        "Leave it unset for R2CC_MODE=3");
    return false;
  }
  static const bool told = [] {
    const char* enabled = std::getenv("NCCL_COLLNET_ENABLE");
    if (!enabled || std::string_view(enabled) != "1") {
      R2_INFO(
          "NET/R2CCL: R2CC_MODE is 3, and NCCL_COLLNET_ENABLE is not 1: unless the application enables "
          "CollNet "
          "for a communicator (ncclConfig_t.collnetEnable), AllReduce stays with NCCL's rings and trees");
    }
    return true;
  }();
  (void)told;
  return true;
}

std::vector<Piece> pieces_of(const ncclNetSGE_v9_t* parts, int count, size_t* bytes) {
  std::vector<Piece> pieces;
  for (int i = 0; i < count; ++i) {
    pieces.push_back({parts[i].address, parts[i].size});
    *bytes += parts[i].size;
  }
  return pieces;
}

ncclResult_t answer_windowed(Result<WindowOperation*> result, void** request) {
  if (!result) return report(result.error());
  if (result.value())
    *request = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(result.value()) | kWindowed);
  return ncclSuccess;
}

}  // namespace

ncclResult_t collnet_init(ncclDebugLogger_t logger) {
  return guarded("CollNet init", [&]() -> ncclResult_t {
    if (!net()) {
      if (ncclResult_t result = init(logger); result != ncclSuccess) return result;
    }
    if (!offered()) return ncclInvalidUsage;
    Result<Engine*> engine = Engine::acquire(*net());
    if (!engine) return report(engine.error());
    g_engine.store(engine.value(), std::memory_order_release);
    return ncclSuccess;
  });
}

ncclResult_t collnet_init_context(void** context, uint64_t communicator, ncclDebugLogger_t logger) {
  return guarded("CollNet init", [&]() -> ncclResult_t {
    if (!context) return refuse(ErrorCode::kInvalidArgument, "CollNet init without a place for its context");
    *context = nullptr;
    if (ncclResult_t result = collnet_init(logger); result != ncclSuccess) return result;
    *context = std::make_unique<Communicator>(Communicator{communicator}).release();
    return ncclSuccess;
  });
}

ncclResult_t collnet_finalize(void* context) {
  const std::unique_ptr<Communicator> owned(static_cast<Communicator*>(context));
  return ncclSuccess;
}

ncclResult_t collnet_devices(int* count) {
  *count = 0;
  if (!g_engine.load(std::memory_order_acquire)) return ncclSuccess;
  return devices(count);
}

namespace {

ncclResult_t listen_for(uint64_t communicator, int device, void* handle, void** listen_comm) {
  return with_engine("CollNet listen", [&](Engine& engine) {
    *listen_comm = nullptr;
    if (!nic(device)) return ncclInvalidArgument;
    Result<GroupListener*> listener = engine.listen(device, handle, communicator);
    if (!listener) return report(listener.error());
    *listen_comm = std::make_unique<CollListener>(CollListener{listener.value(), communicator}).release();
    return ncclSuccess;
  });
}

}  // namespace

ncclResult_t collnet_listen(int device, void* handle, void** listen_comm) {
  return listen_for(0, device, handle, listen_comm);
}

ncclResult_t collnet_listen_in_context(void* context, int device, void* handle, void** listen_comm) {
  return listen_for(context ? static_cast<Communicator*>(context)->id : 0, device, handle, listen_comm);
}

ncclResult_t collnet_connect(void* handles[], int ranks, int rank, void* listen_comm, void** group) {
  return with_engine("CollNet connect", [&](Engine& engine) {
    *group = nullptr;
    if (ranks < 1 || rank < 0 || rank >= ranks || !listen_comm)
      return refuse(ErrorCode::kInvalidArgument, "CollNet connect: a rank outside the group, or no listener");
    const std::span<void* const> all(handles, static_cast<size_t>(ranks));
    const CollListener& listener = *static_cast<CollListener*>(listen_comm);
    Result<Group*> joined = engine.connect(listener.listener, all, rank);
    if (!joined) {
      report(joined.error());
      R2_WARN("NET/R2CCL: AllReduce stays with NCCL's rings and trees in this communicator");
      return ncclSuccess;
    }
    if (!joined.value()) return ncclSuccess;
    auto comm = std::make_unique<CollComm>(engine, joined.value(), rank, ranks);
    if (collective::PlanAgreement* const agreement = engine.agreement(joined.value())) {
      const collective::Speeds speeds = engine.speeds(joined.value());
      comm->offer = std::make_unique<collective::GroupOffer>(
          listener.communicator, static_cast<uint64_t>(ranks), *agreement,
          [&engine, group = joined.value()] { return engine.capacity(group); },
          [speeds](const collective::View& view, uint64_t bytes) {
            const auto advice =
                collective::advise(view.capacities, bytes, speeds, view.nics, view.engine_pace);
            return collective::Advice{advice.engine, advice.why};
          });
    }
    *group = comm.release();
    return ncclSuccess;
  });
}

ncclResult_t collnet_reduce_support(ncclDataType_t type, ncclRedOp_t operation, int* supported) {
  *supported = 0;
  return with_engine("CollNet reduceSupport", [&](Engine& engine) {
    *supported =
        known(type, operation) && engine.reduces(static_cast<DataType>(type), reduction_of(operation));
    return ncclSuccess;
  });
}

ncclResult_t collnet_reg_mr(void* group, void* data, size_t bytes, int type, void** registration) {
  return with_engine("CollNet regMr", [&](Engine& engine) {
    *registration = nullptr;
    if (type != NCCL_PTR_HOST)
      return refuse(ErrorCode::kInvalidArgument, "CollNet regMr: memory that the CPU cannot access");
    return answer(engine.reg(static_cast<CollComm*>(group)->group, data, bytes), registration);
  });
}

ncclResult_t collnet_reg_mr_dma_buf(void* /*group*/, void* /*data*/, size_t /*bytes*/, int /*type*/,
                                    uint64_t /*offset*/, int /*fd*/, void** registration) {
  *registration = nullptr;
  return refuse(ErrorCode::kInvalidArgument, "CollNet regMrDmaBuf: memory that the CPU cannot access");
}

ncclResult_t collnet_dereg_mr(void* group, void* registration) {
  return with_engine("CollNet deregMr", [&](Engine& engine) {
    if (!registration) return ncclSuccess;
    return answer(
        engine.dereg(static_cast<CollComm*>(group)->group, static_cast<Registration*>(registration)));
  });
}

ncclResult_t collnet_all_reduce(void* group, void* sent, void* received, size_t count, ncclDataType_t type,
                                ncclRedOp_t operation, void* sent_registration, void* received_registration,
                                void** request) {
  return with_engine("iallreduce", [&](Engine& engine) {
    *request = nullptr;
    if (!known(type, operation))
      return refuse(ErrorCode::kInvalidArgument, "iallreduce: an unsupported data type or operation");
    const auto data_type = static_cast<DataType>(type);
    if (count > collective::kMaxOperationBytes / collective::bytes_of(data_type))
      return refuse(ErrorCode::kInvalidArgument, "iallreduce: longer than maxCollBytes");
    return answer(engine.all_reduce(static_cast<CollComm*>(group)->group, sent, received, count, data_type,
                                    reduction_of(operation), static_cast<Registration*>(sent_registration),
                                    static_cast<Registration*>(received_registration)),
                  request);
  });
}

ncclResult_t collnet_all_gather(void* group, void* sent, int count, const ncclNetSGE_v9_t* received,
                                size_t bytes_per_rank, size_t window_offset, size_t window_bytes,
                                void* sent_registration, void** request) {
  return with_engine("iallgather", [&](Engine& engine) {
    *request = nullptr;
    CollComm& comm = *static_cast<CollComm*>(group);
    const Window window{bytes_per_rank, window_offset, window_bytes, comm.ranks};
    size_t bytes = 0;
    const std::vector<Piece> pieces = pieces_of(received, count, &bytes);
    if (!window.valid(bytes) || bytes > collective::kMaxOperationBytes)
      return refuse(ErrorCode::kInvalidArgument, "iallgather: the parts do not cover the window");
    if (window.whole() && count == 1) {
      return answer(engine.all_gather(comm.group, sent, received[0].address, bytes_per_rank, DataType::kUint8,
                                      static_cast<Registration*>(sent_registration),
                                      static_cast<Registration*>(received[0].mhandle)),
                    request);
    }
    return answer_windowed(comm.windows.gather(sent, pieces, window), request);
  });
}

ncclResult_t collnet_reduce_scatter(void* group, int count, const ncclNetSGE_v9_t* sent, void* received,
                                    size_t bytes_per_rank, size_t window_offset, size_t window_bytes,
                                    ncclDataType_t type, ncclRedOp_t operation, void* received_registration,
                                    void** request) {
  return with_engine("ireducescatter", [&](Engine& engine) {
    *request = nullptr;
    if (!known(type, operation)) {
      return refuse(ErrorCode::kInvalidArgument, "ireducescatter: an unsupported data type or operation");
    }
    CollComm& comm = *static_cast<CollComm*>(group);
    const Window window{bytes_per_rank, window_offset, window_bytes, comm.ranks};
    const auto data_type = static_cast<DataType>(type);
    const size_t element = collective::bytes_of(data_type);
    size_t bytes = 0;
    const std::vector<Piece> pieces = pieces_of(sent, count, &bytes);
    if (!window.valid(bytes) || bytes > collective::kMaxOperationBytes || bytes_per_rank % element != 0 ||
        window_offset % element != 0 || window_bytes % element != 0)
      return refuse(ErrorCode::kInvalidArgument, "ireducescatter: the parts do not cover the window");
    const Reduction reduction = reduction_of(operation);
    if (window.whole() && count == 1) {
      return answer(engine.reduce_scatter(comm.group, sent[0].address, received, bytes_per_rank / element,
                                          data_type, reduction, static_cast<Registration*>(sent[0].mhandle),
                                          static_cast<Registration*>(received_registration)),
                    request);
    }
    return answer_windowed(comm.windows.scatter(pieces, received, window, data_type, reduction), request);
  });
}

ncclResult_t collnet_flush(void* /*group*/, void* /*data*/, int /*bytes*/, void* /*registration*/,
                           void** request) {
  *request = nullptr;
  return ncclSuccess;
}

ncclResult_t collnet_test(void* request, int* done, int* bytes) {
  return with_engine("CollNet test", [&](Engine& engine) {
    *done = 0;
    const auto word = reinterpret_cast<uintptr_t>(request);
    Result<TestOutcome> outcome = word & kWindowed
                                      ? Windows::test(reinterpret_cast<WindowOperation*>(word & ~kWindowed))
                                      : engine.test(static_cast<Operation*>(request));
    if (!outcome) return report(outcome.error());
    if (outcome->done) {
      *done = 1;
      if (bytes) *bytes = static_cast<int>(outcome->bytes);
    }
    return ncclSuccess;
  });
}

ncclResult_t collnet_close_group(void* group) {
  return with_engine("closeColl", [&](Engine& engine) {
    if (!group) return ncclSuccess;
    std::unique_ptr<CollComm> owned(static_cast<CollComm*>(group));
    Group* const joined = owned->group;
    owned.reset();  // its buffers and its offer are given back while the group still exists
    return answer(engine.close(joined));
  });
}

ncclResult_t collnet_close_listen(void* listen_comm) {
  return with_engine("CollNet closeListen", [&](Engine& engine) {
    if (!listen_comm) return ncclSuccess;
    const std::unique_ptr<CollListener> owned(static_cast<CollListener*>(listen_comm));
    return answer(engine.close(owned->listener));
  });
}

}  // namespace r2ccl::plugin
