// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/nccl/nccl_library.h"

#include <dlfcn.h>

namespace r2bench::nccl {
namespace {

template <typename F>
bool bind(void* library, F& function, const char* symbol) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  return function != nullptr;
}

}  // namespace

int operation_number(Reduction reduction) {
  switch (reduction) {
    case Reduction::kProd:
      return 1;
    case Reduction::kMax:
      return 2;
    case Reduction::kMin:
      return 3;
    case Reduction::kAvg:
      return 4;
    case Reduction::kSum:
    case Reduction::kPremulSum:
      break;
  }
  return 0;
}

Library::Library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    throw NcclError("NCCL cannot be loaded: " + std::string(why ? why : path.c_str()) +
                    "; write the path of libnccl.so.2 as 'workload.library'");
  }
  const auto need = [&](auto& function, const char* symbol) {
    if (!bind(library, function, symbol))
      throw NcclError(path + " is no NCCL of 2.19 or later: it has no " + symbol);
  };
  need(GetVersion, "ncclGetVersion");
  need(GetUniqueId, "ncclGetUniqueId");
  need(CommInitRank, "ncclCommInitRank");
  need(CommDestroy, "ncclCommDestroy");
  need(CommAbort, "ncclCommAbort");
  need(CommGetAsyncError, "ncclCommGetAsyncError");
  need(GetErrorString, "ncclGetErrorString");
  need(GroupStart, "ncclGroupStart");
  need(GroupEnd, "ncclGroupEnd");
  need(AllReduce, "ncclAllReduce");
  need(AllGather, "ncclAllGather");
  need(ReduceScatter, "ncclReduceScatter");
  need(Broadcast, "ncclBroadcast");
  need(Send, "ncclSend");
  need(Recv, "ncclRecv");
  need(RedOpCreatePreMulSum, "ncclRedOpCreatePreMulSum");
  bind(library, CommInitRankConfig, "ncclCommInitRankConfig");
  bind(library, GetLastError, "ncclGetLastError");
  bind(library, CommShrink, "ncclCommShrink");
  bind(library, CommRevoke, "ncclCommRevoke");
  bind(library, CommFinalize, "ncclCommFinalize");
  bind(library, CommRegister, "ncclCommRegister");
  bind(library, CommDeregister, "ncclCommDeregister");
}

std::string Library::version() const {
  int code = 0;
  check(GetVersion(&code), "ncclGetVersion");
  return std::to_string(code / 10000) + "." + std::to_string(code % 10000 / 100) + "." +
         std::to_string(code % 100);
}

void Library::check_can(RenewBy by) const {
  if (by != RenewBy::kAbort) check_has(CommShrink, "ncclCommShrink", "'renew'", "2.27");
  if (by == RenewBy::kRevoke) check_has(CommRevoke, "ncclCommRevoke", "'renew'", "2.28.7");
}

std::string Library::describe(int result, Comm comm) const {
  std::string text = std::string(GetErrorString(result)) + " (" + std::to_string(result) + ")";
  const char* last = GetLastError ? GetLastError(comm) : nullptr;
  if (last && *last) text += "; NCCL's last words: " + std::string(last);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

void Library::check(int result, const char* call, Comm comm) const {
  if (result != kSuccess) throw NcclError(std::string(call) + " failed: " + describe(result, comm));
}

void Library::check_async(Comm comm) const {
  int state = kSuccess;
  check(CommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm);
  if (state != kSuccess && state != kInProgress)
    throw NcclError("NCCL reports an asynchronous error: " + describe(state, comm));
}

}  // namespace r2bench::nccl
