// SPDX-License-Identifier: Apache-2.0
// Every reduction against a scalar reference: of all pairs of 8-bit values, of all 16-bit values with others of
// every kind, of tails of every length and alignment.
#include "r2ccl/collective/host/reduce.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace r2ccl::collective {
namespace {

constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kProd, Reduction::kMax, Reduction::kMin};

// ---- the reference: small floats as their definitions say, in double ----

struct Layout {
  int exponent, mantissa;
  bool infinity;    ///< the largest exponent is infinity and NaN
  bool saturates;
  uint32_t nan;
};
constexpr Layout kHalf{5, 10, true, false, 0x7fff}, kBfloat{8, 7, true, false, 0x7fff},
    kE4m3{4, 3, false, true, 0x7f}, kE5m2{5, 2, true, true, 0x7f};

double decode(const Layout& layout, uint32_t stored) {
  const int bits = 1 + layout.exponent + layout.mantissa, bias = (1 << (layout.exponent - 1)) - 1;
  const double sign = stored >> (bits - 1) ? -1 : 1;
  const uint32_t magnitude = stored & ((1u << (bits - 1)) - 1);
  const int exponent = int(magnitude >> layout.mantissa), top = (1 << layout.exponent) - 1;
  const uint32_t mantissa = magnitude & ((1u << layout.mantissa) - 1);
  if (layout.infinity && exponent == top)
    return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (!layout.infinity && magnitude == (1u << (bits - 1)) - 1) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(double(mantissa), 1 - bias - layout.mantissa);
  return sign * std::ldexp(double(mantissa + (1u << layout.mantissa)), exponent - bias - layout.mantissa);
}

/// To the nearest, of two equally near the even one: by looking at both neighbours.
uint32_t encode(const Layout& layout, double value) {
  if (std::isnan(value)) return layout.nan;
  const int bits = 1 + layout.exponent + layout.mantissa;
  const uint32_t sign = std::signbit(value) ? 1u << (bits - 1) : 0;
  const double magnitude = std::fabs(value);
  uint32_t greatest = (((1u << layout.exponent) - 1) << layout.mantissa) - 1;
  if (!layout.infinity) greatest = (1u << (bits - 1)) - 2;
  uint32_t low = 0, high = greatest;
  while (low < high) {  // the greatest one not above
    const uint32_t middle = (low + high + 1) / 2;
    if (decode(layout, middle) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == greatest) {
    if (layout.saturates) return sign | greatest;
    const double step = decode(layout, greatest) - decode(layout, greatest - 1);
    return sign | (magnitude >= decode(layout, greatest) + step / 2 ? greatest + 1 : greatest);
  }
  const double below = magnitude - decode(layout, low), above = decode(layout, low + 1) - magnitude;
  if (below == above) return sign | (low % 2 == 0 ? low : low + 1);
  return sign | (below < above ? low : low + 1);
}

/// Zeros: the greater one is positive. A NaN gives way to a number.
template <typename T>
T float_reference(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kSum:
      return a + b;
    case Reduction::kProd:
      return a * b;
    case Reduction::kMax:
      if (a == 0 && b == 0) return std::signbit(a) ? b : a;
      return std::isnan(a) || (!std::isnan(b) && b > a) ? b : a;
    case Reduction::kMin:
      if (a == 0 && b == 0) return std::signbit(a) ? a : b;
      return std::isnan(a) || (!std::isnan(b) && b < a) ? b : a;
  }
  return 0;
}

template <typename T>
T integer_reference(Reduction reduction, T a, T b) {
  using U = std::make_unsigned_t<T>;
  switch (reduction) {
    case Reduction::kSum:
      return T(uint64_t(U(a)) + uint64_t(U(b)));
    case Reduction::kProd:
      return T(uint64_t(U(a)) * uint64_t(U(b)));
    case Reduction::kMax:
      return a > b ? a : b;
    case Reduction::kMin:
      return a < b ? a : b;
  }
  return 0;
}

/// Takes note of the sets that are supported now. Highway 0.16 (Ubuntu 22.04) looks for itself.
template <typename Chosen>
void choose_again(Chosen& chosen) {
  if constexpr (requires { chosen.Update(hwy::SupportedTargets()); })
    chosen.Update(hwy::SupportedTargets());
  else
    chosen.Update();
}

/// Runs `body` on each instruction set that this machine has, the best one last.
template <typename Body>
void on_all_targets(Body body) {
  const int64_t best = hwy::SupportedTargets();
  int sets = 0;
  for (int bit = 62; bit >= 0; --bit) {
    if (!(best >> bit & 1)) continue;
    hwy::SetSupportedTargetsForTest(int64_t{1} << bit);
    choose_again(hwy::GetChosenTarget());
    SCOPED_TRACE(hwy::TargetName(int64_t{1} << bit));
    body();
    ++sets;
  }
  hwy::SetSupportedTargetsForTest(0);
  choose_again(hwy::GetChosenTarget());
  EXPECT_GE(sets, 1);
}

