// SPDX-License-Identifier: Apache-2.0
// The agreement's messages as bytes. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "r2ccl/base/result.h"
#include "r2ccl/collective/agreement.h"

namespace r2ccl::collective {

/// Groups larger than this cannot agree: a message must fit a control frame.
inline constexpr int kMostAgreeing = 2000;

/// How many of a node's `nics` NICs a proposal to `ranks` ranks has room for: all, or none of a group too large.
size_t nics_told(int ranks, size_t nics);

std::vector<std::byte> encode(const AgreementMessage& message);
/// kAuthentication: these bytes are no message of a group of `ranks` ranks that tell of `nics` NICs each.
Result<AgreementMessage> decode(std::span<const std::byte> bytes, int ranks, size_t nics = 0);

}  // namespace r2ccl::collective
