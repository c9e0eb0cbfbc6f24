// SPDX-License-Identifier: Apache-2.0
// The real verbs functions behind our exported ones. Resolved when first needed, from whatever libibverbs the
// program has loaded by then; this library links none and loads none.
#pragma once

#include <infiniband/verbs.h>

// verbs.h hides these exported functions behind inline ones.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace faultinject {

enum class Symbol : unsigned {
  kOpenDevice,
  kCloseDevice,
  kCreateQp,
  kDestroyQp,
  kModifyQp,
  kQueryQp,
  kCreateCq,
  kDestroyCq,
  kQueryPort,
  kGetAsyncEvent,
  kAckAsyncEvent,
  kRegMr,
  kRegMrIova,
  kRegMrIova2,
  kRegDmabufMr,
  kQueryGid,
  kQueryGidEx,
  kQueryGidTable,
  kCreateAh,
  kCreateAhFromWc,
  kDestroyAh,
  kQueryDevice,
  kAllocPd,
  kDeallocPd,
  kDeregMr,
  kCreateSrq,
  kDestroySrq,
  kCreateCompChannel,
  kDestroyCompChannel,
  kGetCqEvent,
  kResizeCq,
  kIntercepted,  // those above have a wrapper of ours; those below are only called
  kGetDeviceList = kIntercepted,
  kFreeDeviceList,
  kGetDeviceName,
  kQpToQpEx,
  kInitAhFromWc,
  kAckCqEvents,
  kCount,
};

void* real_symbol(Symbol symbol);

// nullptr where the loaded libibverbs lacks it. Only the function's type is named: its address would be a
// symbol that must be there when this library is loaded.
template <typename Function>
Function* real(Symbol symbol) {
  return reinterpret_cast<Function*>(real_symbol(symbol));
}
#define FAULTINJECT_REAL(symbol, function) \
  ::faultinject::real<decltype(::function)>(::faultinject::Symbol::symbol)

// The environment, copied when the library was loaded. Without a board nothing is intercepted.
struct Environment {
  char board[256], node[32], rank[24], nics[1024];
  bool destroys_disassociated;  // RDMAV_ALLOW_DISASSOC_DESTROY, which libibverbs reads
};
const Environment& environment();
void read_environment();  // done when the library is loaded; a program that links it in may do it again

}  // namespace faultinject
