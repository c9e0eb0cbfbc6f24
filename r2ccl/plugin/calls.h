// SPDX-License-Identifier: Apache-2.0
// What every translated call is wrapped in: no exception leaves it, and results of the core become NCCL's.
#pragma once

#include <exception>

#include "r2ccl/base/log.h"
#include "r2ccl/plugin/shim.h"

namespace r2ccl::plugin {

/// Runs `call`; whatever it throws becomes a result, because C code stands above us.
template <typename Call>
ncclResult_t guarded(const char* name, Call&& call) noexcept {
  try {
    return call();
  } catch (const std::exception& e) {
    R2_WARN("NET/R2CCL: %s: unexpected exception: %s", name, e.what());
  } catch (...) {
    R2_WARN("NET/R2CCL: %s: unexpected exception", name);
  }
  return nccl_abi::ncclInternalError;
}

inline ncclResult_t refuse(ErrorCode code, const char* what) { return report(Error{code, what}); }

template <typename T>
ncclResult_t answer(Result<T*> result, void** out) {
  if (!result) return report(result.error());
  *out = result.value();
  return nccl_abi::ncclSuccess;
}

inline ncclResult_t answer(const Result<void>& result) {
  return result ? nccl_abi::ncclSuccess : report(result.error());
}

}  // namespace r2ccl::plugin
