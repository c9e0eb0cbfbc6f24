// SPDX-License-Identifier: Apache-2.0
// Test support: how much slower a test is under a sanitizer.
#pragma once

namespace r2ccl::testing_support {

// What a sanitizer adds is its own.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSanitizerFactor = 10;
#else
inline constexpr int kSanitizerFactor = 1;
#endif

}  // namespace r2ccl::testing_support
