// SPDX-License-Identifier: Apache-2.0
#include "faultinject/testing/agent/verbs.h"

#ifdef AGENT_BINDS_AT_RUN_TIME
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

namespace agent {

void* verbs(const char* name) {
  static void* handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  void* found = handle != nullptr ? dlvsym(handle, name, "IBVERBS_1.1") : nullptr;
  if (handle != nullptr && found == nullptr) found = dlvsym(handle, name, "IBVERBS_1.0");  // never changed
  if (found == nullptr) {
    fprintf(stderr, "agent: %s: %s\n", name, dlerror());
    exit(3);
  }
  return found;
}

}  // namespace agent

extern "C" int(ibv_query_port)(ibv_context* device, uint8_t port, _compat_ibv_port_attr* attributes) {
  return V(ibv_query_port)(device, port, attributes);
}
#endif
