// SPDX-License-Identifier: Apache-2.0
// What one object of a device may be made for. How many of them a fabric has room for is in its layout.
#pragma once

#include <cstdint>

namespace vhca {

inline constexpr std::uint32_t kMaxQpWr = 16384;
inline constexpr std::uint32_t kMaxSge = 32;
inline constexpr std::uint32_t kMaxInline = 1024;
inline constexpr int kMaxCqe = 1 << 20;
inline constexpr std::uint32_t kMaxReadsOutstanding = 16;
inline constexpr std::uint64_t kMaxMessageBytes = 1ull << 30;
inline constexpr std::uint32_t kMaxSrqWr = 16384;
inline constexpr std::uint32_t kPsnMask = 0xffffff;

}  // namespace vhca
