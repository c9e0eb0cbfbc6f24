// SPDX-License-Identifier: Apache-2.0
// Test support: ports that lose their link, at the moment that the parent says, as the driver of their own
// node shows it: an event, ports that are not active, and queue pairs that break. Include it in one source
// file of the program: it defines the function that reads events.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "r2ccl/path/process_context.h"
#include "r2ccl/tests/testing/faulting_net.h"

namespace r2ccl::testing_support {

class FailingPorts {
 public:
  /// In the parent, before any child is started.
  static void prepare() {
    if (down_) return;
    void* memory = mmap(nullptr, sizeof(std::atomic<unsigned>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    down_ = new (memory) std::atomic<unsigned>(0);
  }
  /// In a child of the node that is struck, before there is traffic.
  static void watch(ProcessContext& context) {
    for (const verbs::Device& device : context.devices) {
      verbs_context* verbs = verbs_get_ctx(device.context());
      query_ = verbs->query_port;
      __atomic_store_n(&verbs->query_port, &query, __ATOMIC_RELAXED);
    }
    watched_.store(true);
  }
  /// In the parent: these NICs of that node lose their links, all at once. Nothing but empty messages passes
  /// them, so new paths over them do not work either. The queue pairs that it broke.
  static int fail(FaultingNet& faulting_net, int node, unsigned nics) {
    for (int nic = 0; nic < wire::kMaxNics; ++nic)
      if (nics >> nic & 1) faulting_net.make_narrow(node, nic, 1);
    down_->fetch_or(nics);
    int broken = 0;
    for (int nic = 0; nic < wire::kMaxNics; ++nic)
      if (nics >> nic & 1) broken += faulting_net.strike(node, nic);
    return broken;
  }
  /// They work again. (No event tells: the service thread looks at ports that are down.)
  static void mend(FaultingNet& faulting_net, int node, unsigned nics) {
    for (int nic = 0; nic < wire::kMaxNics; ++nic)
      if (nics >> nic & 1) faulting_net.make_narrow(node, nic, 0);
    down_->fetch_and(~nics);
  }

  /// An event that the driver has for this NIC, if there is one.
  static bool event(const ibv_context* context, ibv_async_event* out) {
    if (!watched_.load() || !down_) return false;
    const unsigned bit = bit_of(context);
    if ((down_->load() & bit) == 0) {
      told_ &= ~bit;
      return false;
    }
    if (told_.fetch_or(bit) & bit) return false;
    *out = {};
    out->event_type = IBV_EVENT_PORT_ERR;
    out->element.port_num = 1;
    return true;
  }

 private:
  static unsigned bit_of(const ibv_context* context) {
    const char* name = ibv_get_device_name(context->device);
    return 1u << (name[std::strlen(name) - 1] - '0');
  }
  static int query(ibv_context* context, uint8_t port, ibv_port_attr* attributes, size_t size) {
    const int error = query_(context, port, attributes, size);
    if (down_->load() & bit_of(context)) attributes->state = IBV_PORT_DOWN;
    return error;
  }
  inline static std::atomic<unsigned>* down_ = nullptr;
  inline static std::atomic<unsigned> told_{0};
  inline static std::atomic<bool> watched_{false};
  inline static decltype(verbs_context::query_port) query_ = nullptr;
};

}  // namespace r2ccl::testing_support

extern "C" {
int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  static auto* const real =
      reinterpret_cast<decltype(ibv_get_async_event)*>(dlsym(RTLD_NEXT, "ibv_get_async_event"));
  return r2ccl::testing_support::FailingPorts::event(context, event) ? 0 : real(context, event);
}
void ibv_ack_async_event(ibv_async_event* event) {
  static auto* const real =
      reinterpret_cast<decltype(ibv_ack_async_event)*>(dlsym(RTLD_NEXT, "ibv_ack_async_event"));
  if (event->event_type != IBV_EVENT_PORT_ERR) real(event);  // the virtual HCA itself has none of these
}
}
