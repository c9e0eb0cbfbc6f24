// SPDX-License-Identifier: Apache-2.0
// The PTX text of gpu_pattern.cu, for cuModuleLoadData.
#pragma once

namespace r2bench {

extern const char* const kKernelText;

}  // namespace r2bench
