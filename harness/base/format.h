// SPDX-License-Identifier: Apache-2.0
// Numbers, times and columns for people. Rates, sizes and spans with their unit are in
// faultinject/plan/units.h.
#pragma once

#include <cstddef>
#include <ctime>
#include <string>

namespace r2bench {

/// Three significant digits, without an exponent: "0.412", "3.20", "12.3", "543".
std::string short_number(double value);
/// "0.412 ms", "12.3 ms", "2.13 s" (from 10 s on in seconds).
std::string milliseconds(double value);
std::string fixed(double value, int decimals);
/// ISO 8601 in UTC, to the second: "2025-06-01T09:30:00Z".
std::string utc(std::time_t time);
std::string utc_now();

/// How many columns a UTF-8 text takes, one per code point.
size_t width(const std::string& text);
/// Filled with spaces to `columns`.
std::string left(const std::string& text, size_t columns);
std::string right(const std::string& text, size_t columns);
/// Cut to `columns` with "…" at the end when it is longer.
std::string cut(const std::string& text, size_t columns);
/// Broken at spaces into lines of at most `columns`; the lines after the first start with `indent` spaces.
std::string wrap(const std::string& text, size_t columns, size_t indent);

}  // namespace r2bench
