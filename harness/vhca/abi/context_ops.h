// SPDX-License-Identifier: Apache-2.0
// The function tables behind an ibv_context: what verbs.h calls inline.
#pragma once

#include <infiniband/verbs.h>

namespace vhca {

void fill_operations(verbs_context& verbs);

}  // namespace vhca
