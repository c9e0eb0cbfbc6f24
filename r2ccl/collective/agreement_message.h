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

std::vector<std::byte> encode(const AgreementMessage& message);
/// kAuthentication: these bytes are no message of a group of `ranks` ranks.
Result<AgreementMessage> decode(std::span<const std::byte> bytes, int ranks);

}  // namespace r2ccl::collective
