// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/plugin/tuner_shim.h"

#include <memory>

#include "r2ccl/base/config.h"
#include "r2ccl/plugin/calls.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;
using collective::Choice;
using collective::Selection;

/// One communicator's; `selection` is nullptr below mode 3.
struct Tuner {
  std::unique_ptr<Selection> selection;
};

/// Costs more than anything that NCCL predicts. NCCL up to 2.30 skips an entry of NCCL_ALGO_PROTO_IGNORE; NCCL 2.31 and
/// later take the least number of what they had offered, so that -1 would be chosen before all else.
constexpr float kNeverLeast = 1e30F;

bool over_collnet(int algorithm) {
  return algorithm == NCCL_ALGO_COLLNET_DIRECT || algorithm == NCCL_ALGO_COLLNET_CHAIN ||
         algorithm == NCCL_ALGO_NVLS;
}

std::unique_ptr<Selection> selection_for(uint64_t communicator, size_t ranks, size_t nodes) {
  Result<Config> config = Config::from_environment();
  if (!config || config->mode != Mode::kAllReduce || config->gpu_direct || !net()) return nullptr;
  auto setting = Selection::Setting::from(*config);
  setting.communicator = communicator;
  setting.ranks = ranks;
  setting.nodes = nodes;
  return std::make_unique<Selection>(std::move(setting));
}

}  // namespace

Offered offered_in(const float* costs, int algorithms, int protocols) {
  Offered offered;
  for (int a = 0; a < algorithms; ++a) {
    for (int p = 0; p < protocols; ++p) {
      if (costs[a * protocols + p] < 0) continue;
      (over_collnet(a) ? offered.collnet : offered.others) = true;
    }
  }
  return offered;
}

void apply(Choice choice, float* costs, int algorithms, int protocols) {
  if (choice == Choice::kAsIs) return;
  float* least = nullptr;
  for (int a = 0; a < algorithms; ++a) {
    for (int p = 0; p < protocols; ++p) {
      float& cost = costs[a * protocols + p];
      if (cost < 0 || !over_collnet(a)) continue;
      if (choice == Choice::kWithoutCollNet) cost = kNeverLeast;
      // NVLS is CollNet with the switches' additions; only a CollNet algorithm is certain to be ours.
      if (choice == Choice::kCollNet && a != NCCL_ALGO_NVLS && (!least || cost < *least)) least = &cost;
    }
  }
  if (least) *least = 0;
}

ncclResult_t tuner_init(size_t ranks, size_t nodes, ncclDebugLogger_t logger, void** context) {
  return tuner_init_communicator(context, 0, ranks, nodes, logger, nullptr, nullptr);
}

ncclResult_t tuner_init_communicator(void** context, uint64_t communicator, size_t ranks, size_t nodes,
                                     ncclDebugLogger_t /*logger*/, ncclNvlDomainInfo_v5_t* /*domains*/,
                                     ncclTunerConstants_v5_t* /*constants*/) {
  // Whatever happens, NCCL goes on: without a selection the table stays as it is.
  *context = nullptr;
  guarded("tuner init", [&]() -> ncclResult_t {
    *context = std::make_unique<Tuner>(Tuner{selection_for(communicator, ranks, nodes)}).release();
    return ncclSuccess;
  });
  return ncclSuccess;
}

ncclResult_t tuner_destroy(void* context) {
  const std::unique_ptr<Tuner> owned(static_cast<Tuner*>(context));
  return ncclSuccess;
}

ncclResult_t tuner_choose(void* context, ncclFunc_t function, size_t bytes, float* costs, int algorithms,
                          int protocols) {
  Tuner* const tuner = static_cast<Tuner*>(context);
  if (!tuner || !tuner->selection) return ncclSuccess;
  return guarded("getCollInfo", [&]() -> ncclResult_t {
    const Offered offered = offered_in(costs, algorithms, protocols);
    Result<Choice> choice =
        tuner->selection->choose(function == ncclFuncAllReduce, bytes, offered.collnet, offered.others);
    if (!choice) return report(choice.error());
    apply(choice.value(), costs, algorithms, protocols);
    return ncclSuccess;
  });
}

ncclResult_t tuner_choose_v2(void* context, ncclFunc_t function, size_t bytes, int collnet_support,
                             int* algorithm, int* protocol) {
  Tuner* const tuner = static_cast<Tuner*>(context);
  if (!tuner || !tuner->selection) return ncclSuccess;
  return guarded("getCollInfo", [&]() -> ncclResult_t {
    Result<Choice> choice =
        tuner->selection->choose(function == ncclFuncAllReduce, bytes, collnet_support != 0, true);
    if (!choice) return report(choice.error());
    if (choice.value() == Choice::kAsIs) return ncclSuccess;
    *algorithm = choice.value() == Choice::kCollNet ? NCCL_ALGO_COLLNET_CHAIN : NCCL_ALGO_RING;
    *protocol = NCCL_PROTO_SIMPLE;
    return ncclSuccess;
  });
}

}  // namespace r2ccl::plugin
