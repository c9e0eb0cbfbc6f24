// SPDX-License-Identifier: Apache-2.0
// What NCCL's interface limits, as far as both ends of a channel rely on it.
#pragma once

namespace r2ccl {

/// Requests in flight per channel (NCCL_NET_MAX_REQUESTS, maxRecvs 1).
inline constexpr int kMaxRequests = 32;

}  // namespace r2ccl
