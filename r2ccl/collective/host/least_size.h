// SPDX-License-Identifier: Apache-2.0
// From which size on AllReduces go over CollNet. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "r2ccl/collective/agreement.h"

namespace r2ccl::collective {

/// Is CollNet worth it for an AllReduce of `bytes`? A pure function of these and of what the group's ranks
/// have agreed on when they connected, so that all nodes decide alike. `why` is for the log.
struct Advice {
  bool collnet = false;
  std::string why;
};
/// The largest size that is asked about; it stands for all larger ones.
inline constexpr uint64_t kMostBytesAsked = uint64_t{1} << 32;
using Advise = std::function<Advice(const View& view, uint64_t bytes)>;
/// The least power of two from which on all sizes are worth it; kNever: none is. `why`: of the size that
/// decides.
uint64_t least_bytes_worth_it(const Advise& advise, const View& view, std::string& why);

}  // namespace r2ccl::collective
