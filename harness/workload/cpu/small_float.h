// SPDX-License-Identifier: Apache-2.0
// Floating-point types of 8 and 16 bits, as NCCL has them: to and from float, rounding to nearest, ties to
// even: for making and checking data.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace r2bench {

constexpr int kDoubleBias = 1023;
/// As ldexp(1, exponent), which is a call of libm, for an exponent that a normal double has.
constexpr double power_of_two(int exponent) { return std::bit_cast<double>(uint64_t(kDoubleBias + exponent) << 52); }

/// `Exponent` and `Mantissa` bits. `HasInfinity`: as IEEE 754; else (e4m3) the largest exponent has values,
/// and only all ones is not a number.
template <typename Bits, int Exponent, int Mantissa, bool HasInfinity = true>
struct SmallFloat {
  static constexpr int kBias = (1 << (Exponent - 1)) - 1;
  static constexpr int kMantissa = Mantissa;
  static constexpr int kAllOnes = (1 << Exponent) - 1;
  static constexpr int kFractions = 1 << Mantissa;
  Bits bits = 0;

  SmallFloat() = default;
  explicit SmallFloat(double value) : bits(from(value)) {}

  explicit operator double() const {
    const int exponent = bits >> Mantissa & kAllOnes, fraction = bits & (kFractions - 1);
    const double sign = bits >> (Exponent + Mantissa) ? -1 : 1;
    if (exponent == kAllOnes && (HasInfinity ? fraction != 0 : fraction == kFractions - 1))
      return std::numeric_limits<double>::quiet_NaN();
    if (exponent == kAllOnes && HasInfinity) return sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * fraction * power_of_two(1 - kBias - Mantissa);
    return sign * (kFractions + fraction) * power_of_two(exponent - kBias - Mantissa);
  }

 private:
  static Bits from(double value) {
    const Bits sign = Bits(Bits(std::signbit(value)) << (Exponent + Mantissa));
    constexpr int kNaN = HasInfinity ? kAllOnes << Mantissa | 1 : (1 << (Exponent + Mantissa)) - 1;
    if (std::isnan(value)) return Bits(sign | kNaN);
    const double size = std::fabs(value);
    // A double without an exponent of its own, 0 for one, is less than the least one here.
    const int exponent = std::max(1 - kBias, int(std::bit_cast<uint64_t>(size) >> 52) - kDoubleBias);
    constexpr int kLargest = HasInfinity ? (kAllOnes << Mantissa) - 1 : (1 << (Exponent + Mantissa)) - 2;
    if (!std::isfinite(size) || exponent + kBias > kAllOnes) return Bits(sign | (kLargest + 1));
    // In units of the last place; rounding up may carry into the exponent, which the sum below takes care of.
    // Beyond 2^52 double has whole numbers only, so that the sum is rounded to one.
    constexpr double kWholeFrom = 4503599627370496.0;
    const double units = (size * power_of_two(Mantissa - exponent) + kWholeFrom) - kWholeFrom;
    const int whole = int(units) + ((exponent + kBias - 1) << Mantissa);
    return Bits(sign | (whole > kLargest ? kLargest + 1 : whole));
  }
};

using Float16 = SmallFloat<uint16_t, 5, 10>;
using Bfloat16 = SmallFloat<uint16_t, 8, 7>;
using Float8e4m3 = SmallFloat<uint8_t, 4, 3, false>;
using Float8e5m2 = SmallFloat<uint8_t, 5, 2>;

}  // namespace r2bench
