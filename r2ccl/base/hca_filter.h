// SPDX-License-Identifier: Apache-2.0
// NCCL_IB_HCA: which ports of which RDMA devices may be used.
#pragma once

#include <string_view>

namespace r2ccl {

/// Whether `filter` lets this port through, by NCCL's rules: "mlx5_0,mlx5_1" are prefixes of names, '=' in
/// front makes them exact names, '^' in front (of '=', too) excludes what is listed, and an item with ":port"
/// concerns that port only. The rail and the plane that NCCL 2.30 takes behind it (":port:rail:plane") are
/// passed over; an empty port is any. An empty filter lets everything through.
bool passes_hca_filter(std::string_view filter, std::string_view device, int port);

}  // namespace r2ccl
