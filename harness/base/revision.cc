// SPDX-License-Identifier: Apache-2.0
#include "harness/base/revision.h"

#include "build_revision.h"  // made by every build: cmake/BuildRevision.cmake

namespace r2bench {

const char* build_revision() { return R2CCL_BUILD_REVISION; }

}  // namespace r2bench
