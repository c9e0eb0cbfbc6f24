// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/pattern_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "harness/workload/cpu/pattern_hash.h"
#include "harness/workload/cpu/small_float.h"

namespace r2bench::values {
namespace {

constexpr double kPremultiplied = 0.5;  // of floating-point types; whole numbers by 3
constexpr int kPremultipliedWhole = 3;
constexpr int kLargestWhole = 1 << 14;  // where the type is exact far beyond it
constexpr uint32_t kMostProducts = 8;   // 2^8 is a number of every type

template <typename T>
constexpr bool kWhole = std::is_integral_v<T>;

/// What is added, multiplied and compared: whole numbers of the type's width wrap, all else is exact in
/// double.
template <typename T>
using Number = std::conditional_t<kWhole<T>, T, double>;

/// Powers of two by which an element of a type with few whole numbers is scaled, the same on all ranks.
template <typename T>
int exponent_of(uint32_t hash) {
  if constexpr (std::is_same_v<T, Float16>) return int(hash % 9) - 4;
  if constexpr (std::is_same_v<T, Bfloat16>) return int(hash % 16);
  if constexpr (std::is_same_v<T, Float8e4m3>) return int(hash % 6) - 2;
  if constexpr (std::is_same_v<T, Float8e5m2>) return int(hash % 12) - 4;
  return 0;
}

/// The largest contribution to a sum over `ranks` that is exact, one contribution too many included: rounding
/// must not hide it. To an average, which must not wrap.
template <typename T>
int largest(const Data& data) {
  const int ranks = int(std::max(1u, data.ranks));
  if (const int exact = largest_exact_sum(data.type); exact > 0) return std::max(1, exact / (ranks + 1));
  if (kWhole<T> && sizeof(T) == 1) return std::max(1, 127 / ranks);
  return kLargestWhole;
}

/// What `rank`, whose factor this is, puts in. Never 0 in a sum or a product.
template <typename T>
T input(const Data& data, uint32_t hash, uint32_t factor) {
  const uint32_t x = hash * factor;
  const auto whole = [&] { return 1 + int((x >> 8) % uint32_t(largest<T>(data))); };
  switch (data.reduction) {
    case Reduction::kProd:
      if constexpr (kWhole<T>) return T(x >> 8 | 1);
      return T((x >> 31 ? -1.0 : 1.0) * (data.ranks <= kMostProducts && x >> 30 & 1 ? 2.0 : 1.0));
    case Reduction::kMin:
    case Reduction::kMax: {
      if constexpr (kWhole<T>) return T(int32_t(x));
      const int exact = largest_exact_sum(data.type), most = exact > 0 ? exact : kLargestWhole;
      return T(double(int((x >> 8) % uint32_t(2 * most + 1)) - most));
    }
    case Reduction::kPremulSum:
      if constexpr (kWhole<T>) return T(kPremultipliedWhole * whole());
      return T(whole() * power_of_two(exponent_of<T>(hash)) * kPremultiplied);
    case Reduction::kAvg:
      if constexpr (!kWhole<T>)
        return T(whole() * power_of_two(exponent_of<T>(hash)) / double(std::max(1u, data.ranks)));
      break;
    case Reduction::kSum:
      break;
  }
  if constexpr (kWhole<T>) return T(whole());
  return T(whole() * power_of_two(exponent_of<T>(hash)));
}

template <typename T>
Number<T> combine(Reduction reduction, Number<T> a, Number<T> b) {
  if (reduction == Reduction::kMin) return std::min(a, b);
  if (reduction == Reduction::kMax) return std::max(a, b);
  if constexpr (kWhole<T>) {
    return reduction == Reduction::kProd ? T(uint64_t(a) * uint64_t(b)) : T(uint64_t(a) + uint64_t(b));
  } else {
    return reduction == Reduction::kProd ? a * b : a + b;
  }
}

/// Relative error that is allowed of an average: each input and each partial sum is rounded once.
template <typename T>
double allowed(const Data& data) {
  if (kWhole<T> || data.reduction != Reduction::kAvg) return 0;
  if ((data.ranks & (data.ranks - 1)) == 0) return 0;  // a power of two: exact
  int mantissa = 52;
  if constexpr (std::is_same_v<T, float>) mantissa = 23;
  if constexpr (std::is_class_v<T>) mantissa = T::kMantissa;
  return (double(data.ranks) + 2) * std::ldexp(1.0, -mantissa - 1);
}

/// What the operation's result is, `inputs` being all ranks'; averages of whole numbers are divided
/// afterwards.
template <typename T>
class Expected {
 public:
  Expected(const Data& data, uint64_t operation) : data_(data), operation_(operation) {}
  void add_rank(uint32_t rank) { factors_.push_back(factor_of(rank, operation_)); }
  Number<T> at(size_t element) const {
    const uint32_t hash = hash_of(uint32_t(element), key_);
    Number<T> total = Number<T>(input<T>(data_, hash, factors_[0]));
    for (size_t i = 1; i < factors_.size(); ++i)
      total = combine<T>(data_.reduction, total, Number<T>(input<T>(data_, hash, factors_[i])));
    return total;
  }

