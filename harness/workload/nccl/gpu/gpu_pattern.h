// SPDX-License-Identifier: Apache-2.0
// The elements of the cpu workload's pattern (harness/workload/cpu/pattern.h), one at a time, for GPU
// kernels: what a rank puts in, and what must come out. Compiled by nvcc for gpu_pattern.cu and by the host's
// compiler for tests, which hold both formulas against each other. Standard C++ alone; no table, no state.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "harness/workload/cpu/pattern_hash.h"

#if defined(__CUDACC__)
#define R2BENCH_ON_GPU __host__ __device__
#else
#define R2BENCH_ON_GPU
#endif

namespace r2bench::gpu {

/// How an element is stored. Signed and unsigned numbers differ where they are compared.
enum class Family : uint32_t {
  kSigned,
  kUnsigned,
  kFloat64,
  kFloat32,
  kFloat16,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2
};

/// What ranks do with their contributions; the numbers are those of Reduction.
enum class Rule : uint32_t { kSum, kProd, kMin, kMax, kAvg, kPremulSum };

/// The values of one operation; passed to kernels as it is. Made by make_pattern() (gpu_data.h).
struct Pattern {
  uint32_t offset, factor;  ///< the operation's OperationKey
  uint32_t width;           ///< bytes of an element: 1, 2, 4 or 8
  Family family;
  Rule rule;
  uint32_t plain;    ///< 1: a sum of one of the types that have many whole numbers (pattern.cc's own loops)
  uint32_t ranks;    ///< that do the operation together
  uint32_t largest;  ///< contribution to a sum
  uint32_t most;     ///< size of a contribution to a minimum or maximum of floating-point numbers
  uint32_t
      scaled;  ///< 1: contributions to an average or a premultiplied sum are scaled before they are put in
  uint32_t divisor;  ///< of a result in whole numbers; 1 unless it is an average
  uint32_t unused = 0;
};

/// A whole number modulo 2^64, or a floating-point number: whichever the family has.
union Number {
  uint64_t whole;
  double real;
};

R2BENCH_ON_GPU inline bool is_whole(const Pattern& p) { return p.family <= Family::kUnsigned; }

/// 2^exponent, of normal numbers.
R2BENCH_ON_GPU inline double power_of_two(int exponent) {
  const uint64_t bits = uint64_t(exponent + 1023) << 52;
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Widens the low bytes of a whole number as its type would.
R2BENCH_ON_GPU inline uint64_t widen(const Pattern& p, uint64_t bits) {
  if (p.width == 8) return bits;
  const unsigned shift = 64 - 8 * p.width;
  return p.family == Family::kSigned ? uint64_t(int64_t(bits << shift) >> shift) : bits << shift >> shift;
}

/// The power of two by which an element of a type with few whole numbers is scaled, the same on all ranks.
R2BENCH_ON_GPU inline int exponent_of(Family family, uint32_t hash) {
  if (family == Family::kFloat16) return int(hash % 9) - 4;
  if (family == Family::kBfloat16) return int(hash % 16);
  if (family == Family::kFloat8e4m3) return int(hash % 6) - 2;
  if (family == Family::kFloat8e5m2) return int(hash % 12) - 4;
  return 0;
}

/// What the rank with this factor puts in at the element with this hash, before it is rounded to the type.
R2BENCH_ON_GPU inline Number contribution(const Pattern& p, uint32_t hash, uint32_t rank_factor) {
  const uint32_t x = hash * rank_factor;
  Number n;
  n.whole = 0;
  if (p.plain) {
    const uint32_t small = x >> 24, value = p.width == 1 ? small + (small == 0) : 1 + (x >> 18);
    if (is_whole(p))
      n.whole = value;
    else
      n.real = value;
    return n;
  }
  const uint32_t whole = 1 + (x >> 8) % p.largest;
  if (is_whole(p)) {
    switch (p.rule) {
      case Rule::kProd:
        n.whole = x >> 8 | 1;
        break;
      case Rule::kMin:
      case Rule::kMax:
        n.whole = widen(p, uint64_t(int64_t(int32_t(x))));
        break;
      default:
        n.whole = p.rule == Rule::kPremulSum && p.scaled ? 3 * whole : whole;
    }
    return n;
  }
  switch (p.rule) {
    case Rule::kProd:
      n.real = (x >> 31 ? -1.0 : 1.0) * (p.ranks <= 8 && x >> 30 & 1 ? 2.0 : 1.0);
      break;
    case Rule::kMin:
    case Rule::kMax:
      n.real = int((x >> 8) % (2 * p.most + 1)) - int(p.most);
      break;
    default:
      n.real = whole * power_of_two(exponent_of(p.family, hash));
      if (p.scaled && p.rule == Rule::kPremulSum) n.real *= 0.5;
      if (p.scaled && p.rule == Rule::kAvg) n.real /= p.ranks;
  }
  return n;
}

R2BENCH_ON_GPU inline Number combine(const Pattern& p, Number a, Number b) {
  Number n;
  if (is_whole(p)) {
    const bool less = p.family == Family::kSigned ? int64_t(a.whole) < int64_t(b.whole) : a.whole < b.whole;
    n.whole = p.rule == Rule::kMin    ? (less ? a.whole : b.whole)
              : p.rule == Rule::kMax  ? (less ? b.whole : a.whole)
              : p.rule == Rule::kProd ? a.whole * b.whole
                                      : a.whole + b.whole;
    return n;
  }
  n.real = p.rule == Rule::kMin    ? (b.real < a.real ? b.real : a.real)
           : p.rule == Rule::kMax  ? (a.real < b.real ? b.real : a.real)
           : p.rule == Rule::kProd ? a.real * b.real
                                   : a.real + b.real;
  return n;
}

/// Sizes of a small floating-point type. `infinity`: as IEEE 754; else (e4m3) the largest exponent has
/// values.
struct SmallFormat {
  int exponent, mantissa;
  bool infinity;
};
R2BENCH_ON_GPU inline SmallFormat small_format(Family family) {
  if (family == Family::kFloat16) return {5, 10, true};
  if (family == Family::kBfloat16) return {8, 7, true};
  if (family == Family::kFloat8e4m3) return {4, 3, false};
  return {5, 2, true};
}

R2BENCH_ON_GPU inline double small_value(SmallFormat f, uint32_t bits) {
  const int bias = (1 << (f.exponent - 1)) - 1, ones = (1 << f.exponent) - 1, fractions = 1 << f.mantissa;
  const int exponent = int(bits >> f.mantissa) & ones, fraction = int(bits) & (fractions - 1);
  const double sign = bits >> (f.exponent + f.mantissa) & 1 ? -1 : 1;
  if (exponent == ones && (f.infinity ? fraction != 0 : fraction == fractions - 1)) return NAN;
  if (exponent == ones && f.infinity) return sign * INFINITY;
  if (exponent == 0) return sign * fraction * power_of_two(1 - bias - f.mantissa);
  return sign * (fractions + fraction) * power_of_two(exponent - bias - f.mantissa);
}

/// Of a finite number that is no larger than the type's largest; rounds to nearest, ties to even.
R2BENCH_ON_GPU inline uint32_t small_bits(SmallFormat f, double value) {
  const int bias = (1 << (f.exponent - 1)) - 1;
  const uint32_t sign = value < 0 ? 1u << (f.exponent + f.mantissa) : 0;
  const double size = value < 0 ? -value : value;
  uint64_t bits;
  memcpy(&bits, &size, sizeof(bits));
  int exponent = int(bits >> 52) - 1023;
  if (exponent < 1 - bias) exponent = 1 - bias;
  // In units of the last place; rounding up may carry into the exponent, which the sum takes care of.
  const int units = int(rint(size * power_of_two(f.mantissa - exponent)));
  return sign | uint32_t(units + ((exponent + bias - 1) << f.mantissa));
}

/// The stored bits of a number, in the low bytes.
R2BENCH_ON_GPU inline uint64_t stored(const Pattern& p, Number n) {
  if (is_whole(p)) return n.whole;
  uint64_t bits = 0;
  if (p.family == Family::kFloat64) {
    memcpy(&bits, &n.real, sizeof(double));
  } else if (p.family == Family::kFloat32) {
    const float value = float(n.real);
    memcpy(&bits, &value, sizeof(float));
  } else {
    bits = small_bits(small_format(p.family), n.real);
  }
  return bits;
}
R2BENCH_ON_GPU inline Number loaded(const Pattern& p, uint64_t bits) {
  Number n;
  if (is_whole(p)) {
    n.whole = widen(p, bits);
  } else if (p.family == Family::kFloat64) {
    memcpy(&n.real, &bits, sizeof(double));
  } else if (p.family == Family::kFloat32) {
    const uint32_t low = uint32_t(bits);
    float value;
    memcpy(&value, &low, sizeof(float));
    n.real = value;
  } else {
    n.real = small_value(small_format(p.family), uint32_t(bits));
  }
  return n;
}

R2BENCH_ON_GPU inline void store(const Pattern& p, void* data, uint64_t index, uint64_t bits) {
  if (p.width == 1) static_cast<uint8_t*>(data)[index] = uint8_t(bits);
  if (p.width == 2) static_cast<uint16_t*>(data)[index] = uint16_t(bits);
  if (p.width == 4) static_cast<uint32_t*>(data)[index] = uint32_t(bits);
  if (p.width == 8) static_cast<uint64_t*>(data)[index] = bits;
}
R2BENCH_ON_GPU inline uint64_t load(const Pattern& p, const void* data, uint64_t index) {
  if (p.width == 1) return static_cast<const uint8_t*>(data)[index];
  if (p.width == 2) return static_cast<const uint16_t*>(data)[index];
  if (p.width == 4) return static_cast<const uint32_t*>(data)[index];
  return static_cast<const uint64_t*>(data)[index];
}

/// Writes element `first + k` of the rank with this factor to data[k].
R2BENCH_ON_GPU inline void fill_element(const Pattern& p, void* data, uint64_t first, uint64_t k,
                                        uint32_t factor) {
  const uint32_t hash = hash_of(uint32_t(first + k), {p.offset, p.factor});
  store(p, data, k, stored(p, contribution(p, hash, factor)));
}

/// Is data[k] another value than `members` contributions give at element `first + k`? `error`: relative, 0
/// unless the type rounds the result.
R2BENCH_ON_GPU inline bool is_wrong(const Pattern& p, const void* data, uint64_t first, uint64_t k,
                                    const uint32_t* factors, uint32_t members, double error) {
  const uint32_t hash = hash_of(uint32_t(first + k), {p.offset, p.factor});
  const auto rounded = [&](uint32_t member) {
    const Number n = contribution(p, hash, factors[member]);
    return p.scaled && p.rule == Rule::kAvg ? loaded(p, stored(p, n)) : n;
  };
  Number wanted = rounded(0);
  for (uint32_t member = 1; member < members; ++member) wanted = combine(p, wanted, rounded(member));
  const Number got = loaded(p, load(p, data, k));
  if (is_whole(p)) {
    if (members > 1 && p.divisor > 1) wanted.whole /= p.divisor;
    return got.whole != widen(p, wanted.whole);
  }
  const double off = got.real - wanted.real, size = wanted.real < 0 ? -wanted.real : wanted.real;
  return !((off < 0 ? -off : off) <= error * size);
}

}  // namespace r2bench::gpu
