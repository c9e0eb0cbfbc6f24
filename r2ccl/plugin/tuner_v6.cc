// SPDX-License-Identifier: Apache-2.0
// ncclTuner version 6: chunk sizes.
#include "r2ccl/plugin/tuner_shim.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;

ncclResult_t choose(void* context, ncclFunc_t function, size_t bytes, int /*operations*/, float** costs,
                    int algorithms, int protocols, int /*registered*/, int* /*channels*/) {
  return tuner_choose(context, function, bytes, reinterpret_cast<float*>(costs), algorithms, protocols);
}

}  // namespace
}  // namespace r2ccl::plugin

extern "C" {
R2CCL_EXPORT extern const r2ccl::nccl_abi::ncclTuner_v6_t ncclTunerPlugin_v6;
const r2ccl::nccl_abi::ncclTuner_v6_t ncclTunerPlugin_v6 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::tuner_init_communicator,
    .getCollInfo = r2ccl::plugin::choose,
    .finalize = r2ccl::plugin::tuner_destroy,
    .getChunkSize = nullptr,  // NCCL's own
};
}
