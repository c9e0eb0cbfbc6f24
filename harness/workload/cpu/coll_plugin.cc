// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/coll_plugin.h"

#include <dlfcn.h>

#include <climits>
#include <cstring>
#include <type_traits>

namespace r2bench {
namespace {

using namespace r2ccl::nccl_abi;  // NOLINT: the whole file speaks this interface

template <int Version>
struct CollAbi;
template <>
struct CollAbi<8> {
  using Coll = ncclCollNet_v8_t;
  using Properties = ncclNetProperties_v8_t;
};
template <>
struct CollAbi<9> {
  using Coll = ncclCollNet_v9_t;
  using Properties = ncclNetProperties_v9_t;
};
template <>
struct CollAbi<10> {
  using Coll = ncclCollNet_v10_t;
  using Properties = ncclNetProperties_v10_t;
};
template <>
struct CollAbi<11> {
  using Coll = ncclCollNet_v11_t;
  using Properties = ncclNetProperties_v11_t;
};
template <>
struct CollAbi<12> {
  using Coll = ncclCollNet_v12_t;
  using Properties = ncclNetProperties_v12_t;
};

template <int Version>
class CollAdapter final : public CollPlugin {
 public:
  using Coll = typename CollAbi<Version>::Coll;
  explicit CollAdapter(const Coll* coll) : coll_(coll) {}

  int abi() const override { return Version; }
  Status init(uint64_t communicator, ncclDebugLogger_t logger) override {
    if constexpr (Version >= 11) {
      return coll_->init(&context_, communicator, logger);
    } else {
      (void)communicator;
      return coll_->init(logger);
    }
  }
  Status devices(int* count) override { return coll_->devices(count); }
  std::string properties(int device, size_t* longest) override {
    typename CollAbi<Version>::Properties p;
    std::memset(static_cast<void*>(&p), kPoison, sizeof(p));
    const std::string where = "getProperties of CollNet device " + std::to_string(device) + " ";
    if (const Status status = coll_->getProperties(device, &p); status != ncclSuccess)
      throw PluginError(where + "failed: " + describe(status));
    if (!(p.ptrSupport & NCCL_PTR_HOST)) throw PluginError(where + "offers no host memory (NCCL_PTR_HOST)");
    *longest = INT_MAX;
    if constexpr (Version >= 9) {
      if (p.maxCollBytes == 0 || p.maxCollBytes > NCCL_MAX_NET_SIZE_BYTES)
        throw PluginError(where + "gave maxCollBytes " + std::to_string(p.maxCollBytes) +
                          ", which NCCL refuses");
      *longest = p.maxCollBytes;
    }
    return p.name;
  }
  Status listen(int device, void* handle, void** listener) override {
    if constexpr (Version >= 11)
      return coll_->listen(context_, device, handle, listener);
    else
      return coll_->listen(device, handle, listener);
  }
  Status connect(void* handles[], int ranks, int rank, void* listener, void** group) override {
    return coll_->connect(handles, ranks, rank, listener, group);
  }
  Status reduce_support(int type, int operation, int* supported) override {
    return coll_->reduceSupport(ncclDataType_t(type), ncclRedOp_t(operation), supported);
  }
  Status reg(void* group, void* data, size_t bytes, void** registration) override {
    return coll_->regMr(group, data, bytes, NCCL_PTR_HOST, registration);
  }
  Status dereg(void* group, void* registration) override { return coll_->deregMr(group, registration); }
  Status all_reduce(void* group, void* sent, void* received, size_t count, int type, int operation,
                    void* sent_registration, void* received_registration, void** request) override {
    using Count = std::conditional_t<Version >= 9, size_t, int>;
    *request = nullptr;
    return coll_->iallreduce(group, sent, received, Count(count), ncclDataType_t(type),
                             ncclRedOp_t(operation), sent_registration, received_registration, request);
  }
  Status test(void* request, bool* done, size_t* bytes) override {
    int finished = 0, size = 0;
    const Status status = coll_->test(request, &finished, &size);
    *done = finished != 0;
    *bytes = size_t(size);
    return status;
  }
  Status close_group(void* group) override { return coll_->closeColl(group); }
  Status close_listen(void* listener) override { return coll_->closeListen(listener); }
  Status finalize() override {
    if constexpr (Version >= 11) {
      if (!coll_->finalize) throw PluginError("CollNet's finalize is NULL; NCCL calls it");
      return coll_->finalize(context_);
    } else {
      return ncclSuccess;
    }
  }

 private:
  const Coll* coll_;
  void* context_ = nullptr;
};

template <int Version>
struct TunerAbi;
template <>
struct TunerAbi<2> {
  using Tuner = ncclTuner_v2_t;
};
template <>
struct TunerAbi<3> {
  using Tuner = ncclTuner_v3_t;
};
template <>
struct TunerAbi<4> {
  using Tuner = ncclTuner_v4_t;
};
template <>
struct TunerAbi<5> {
  using Tuner = ncclTuner_v5_t;
};
template <>
struct TunerAbi<6> {
  using Tuner = ncclTuner_v6_t;
};

template <int Version>
class TunerAdapter final : public TunerPlugin {
 public:
  using Tuner = typename TunerAbi<Version>::Tuner;
  explicit TunerAdapter(const Tuner* tuner) : tuner_(tuner) {}

