// SPDX-License-Identifier: Apache-2.0
// ncclTuner version 2: answers an algorithm.
#include "r2ccl/plugin/tuner_shim.h"

namespace r2ccl::plugin {
namespace {

using namespace nccl_abi;

ncclResult_t choose(void* context, ncclFunc_t function, size_t bytes, int collnet_support,
                    int /*nvls_support*/, int /*operations*/, int* algorithm, int* protocol,
                    int* /*channels*/) {
  return tuner_choose_v2(context, function, bytes, collnet_support, algorithm, protocol);
}

}  // namespace
}  // namespace r2ccl::plugin

extern "C" {
R2CCL_EXPORT extern const r2ccl::nccl_abi::ncclTuner_v2_t ncclTunerPlugin_v2;
const r2ccl::nccl_abi::ncclTuner_v2_t ncclTunerPlugin_v2 = {
    .name = r2ccl::plugin::kName,
    .init = r2ccl::plugin::tuner_init,
    .getCollInfo = r2ccl::plugin::choose,
    .destroy = r2ccl::plugin::tuner_destroy,
};
}
