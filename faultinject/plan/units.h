// SPDX-License-Identifier: Apache-2.0
// Quantities as people write them in a plan: "1 Gbit/s", "16 MiB", "50 ms". A number without a unit is an
// error wherever a unit changes its meaning; nothing is ever guessed.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace faultinject {

// What is wrong with one quantity, in words that name the accepted units. It knows no file and no line.
class UnitError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Bits per second from "<number> <unit>", units bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s (powers of 1000; bps,
// kbps … are accepted as the same) and B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s (bytes). "unlimited" is 0.
// Throws UnitError.
uint64_t parse_rate(std::string_view text);

// Bytes from "<number> <unit>", units B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of
// 1024). A bare "0" is accepted; any other bare number is an error. Throws UnitError.
uint64_t parse_bytes(std::string_view text);

// A time span from "<number> <unit>", units ns, us (or µs), ms, s, min, h. A bare "0" is accepted. Negative
// spans are errors, and those above kLongestDuration. Throws UnitError.
std::chrono::nanoseconds parse_duration(std::string_view text);

// So that sums of durations fit into 64 bits: the longest one, and all rounds or outages of a fault together.
constexpr std::chrono::nanoseconds kLongestDuration = std::chrono::hours(366 * 24);
constexpr std::chrono::nanoseconds kLongestPlan = 10 * kLongestDuration;

// The shortest exact or three-digit spelling with a unit, e.g. "1 Gbit/s", "16 MiB", "1.5 ms".
std::string format_rate(uint64_t bits_per_second);
std::string format_bytes(uint64_t bytes);
std::string format_duration(std::chrono::nanoseconds span);

}  // namespace faultinject
