// SPDX-License-Identifier: Apache-2.0
// Says on stderr when a program asks for the extended form of a queue pair, as it does before it posts with
// ibv_wr_*. Preloaded by a test beside the injector, to know which interface a foreign program uses.
// perftest takes ibv_wr_* only on devices that it knows; with EXTENDED_SPY_DEVICE=PART (a number) the device
// says that it is that part of Mellanox's.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" __attribute__((visibility("default"))) ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  Dl_info caller{};
  dladdr(__builtin_return_address(0), &caller);
  const char* const file = caller.dli_fname != nullptr ? caller.dli_fname : "?";
  if (strstr(file, "libfaultinject") == nullptr) fprintf(stderr, "spy: ibv_qp_to_qp_ex called by %s\n", file);
  const auto real = reinterpret_cast<decltype(&ibv_qp_to_qp_ex)>(dlsym(RTLD_NEXT, "ibv_qp_to_qp_ex"));
  return real != nullptr ? real(qp) : nullptr;
}

extern "C" __attribute__((visibility("default"))) int ibv_query_device(ibv_context* device,
                                                                       ibv_device_attr* attributes) {
  const auto real =
      reinterpret_cast<decltype(&ibv_query_device)>(dlvsym(RTLD_NEXT, "ibv_query_device", "IBVERBS_1.1"));
  const int rc = real != nullptr ? real(device, attributes) : -1;
  const char* const part = getenv("EXTENDED_SPY_DEVICE");
  if (rc == 0 && part != nullptr) {
    attributes->vendor_id = 0x02c9;
    attributes->vendor_part_id = uint32_t(atoi(part));
  }
  return rc;
}
