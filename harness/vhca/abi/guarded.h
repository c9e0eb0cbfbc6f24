// SPDX-License-Identifier: Apache-2.0
// What calls through libibverbs' C interface are wrapped in: nothing throws across it.
#pragma once

#include <cerrno>
#include <exception>

namespace vhca {

/// Runs f; out of memory (the only exception there is) becomes ENOMEM and a null pointer.
template <typename F>
auto guarded(F&& f) noexcept -> decltype(f()) {
  try {
    return f();
  } catch (const std::exception&) {
    errno = ENOMEM;
    return nullptr;
  }
}

}  // namespace vhca