 private:
  const Data data_;
  const uint64_t operation_;
  const OperationKey key_ = key_of(operation_);
  std::vector<uint32_t> factors_;
};

template <typename T>
struct Typed {
  static void fill_input(const Data& data, void* out, size_t first, size_t count, uint32_t rank,
                         uint64_t operation) {
    const OperationKey key = key_of(operation);
    const uint32_t factor = factor_of(rank, operation);
    for (size_t k = 0; k < count; ++k)
      static_cast<T*>(out)[k] = input<T>(data, hash_of(uint32_t(first + k), key), factor);
  }
  static uint64_t wrong(const Data& data, const void* in, size_t first, size_t count, Contributors ranks,
                        uint64_t operation) {
    Expected<T> expected(data, operation);
    for (uint32_t member = 0; member < ranks.count; ++member)
      expected.add_rank(ranks.first + member * ranks.step);
    // One contribution alone has not been scaled by anybody on its way.
    const double error = ranks.count > 1 ? allowed<T>(data) : 0;
    uint64_t wrong = 0;
    for (size_t k = 0; k < count; ++k) {
      const auto got = Number<T>(static_cast<const T*>(in)[k]), wanted = expected.at(first + k);
      if constexpr (kWhole<T>)
        wrong += got != wanted;
      else
        wrong += !(std::fabs(got - wanted) <= error * std::fabs(wanted));
    }
    return wrong;
  }
  static void fill_sums(const Data& data, void* out, size_t first, size_t count,
                        std::span<const uint32_t> ranks, uint64_t operation) {
    Expected<T> expected(data, operation);
    for (const uint32_t rank : ranks) expected.add_rank(rank);
    for (size_t k = 0; k < count; ++k) static_cast<T*>(out)[k] = T(expected.at(first + k));
  }
  static void reduce(const Data& data, void* to, const void* a, const void* b, size_t count) {
    const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
    for (size_t k = 0; k < count; ++k)
      static_cast<T*>(to)[k] = T(combine<T>(data.reduction, Number<T>(x[k]), Number<T>(y[k])));
  }
};

template <typename F>
auto dispatch(DataType type, F f) {
  switch (type) {
    case DataType::kInt8:
      return f(Typed<int8_t>{});
    case DataType::kInt32:
      return f(Typed<int32_t>{});
    case DataType::kInt64:
      return f(Typed<int64_t>{});
    case DataType::kUint8:
      return f(Typed<uint8_t>{});
    case DataType::kUint32:
      return f(Typed<uint32_t>{});
    case DataType::kUint64:
      return f(Typed<uint64_t>{});
    case DataType::kFloat64:
      return f(Typed<double>{});
    case DataType::kFloat16:
      return f(Typed<Float16>{});
    case DataType::kBfloat16:
      return f(Typed<Bfloat16>{});
    case DataType::kFloat8e4m3:
      return f(Typed<Float8e4m3>{});
    case DataType::kFloat8e5m2:
      return f(Typed<Float8e5m2>{});
    case DataType::kFloat32:
      break;
  }
  return f(Typed<float>{});
}

}  // namespace

void fill_input(const Data& data, void* out, size_t first, size_t count, uint32_t rank, uint64_t operation) {
  dispatch(data.type, [&](auto typed) { typed.fill_input(data, out, first, count, rank, operation); });
}

uint64_t count_wrong_sums(const Data& data, const void* in, size_t first, size_t count, Contributors ranks,
                          uint64_t operation) {
  return dispatch(data.type,
                  [&](auto typed) { return typed.wrong(data, in, first, count, ranks, operation); });
}

void fill_sums(const Data& data, void* out, size_t first, size_t count, std::span<const uint32_t> ranks,
               uint64_t operation) {
  dispatch(data.type, [&](auto typed) { typed.fill_sums(data, out, first, count, ranks, operation); });
}

void reduce(const Data& data, void* to, const void* a, const void* b, size_t count) {
  dispatch(data.type, [&](auto typed) { typed.reduce(data, to, a, b, count); });
}

}  // namespace r2bench::values
