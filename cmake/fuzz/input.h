// SPDX-License-Identifier: Apache-2.0
// What every fuzz target needs: an input that is taken apart piece by piece, and a check that ends the
// program. A target is one function, LLVMFuzzerTestOneInput; libFuzzer or cmake/fuzz/main.cc calls it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace fuzz {

/// Bytes that are taken from the front. When there are none left every number is 0.
class Input {
 public:
  Input(const uint8_t* data, size_t bytes) : rest_(data, bytes) {}

  bool empty() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }
  uint8_t byte() {
    const std::span<const uint8_t> one = bytes(1);
    return one.empty() ? 0 : one[0];
  }
  /// `width` bytes, little-endian.
  uint64_t number(size_t width) {
    uint64_t value = 0;
    const std::span<const uint8_t> from = bytes(width);
    for (size_t i = 0; i < from.size(); ++i) value |= uint64_t{from[i]} << 8 * i;
    return value;
  }
  /// The next `wanted` bytes, or all that are left.
  std::span<const uint8_t> bytes(size_t wanted) {
    const auto piece = rest_.first(std::min(wanted, rest_.size()));
    rest_ = rest_.subspan(piece.size());
    return piece;
  }

 private:
  std::span<const uint8_t> rest_;
};

[[noreturn]] inline void failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
  std::abort();
}

}  // namespace fuzz

/// Holds in every build, or the program ends; whoever runs the target then keeps the input.
#define FUZZ_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::fuzz::failed(#condition, __FILE__, __LINE__))

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
