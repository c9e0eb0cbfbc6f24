// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/context.h"

#include <cstdint>

#ifdef R2CCL_SIMULATION_JUMPS

namespace r2ccl::simulation {

void Context::begin(void* stack, size_t bytes, void (*entry)()) {
  getcontext(&first_);
  first_.uc_stack.ss_sp = stack;
  first_.uc_stack.ss_size = bytes;
  first_.uc_link = nullptr;
  makecontext(&first_, entry, 0);
  begins_ = true;
}

// The first entry through a context; then jumps.
void Context::switch_to(Context& to) {
  if (_setjmp(registers_) != 0) return;
  if (!to.begins_) _longjmp(to.registers_, 1);
  to.begins_ = false;
  setcontext(&to.first_);
}

}  // namespace r2ccl::simulation

#else

// Registers that a called function keeps go onto the stack that is left, and come from the other. (All run
// with the same modes of floating-point arithmetic.)
extern "C" void r2ccl_simulation_switch(void** left, void* entered);
asm(R"(
  .text
  .p2align 4
  .type r2ccl_simulation_switch, @function
r2ccl_simulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
  .size r2ccl_simulation_switch, .-r2ccl_simulation_switch
)");

namespace r2ccl::simulation {

// As if a function had been about to call `entry`: six registers, where it begins, and no address to return
// to, so that the stack is aligned as at the begin of any function.
void Context::begin(void* stack, size_t bytes, void (*entry)()) {
  const uintptr_t top = (uintptr_t(stack) + bytes) & ~uintptr_t{15};
  auto* const words = reinterpret_cast<uintptr_t*>(top) - 8;
  for (int i = 0; i < 8; ++i) words[i] = 0;
  words[6] = reinterpret_cast<uintptr_t>(entry);
  stack_pointer_ = words;
}

void Context::switch_to(Context& to) { r2ccl_simulation_switch(&stack_pointer_, to.stack_pointer_); }

}  // namespace r2ccl::simulation

#endif