  int abi() const override { return Version; }
  Status init(uint64_t communicator, size_t ranks, size_t nodes, ncclDebugLogger_t logger) override {
    if constexpr (Version >= 5) {
      ncclNvlDomainInfo_v5_t domains{int(nodes), 1, 1};
      // NCCL's constants: more than any version has of them, all of them 0.
      alignas(double) static unsigned char constants[8192];
      return tuner_->init(&context_, communicator, ranks, nodes, logger, &domains,
                          reinterpret_cast<ncclTunerConstants_v5_t*>(constants));
    } else {
      (void)communicator;
      return tuner_->init(ranks, nodes, logger, &context_);
    }
  }
  Status choose(size_t bytes, const CostTable& costs, Algorithm* algorithm) override {
    float table[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];
    for (auto& row : table)
      for (float& cost : row) cost = NCCL_ALGO_PROTO_IGNORE;
    table[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE] = float(costs.ring_us);
    if (costs.coll_us >= 0) table[NCCL_ALGO_COLLNET_CHAIN][NCCL_PROTO_SIMPLE] = float(costs.coll_us);
    int channels = 0;
    Status status;
    if constexpr (Version == 2) {
      int chosen = NCCL_ALGO_UNDEF, protocol = NCCL_PROTO_UNDEF;
      status = tuner_->getCollInfo(context_, ncclFuncAllReduce, bytes, costs.coll_us >= 0, 0, 1, &chosen,
                                   &protocol, &channels);
      if (chosen != NCCL_ALGO_UNDEF) {
        *algorithm = chosen == NCCL_ALGO_RING ? Algorithm::kRing : Algorithm::kCollNet;
        return status;
      }
    } else {
      auto** const as_nccl = reinterpret_cast<float**>(table);
      if constexpr (Version == 3)
        status = tuner_->getCollInfo(context_, ncclFuncAllReduce, bytes, 1, as_nccl, NCCL_NUM_ALGORITHMS,
                                     NCCL_NUM_PROTOCOLS, &channels);
      else
        status = tuner_->getCollInfo(context_, ncclFuncAllReduce, bytes, 1, as_nccl, NCCL_NUM_ALGORITHMS,
                                     NCCL_NUM_PROTOCOLS, 0, &channels);
    }
    const float ring = table[NCCL_ALGO_RING][NCCL_PROTO_SIMPLE],
                coll = table[NCCL_ALGO_COLLNET_CHAIN][NCCL_PROTO_SIMPLE];
    if (status == ncclSuccess && ring < 0 && coll < 0)
      throw PluginError("the tuner leaves no algorithm for an AllReduce of " + std::to_string(bytes) +
                        " bytes; NCCL ends the operation with an error");
    // As NCCL 2.31 and later compare: what was offered, whatever its sign.
    if constexpr (Version >= 6)
      *algorithm = costs.coll_us >= 0 && coll < ring ? Algorithm::kCollNet : Algorithm::kRing;
    else
      *algorithm = coll >= 0 && (ring < 0 || coll < ring) ? Algorithm::kCollNet : Algorithm::kRing;
    return status;
  }
  Status finalize() override {
    if constexpr (Version >= 5)
      return tuner_->finalize(context_);
    else
      return tuner_->destroy(context_);
  }

 private:
  const Tuner* tuner_;
  void* context_ = nullptr;
};

/// The library that load_net_plugin() has loaded.
void* loaded(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library && name.find('/') == std::string::npos)
    library = dlopen(("libnccl-net-" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

template <int Version>
std::unique_ptr<CollPlugin> adapt_coll(void* library) {
  const void* coll = dlsym(library, ("ncclCollNetPlugin_v" + std::to_string(Version)).c_str());
  if (!coll) return nullptr;
  return std::make_unique<CollAdapter<Version>>(static_cast<const typename CollAbi<Version>::Coll*>(coll));
}

template <int Version>
std::unique_ptr<TunerPlugin> adapt_tuner(void* library) {
  const void* tuner = dlsym(library, ("ncclTunerPlugin_v" + std::to_string(Version)).c_str());
  if (!tuner) return nullptr;
  return std::make_unique<TunerAdapter<Version>>(
      static_cast<const typename TunerAbi<Version>::Tuner*>(tuner));
}

}  // namespace

std::unique_ptr<CollPlugin> load_coll_plugin(const std::string& name, int abi) {
  void* const library = loaded(name);
  if (!library) return nullptr;
  std::unique_ptr<CollPlugin> (*const versions[])(void*) = {adapt_coll<12>, adapt_coll<11>, adapt_coll<10>,
                                                            adapt_coll<9>, adapt_coll<8>};
  for (int version = 12; version >= 8; --version) {
    if (abi != 0 && version != abi) continue;
    if (auto plugin = versions[12 - version](library)) return plugin;
  }
  return nullptr;
}

std::unique_ptr<TunerPlugin> load_tuner_plugin(const std::string& name, int net_abi) {
  void* const library = loaded(name);
  if (!library) return nullptr;
  std::unique_ptr<TunerPlugin> (*const versions[])(void*) = {adapt_tuner<6>, adapt_tuner<5>, adapt_tuner<4>,
                                                             adapt_tuner<3>, adapt_tuner<2>};
  // NCCL 2.30 asks for net 12 and tuner 6, 2.28 for 11 and 5, 2.24 for 9 and 4, 2.23 for 8 and 3.
  const int newest = net_abi >= 12 ? 6 : net_abi == 11 ? 5 : net_abi >= 9 ? 4 : 3;
  for (int version = newest; version >= 2; --version)
    if (auto plugin = versions[6 - version](library)) return plugin;
  return nullptr;
}

Algorithm cheapest(const CostTable& costs) {
  return costs.coll_us >= 0 && costs.coll_us < costs.ring_us ? Algorithm::kCollNet : Algorithm::kRing;
}

}  // namespace r2bench
