// SPDX-License-Identifier: Apache-2.0
// Ends the processes that a command started and could not take with it, because it was killed: they carry its
// mark in their environment, however deep their own family is.
#pragma once

#include <string>

namespace r2bench {

inline constexpr const char* kMarkVariable = "R2BENCH_MEMBER";          ///< of `r2bench exec`
inline constexpr const char* kCommandMarkVariable = "R2BENCH_COMMAND";  ///< of the engine exec

/// SIGKILL to every process of this user with `variable`=`mark` in its environment, until none is left
/// (bounded). Never this process itself. Returns how many were sent one.
size_t kill_marked(const std::string& mark, const char* variable = kMarkVariable);

}  // namespace r2bench
