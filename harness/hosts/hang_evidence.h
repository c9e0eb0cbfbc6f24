// SPDX-License-Identifier: Apache-2.0
// What the kernel tells about a process that does not move: for the one line of the report, and for the file
// that somebody reads who has to find out why.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <ostream>
#include <string>
#include <vector>

namespace r2bench {

/// "NAME STATE:WAITS_IN" of each thread, with a space in front of each; " (gone)" when there is no such
/// process.
std::string threads_in_brief(pid_t pid);

/// One process that is looked at, and what to call it.
struct Suspect {
  std::string label;
  pid_t pid = -1;
};

/// Writes of each thread of each suspect: its state, where in the kernel it waits, its system call, its
/// kernel stack (these two for root only), and what it did between two looks `apart` from each other (ms of
/// CPU, switches by its own will and against it), so that what spins is told from what stands still. Then the
/// threads of everybody else, the kernel's included, that want a CPU or wait uninterruptibly: one of them may
/// hold what a suspect waits for. Takes `apart` and some ms; throws nothing.
void write_threads_in_full(std::ostream& out, const std::vector<Suspect>& suspects,
                           std::chrono::milliseconds apart);

}  // namespace r2bench
