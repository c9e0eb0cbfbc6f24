// SPDX-License-Identifier: Apache-2.0
// Numbers on a command line.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace r2bench {

/// All of `text` as a number; nothing if it is none, or is too large.
template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace r2bench
