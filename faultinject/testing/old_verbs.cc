// SPDX-License-Identifier: Apache-2.0
// A library that has ibv_open_device in the version IBVERBS_1.0 alone, as libibverbs has it beside 1.1 for
// programs of before 2007: another function, of another structure.
#include <errno.h>

extern "C" __attribute__((visibility("default"))) void* ibv_open_device(void*) {
  errno = ENOTSUP;  // by this it is known
  return nullptr;
}
