// SPDX-License-Identifier: Apache-2.0
#include "harness/base/utf8.h"

#include <cstdint>

namespace r2bench {
namespace {

/// Bytes of a character that begins with `lead`; 0: none begins so.
size_t length_of(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // the middle of one, or longer than needed
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

/// The second byte tells what is longer than needed, a surrogate, or above U+10FFFF.
bool second_fits(uint8_t lead, uint8_t second) {
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

}  // namespace

size_t valid_utf8(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = length_of(byte(at));
    if (length == 0 || at + length > text.size()) return at;
    for (size_t i = 1; i < length; ++i)
      if (i == 1 ? !second_fits(byte(at), byte(at + 1)) : (byte(at + i) & 0xC0) != 0x80) return at;
    at += length;
  }
  return at;
}

}  // namespace r2bench
