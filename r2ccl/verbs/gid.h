// SPDX-License-Identifier: Apache-2.0
// Which entry of a RoCE port's GID table this process's packets carry. Pure: the table is passed in.
#pragma once

#include <infiniband/verbs.h>

#include <span>

#include "r2ccl/base/config.h"

namespace r2ccl::verbs {

struct GidChoice {
  int index = 0;         ///< in the port's table
  bool as_asked = true;  ///< in the range, and of the version, that the settings say
};

/// The first entry in the settings' address range and of their RoCE version; failing that, as NCCL does, the
/// first one in the range, whatever its version; failing that, the first of that version that is more than
/// link-local, or is configured at all. Index 0 when there is nothing. A GID that NCCL_IB_GID_INDEX names is
/// not the business of this function.
GidChoice choose_gid(std::span<const ibv_gid_entry> table, const Config& config);

}  // namespace r2ccl::verbs