/// One operation on stored values. The sum of two floats of at most 11 bits of mantissa, rounded to float and
/// then again, may differ from the one rounded once: the reference rounds to float first, as is promised.
uint32_t reference(const Layout& layout, Reduction reduction, uint32_t a, uint32_t b) {
  return encode(layout, double(float_reference(reduction, float(decode(layout, a)), float(decode(layout, b)))));
}

template <typename Stored>
void expect_small(DataType type, const Layout& layout, const std::vector<uint32_t>& lefts,
                  const std::vector<uint32_t>& rights) {
  std::vector<Stored> a, b;
  for (const uint32_t left : lefts)
    for (const uint32_t right : rights) a.push_back(Stored(left)), b.push_back(Stored(right));
  for (const Reduction reduction : kReductions) {
    std::vector<Stored> got(a.size());
    reduction_of(type, reduction)(got.data(), a.data(), b.data(), a.size());
    size_t wrong = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const auto wanted = Stored(reference(layout, reduction, a[i], b[i]));
      if (got[i] != wanted && ++wrong < 5)
        ADD_FAILURE() << "type " << int(type) << ", reduction " << int(reduction) << ": " << std::hex << +a[i]
                      << " and " << +b[i] << " give " << +got[i] << " instead of " << +wanted;
    }
    EXPECT_EQ(wrong, 0u);
  }
}

std::vector<uint32_t> all(uint32_t count) {
  std::vector<uint32_t> values(count);
  for (uint32_t i = 0; i < count; ++i) values[i] = i;
  return values;
}

/// Zeros, subnormal numbers, ones near the edges of rounding and range, infinities, NaNs, and any.
std::vector<uint32_t> notable(const Layout& layout, size_t any) {
  const uint32_t one = ((1u << (layout.exponent - 1)) - 1) << layout.mantissa, step = 1u << layout.mantissa;
  const uint32_t top = ((1u << layout.exponent) - 1) << layout.mantissa;
  std::vector<uint32_t> values{0, 1, 2, step - 1, step, step + 1, one, one + 1, one + step - 1, one - step,
                               top - 1, top, top + 1, top + step - 1, top - step};
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(values[i] | 1u << (layout.exponent + layout.mantissa));
  std::mt19937 random(17);
  for (size_t i = 0; i < any; ++i) values.push_back(random() & ((2u << (layout.exponent + layout.mantissa)) - 1));
  return values;
}

TEST(Reduce, float8_is_right_for_all_pairs) {
  expect_small<uint8_t>(DataType::kFloat8e4m3, kE4m3, all(256), all(256));
  expect_small<uint8_t>(DataType::kFloat8e5m2, kE5m2, all(256), all(256));
}

TEST(Reduce, float16_and_bfloat16_are_right_for_all_values) {
  // 1 + 2^-10, a little over half the greatest number, a subnormal one, and a negative NaN.
  expect_small<uint16_t>(DataType::kFloat16, kHalf, all(65536), {0x8000, 0x3c01, 0x7801, 0x03ff, 0xffff});
  expect_small<uint16_t>(DataType::kBfloat16, kBfloat, all(65536), {0x8000, 0x3f81, 0x7f01, 0x007f, 0xffff});
}

TEST(Reduce, small_floats_are_the_same_on_every_instruction_set) {
  on_all_targets([] {
    expect_small<uint16_t>(DataType::kFloat16, kHalf, notable(kHalf, 60), notable(kHalf, 60));
    expect_small<uint16_t>(DataType::kBfloat16, kBfloat, notable(kBfloat, 60), notable(kBfloat, 60));
    expect_small<uint8_t>(DataType::kFloat8e4m3, kE4m3, notable(kE4m3, 30), all(256));
    expect_small<uint8_t>(DataType::kFloat8e5m2, kE5m2, notable(kE5m2, 30), all(256));
  });
}

template <typename T>
void expect_integers(DataType type) {
  std::vector<T> values{0, 1, 2, T(-1), std::numeric_limits<T>::max(), std::numeric_limits<T>::min(),
                        T(std::numeric_limits<T>::max() / 2), T(std::numeric_limits<T>::max() / 2 + 1)};
  std::mt19937_64 random(3);
  while (values.size() < 300) values.push_back(T(random() >> random() % 64));
  if (sizeof(T) == 1)
    for (int i = 0; i < 256; ++i) values.push_back(T(i));
  std::vector<T> a, b;
  for (const T left : values)
    for (const T right : values) a.push_back(left), b.push_back(right);
  for (const Reduction reduction : kReductions) {
    std::vector<T> got(a.size());
    reduction_of(type, reduction)(got.data(), a.data(), b.data(), a.size());
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(got[i], integer_reference(reduction, a[i], b[i])) << int(type) << " " << int(reduction) << " " << i;
  }
}

