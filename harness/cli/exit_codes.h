// SPDX-License-Identifier: Apache-2.0
// What r2bench's exit status means. Verdicts are 0, 1 and 2 (harness/judge/verdict.h).
#pragma once

namespace r2bench {

inline constexpr int kExitUsage = 64;     ///< bad command line, bad scenario, a folder that cannot be written
inline constexpr int kExitInternal = 70;  ///< our own mistake, or a launcher that has not started every host
inline constexpr int kExitSignal = 128;   ///< plus the signal's number: Ctrl-C is 130, SIGTERM 143

}  // namespace r2bench
