// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/units.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <locale>
#include <sstream>

namespace faultinject {
namespace {

struct Unit {
  std::string_view name;
  long double factor;
};

constexpr std::array kRates = {Unit{"bit/s", 1},
                               Unit{"kbit/s", 1e3},
                               Unit{"Mbit/s", 1e6},
                               Unit{"Gbit/s", 1e9},
                               Unit{"Tbit/s", 1e12},
                               Unit{"bps", 1},
                               Unit{"kbps", 1e3},
                               Unit{"Mbps", 1e6},
                               Unit{"Gbps", 1e9},
                               Unit{"Tbps", 1e12},
                               Unit{"B/s", 8},
                               Unit{"kB/s", 8e3},
                               Unit{"MB/s", 8e6},
                               Unit{"GB/s", 8e9},
                               Unit{"KiB/s", 8.0L * 1024},
                               Unit{"MiB/s", 8.0L * (1 << 20)},
                               Unit{"GiB/s", 8.0L * (1 << 30)}};
constexpr std::array kSizes = {Unit{"B", 1},         Unit{"kB", 1e3},      Unit{"MB", 1e6},
                               Unit{"GB", 1e9},      Unit{"TB", 1e12},     Unit{"KiB", 1024},
                               Unit{"MiB", 1 << 20}, Unit{"GiB", 1 << 30}, Unit{"TiB", 1099511627776.0L}};
constexpr std::array kSpans = {Unit{"ns", 1},  Unit{"us", 1e3},   Unit{"µs", 1e3},  Unit{"ms", 1e6},
                               Unit{"s", 1e9}, Unit{"min", 60e9}, Unit{"h", 3600e9}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

template <size_t N>
std::string list_of(const std::array<Unit, N>& units) {
  std::string out;
  for (const Unit& unit : units) out += (out.empty() ? "" : ", ") + std::string(unit.name);
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return out;
}

// The value in the smallest unit. `zero_without_unit`: a bare 0 means the same in every unit.
template <size_t N>
uint64_t parse(std::string_view text, const std::array<Unit, N>& units, const char* what, const char* example,
               bool zero_without_unit) {
  const std::string_view all = trimmed(text);
  const std::string quoted = "'" + std::string(all) + "'";
  if (all.empty()) throw UnitError(std::string("an empty ") + what + "; write it like " + example);

  size_t digits = 0;
  bool dot = false;
  while (digits < all.size() &&
         ((all[digits] >= '0' && all[digits] <= '9') || (all[digits] == '.' && !dot))) {
    if (all[digits] == '.') dot = true;
    digits++;
  }
  if (all.front() == '-') throw UnitError(quoted + " is negative; a " + what + " cannot be");
  if (digits == 0 || all.substr(0, digits) == ".")
    throw UnitError(quoted + " is not a " + what + "; write it like " + example);
  // The classic locale: a program's own locale must not change what a plan means.
  std::istringstream number{std::string(all.substr(0, digits))};
  number.imbue(std::locale::classic());
  long double value = 0;
  number >> value;

  const std::string_view unit_text = trimmed(all.substr(digits));
  if (unit_text.empty()) {
    if (zero_without_unit && value == 0) return 0;
    throw UnitError(quoted + " has no unit; write it like " + example + " (units: " + list_of(units) + ")");
  }
  for (const Unit& unit : units) {
    if (unit.name != unit_text) continue;
    const long double scaled = value * unit.factor;
    if (scaled >= 9.2e18L) throw UnitError(quoted + " is too large for a " + what);
    return uint64_t(std::llroundl(scaled));
  }
  std::string hint;
  for (const Unit& unit : units)
    if (lower(unit.name) == lower(unit_text)) hint = "; did you mean '" + std::string(unit.name) + "'?";
  throw UnitError(quoted + " has an unknown unit '" + std::string(unit_text) + "'" + hint +
                  " (units: " + list_of(units) + ")");
}

std::string format(long double value, const char* unit) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.4Lg %s", value, unit);
  return buffer;
}

}  // namespace

uint64_t parse_rate(std::string_view text) {
  if (trimmed(text) == "unlimited") return 0;
  const uint64_t rate = parse(text, kRates, "rate", "'1 Gbit/s'", false);
  if (rate == 0) throw UnitError("a rate of 0 carries nothing; write 'unlimited' for no limit");
  return rate;
}

uint64_t parse_bytes(std::string_view text) { return parse(text, kSizes, "size", "'16 MiB'", true); }

std::chrono::nanoseconds parse_duration(std::string_view text) {
  const std::chrono::nanoseconds span(parse(text, kSpans, "duration", "'50 ms'", true));
  if (span > kLongestDuration)
    throw UnitError("'" + std::string(trimmed(text)) + "' is too large for a duration; the most is a year");
  return span;
}

std::string format_rate(uint64_t rate) {
  if (rate == 0) return "unlimited";
  if (rate >= 1000000000) return format(rate / 1e9L, "Gbit/s");
  if (rate >= 1000000) return format(rate / 1e6L, "Mbit/s");
  if (rate >= 1000) return format(rate / 1e3L, "kbit/s");
  return format(rate, "bit/s");
}

std::string format_bytes(uint64_t bytes) {
  if (bytes >= (1u << 30)) return format(bytes / (1024.0L * 1024 * 1024), "GiB");
  if (bytes >= (1u << 20)) return format(bytes / (1024.0L * 1024), "MiB");
  if (bytes >= (1u << 10)) return format(bytes / 1024.0L, "KiB");
  return format(bytes, "B");
}

std::string format_duration(std::chrono::nanoseconds span) {
  const auto ns = (long double)span.count();
  if (ns >= 1e9L) return format(ns / 1e9L, "s");
  if (ns >= 1e6L) return format(ns / 1e6L, "ms");
  if (ns >= 1e3L) return format(ns / 1e3L, "us");
  return format(ns, "ns");
}

}  // namespace faultinject