TEST(Reduce, integers_wrap_and_compare_by_their_sign) {
  on_all_targets([] {
    expect_integers<int8_t>(DataType::kInt8);
    expect_integers<uint8_t>(DataType::kUint8);
    expect_integers<int32_t>(DataType::kInt32);
    expect_integers<uint32_t>(DataType::kUint32);
    expect_integers<int64_t>(DataType::kInt64);
    expect_integers<uint64_t>(DataType::kUint64);
  });
}

template <typename T>
void expect_floats(DataType type) {
  using limits = std::numeric_limits<T>;
  std::vector<T> values{0, -T(0), 1, -1, limits::max(), limits::lowest(), limits::min(), limits::denorm_min(),
                        limits::infinity(), -limits::infinity(), limits::quiet_NaN(), limits::signaling_NaN()};
  std::mt19937_64 random(5);
  while (values.size() < 400) {
    const uint64_t bits = random();
    T value;
    std::memcpy(&value, &bits, sizeof value);
    values.push_back(value);
  }
  std::vector<T> a, b;
  for (const T left : values)
    for (const T right : values) a.push_back(left), b.push_back(right);
  for (const Reduction reduction : kReductions) {
    std::vector<T> got(a.size());
    reduction_of(type, reduction)(got.data(), a.data(), b.data(), a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const T wanted = float_reference(reduction, a[i], b[i]);
      if (std::isnan(wanted))
        ASSERT_TRUE(std::isnan(got[i])) << a[i] << " " << b[i];
      else
        ASSERT_EQ(std::memcmp(&got[i], &wanted, sizeof wanted), 0) << a[i] << " " << b[i] << " " << int(reduction);
    }
  }
}

TEST(Reduce, floats_are_those_of_the_machine_and_a_number_wins_over_a_nan) {
  on_all_targets([] {
    expect_floats<float>(DataType::kFloat32);
    expect_floats<double>(DataType::kFloat64);
  });
}

// The same elements alone, and in ranges of every length at every alignment: nothing before or behind is
// touched, and dst may be either source.
void expect_any_length() {
  constexpr size_t kMost = 150, kSlack = 64;
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = DataType(t);
    const size_t bytes = bytes_of(type);
    ASSERT_GT(bytes, 0u);
    std::vector<uint8_t> a(kMost * bytes + 2 * kSlack), b(a.size());
    std::mt19937 random{uint32_t(t)};
    for (auto& byte : a) byte = uint8_t(random());
    for (auto& byte : b) byte = uint8_t(random());
    for (const Reduction reduction : kReductions) {
      const ReduceFunction reduce = reduction_of(type, reduction);
      ASSERT_NE(reduce, nullptr);
      for (size_t length = 0; length <= kMost; length += length < 70 ? 1 : 7) {
        const size_t shift = (length * 5 + size_t(t)) % 16 * bytes;
        std::vector<uint8_t> one(length * bytes);
        for (size_t i = 0; i < length; ++i)
          reduce(&one[i * bytes], &a[kSlack + i * bytes], &b[kSlack + i * bytes], 1);
        for (const int where : {0, 1, 2}) {
          std::vector<uint8_t> x(a.size() + shift + bytes, 0x5a), y(x), to(x);
          std::memcpy(&x[shift + kSlack], &a[kSlack], length * bytes);
          std::memcpy(&y[shift + kSlack], &b[kSlack], length * bytes);
          std::vector<uint8_t>& dst = where == 0 ? to : where == 1 ? x : y;
          reduce(&dst[shift + kSlack], &x[shift + kSlack], &y[shift + kSlack], length);
          if (length > 0) {
            ASSERT_EQ(std::memcmp(&dst[shift + kSlack], one.data(), length * bytes), 0) << t << " " << length;
          }
          for (size_t i = 0; i < dst.size(); ++i) {
            if (i >= shift + kSlack && i < shift + kSlack + length * bytes) continue;
            ASSERT_EQ(dst[i], 0x5a) << t << " " << length << " touches " << i;
          }
        }
      }
    }
  }
}

TEST(Reduce, any_length_and_alignment_in_place_or_not) { on_all_targets(expect_any_length); }

}  // namespace
}  // namespace r2ccl::collective
