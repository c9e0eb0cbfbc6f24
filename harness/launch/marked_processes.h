// SPDX-License-Identifier: Apache-2.0
// Ends the processes that a command started and that outlive it: they carry its mark in their environment,
// whatever group or session they are in.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace r2bench {

inline constexpr const char* kMarkVariable = "R2BENCH_MEMBER";          ///< of `r2bench exec`
inline constexpr const char* kCommandMarkVariable = "R2BENCH_COMMAND";  ///< of the engine exec

/// SIGKILL to every process of this user (as root: of all users) with `variable`=`mark` in its environment,
/// until none is left (bounded). Never this process itself. Returns how many were sent one.
size_t kill_marked(const std::string& mark, const char* variable = kMarkVariable);
/// The rounds of kill_marked(): `kill_round` returns how many it found. The end is two rounds in a row that
/// find none: during execve() a process shows no environment. Returns how many were found in all.
size_t kill_rounds(const std::function<size_t()>& kill_round);

/// For a helper that must not end with the command that it was started below: overwrites both variables in
/// this process's own memory, which is what others read. kill_marked() then finds neither this process nor
/// those that it starts with its environment. It may be called between fork() and exec().
void blank_marks();
/// This process's environment without both variables, with a nullptr at the end; valid as long as `environ`
/// is not changed.
std::vector<char*> environment_without_marks();

}  // namespace r2bench
