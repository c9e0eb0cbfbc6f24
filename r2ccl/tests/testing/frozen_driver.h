// SPDX-License-Identifier: Apache-2.0
// Test support: a driver that does not answer. While a NIC is frozen, making, modifying and destroying queue
// pairs, and taking a memory region or giving it back, do not return for it; posting and polling go on, as on
// a NIC whose command queue hangs. Include it in one source file of the program: it defines the functions
// themselves.
#pragma once

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

namespace r2ccl::testing_support {

class FrozenDriver {
 public:
  enum Call : unsigned { kModify = 1, kCreate = 2, kDestroy = 4, kRegister = 8, kAll = 15 };

  /// `nic`: the last character of the device's name, as in "vhca0".
  static void freeze(int nic, unsigned calls = kAll) {
    nic_ = nic;
    calls_ = calls;
  }
  static void thaw() { calls_ = 0; }
  /// How many calls are being held.
  static int held() { return held_; }

  static void pass(Call call, const ibv_context* context) {
    const auto stands = [&] {
      const char* name = ibv_get_device_name(context->device);
      return (calls_ & call) != 0 && name[std::strlen(name) - 1] == '0' + nic_;
    };
    if (!stands()) return;
    ++held_;
    while (stands()) usleep(200);
    --held_;
  }
  template <typename F>
  static F* real(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
  }

 private:
  inline static std::atomic<int> nic_{0};
  inline static std::atomic<unsigned> calls_{0};
  inline static std::atomic<int> held_{0};
};

}  // namespace r2ccl::testing_support

extern "C" {
int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  using r2ccl::testing_support::FrozenDriver;
  static auto* const real = FrozenDriver::real<decltype(ibv_modify_qp)>("ibv_modify_qp");
  FrozenDriver::pass(FrozenDriver::kModify, pair->context);
  return real(pair, attributes, mask);
}
ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  using r2ccl::testing_support::FrozenDriver;
  static auto* const real = FrozenDriver::real<decltype(ibv_create_qp)>("ibv_create_qp");
  FrozenDriver::pass(FrozenDriver::kCreate, domain->context);
  return real(domain, attributes);
}
#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, size_t length, int access) {
  using r2ccl::testing_support::FrozenDriver;
  static auto* const real = FrozenDriver::real<decltype(ibv_reg_mr)>("ibv_reg_mr");
  FrozenDriver::pass(FrozenDriver::kRegister, domain->context);
  return real(domain, address, length, access);
}
int ibv_dereg_mr(ibv_mr* region) {
  using r2ccl::testing_support::FrozenDriver;
  static auto* const real = FrozenDriver::real<decltype(ibv_dereg_mr)>("ibv_dereg_mr");
  FrozenDriver::pass(FrozenDriver::kRegister, region->context);
  return real(region);
}
int ibv_destroy_qp(ibv_qp* pair) {
  using r2ccl::testing_support::FrozenDriver;
  static auto* const real = FrozenDriver::real<decltype(ibv_destroy_qp)>("ibv_destroy_qp");
  FrozenDriver::pass(FrozenDriver::kDestroy, pair->context);
  return real(pair);
}
}
