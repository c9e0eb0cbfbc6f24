// SPDX-License-Identifier: Apache-2.0
// NCCL's own IB transport, without a GPU: libnccl does not export its table of calls, but where its symbol
// table was not stripped, as in PyPI's wheels, the table can be found. Nothing else of NCCL is called.
#pragma once

#include <memory>
#include <string>

#include "harness/workload/cpu/net_plugin.h"

namespace r2bench {

/// The IB transport of a libnccl, 2.23 to 2.32, that is loaded as `library` and stays so until the process
/// ends; nullptr: it is no libnccl. Throws PluginError.
std::unique_ptr<NetPlugin> nccl_ib_of(void* library);

}  // namespace r2bench
