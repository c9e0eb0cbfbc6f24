// SPDX-License-Identifier: Apache-2.0
// Where a fiber goes on: a stack, and the registers that a called function keeps. Switching from one to
// another makes no system call (swapcontext makes two).
#pragma once

#include <cstddef>

#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define R2CCL_SIMULATION_JUMPS  // elsewhere, and where a sanitizer must know of it: by makecontext() and
                                // longjmp()
#include <setjmp.h>
#include <ucontext.h>
#endif

namespace r2ccl::simulation {

class Context {
 public:
  Context() = default;  ///< of what runs already
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  /// The first switch to it calls `entry` on this stack. `entry` never returns.
  void begin(void* stack, size_t bytes, void (*entry)());
  /// Leaves here what runs, and goes on at `to`. Returns when somebody switches back.
  void switch_to(Context& to);

 private:
#ifdef R2CCL_SIMULATION_JUMPS
  jmp_buf registers_;
  ucontext_t first_;
  bool begins_ = false;
#else
  void* stack_pointer_ = nullptr;  ///< the registers lie there
#endif
};

}  // namespace r2ccl::simulation
