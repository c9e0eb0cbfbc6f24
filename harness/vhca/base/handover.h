// SPDX-License-Identifier: Apache-2.0
// Memory of the fabric changes hands between processes: one process gives a slot or page back, a second one
// had it meanwhile, the first one has it again. What orders the first process's last read before its next
// write are atomic operations of the second one, which the thread sanitizer of the first cannot see. These
// two tell it. They cost nothing in any other build.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace vhca {

#if defined(__SANITIZE_THREAD__)
inline char handover_token;
// This process is done with what it used of another one's: the hold that says so is being given up.
inline void end_of_use() { __tsan_release(&handover_token); }
// A slot or page now belongs to this process, by a compare-and-swap that found it free.
inline void taken_over() { __tsan_acquire(&handover_token); }
#else
inline void end_of_use() {}
inline void taken_over() {}
#endif

}  // namespace vhca
