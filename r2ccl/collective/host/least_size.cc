// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/host/least_size.h"

namespace r2ccl::collective {
namespace {

constexpr uint64_t kLeastAsked = 64 << 10;

}  // namespace

uint64_t least_bytes_worth_it(const Advise& advise, const View& view, std::string& why) {
  uint64_t least = kNever;
  for (uint64_t bytes = kMostBytesAsked; advise && bytes >= kLeastAsked; bytes /= 2) {
    const Advice advice = advise(view, bytes);
    if (!advice.collnet && least != kNever) break;
    why = advice.why;
    if (!advice.collnet) break;
    least = bytes;
  }
  return least;
}

}  // namespace r2ccl::collective
