// SPDX-License-Identifier: Apache-2.0
// Compiled once for each instruction set that the compiler knows (Highway); the best one that the machine has
// is taken at run time.
//
// The small floats are computed in float32 and rounded once, to nearest even; conversions are integer
// arithmetic, so that they give the same bits everywhere, whatever the thread has set for subnormal numbers.
// As with NCCL's kernels a minimum or maximum of a number and a NaN is the number, float8 saturates, and a NaN
// of a small float is the one that CUDA writes.
#include "r2ccl/collective/host/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "r2ccl/base/clock.h"

// There Highway 0.16 (Ubuntu 22.04) takes the wrong one of two 64-bit integers. CPUs that have no more are of 2006 to 2009.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "r2ccl/collective/host/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace r2ccl::collective {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- conversions of the small floats, by their layout ----

/// kExponent, kMantissa: bits; the value of the greatest finite number; what stands for NaN; whether the
/// largest exponent is infinity and NaN, as in IEEE 754.
struct Half {
  using Stored = uint16_t;
  static constexpr int kExponent = 5, kMantissa = 10;
  static constexpr bool kInfinity = true, kSaturates = false;
  static constexpr uint32_t kNan = 0x7fff, kGreatest = 0x477fe000;  // 65504
};
struct E4m3 {
  using Stored = uint8_t;
  static constexpr int kExponent = 4, kMantissa = 3;
  static constexpr bool kInfinity = false, kSaturates = true;
  static constexpr uint32_t kNan = 0x7f, kGreatest = 0x43e00000;  // 448
};
struct E5m2 {
  using Stored = uint8_t;
  static constexpr int kExponent = 5, kMantissa = 2;
  static constexpr bool kInfinity = true, kSaturates = true;
  static constexpr uint32_t kNan = 0x7f, kGreatest = 0x47600000;  // 57344
};
struct Bfloat {
  using Stored = uint16_t;
};

constexpr uint32_t kInfinityBits = 0x7f800000, kQuietNanBits = 0x7fc00000, kSignBit = 0x80000000;

template <class F, class D>
HWY_ATTR hn::Vec<D> ToFloat(D d, hn::Vec<hn::RebindToUnsigned<D>> stored, F) {
  const hn::RebindToUnsigned<D> du;
  constexpr int kBits = 1 + F::kExponent + F::kMantissa, kShift = 23 - F::kMantissa;
  constexpr uint32_t kBias = (1u << (F::kExponent - 1)) - 1, kMagnitude = (1u << (kBits - 1)) - 1;
  constexpr uint32_t kExponents = ((1u << F::kExponent) - 1) << 23;  // of a stored one, shifted
  const auto magnitude = hn::And(stored, hn::Set(du, kMagnitude));
  const auto sign = hn::ShiftLeft<32 - kBits>(hn::AndNot(hn::Set(du, kMagnitude), stored));
  const auto shifted = hn::ShiftLeft<kShift>(magnitude);
  const auto exponent = hn::And(shifted, hn::Set(du, kExponents));
  auto bits = hn::Add(shifted, hn::Set(du, (127 - kBias) << 23));
  // Without the leading one: a number with it, from which it is taken away.
  const auto one = hn::BitCast(d, hn::Set(du, (128 - kBias) << 23));
  const auto small =
      hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(bits, hn::Set(du, 1u << 23))), one));
  bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), small, bits);
  if (F::kInfinity) {
    const auto top = hn::Or(hn::Set(du, kInfinityBits), hn::And(shifted, hn::Set(du, 0x7fffff)));
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, kExponents)), top, bits);
  } else {
    bits = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, kMagnitude)), hn::Set(du, kQuietNanBits), bits);
  }
  return hn::BitCast(d, hn::Or(bits, sign));
}

template <class F, class D>
HWY_ATTR hn::Vec<hn::RebindToUnsigned<D>> FromFloat(D d, hn::Vec<D> value, F) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  constexpr int kBits = 1 + F::kExponent + F::kMantissa, kShift = 23 - F::kMantissa;
  constexpr uint32_t kBias = (1u << (F::kExponent - 1)) - 1;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::ShiftRight<32 - kBits>(hn::And(bits, hn::Set(du, kSignBit)));
  const auto magnitude = hn::AndNot(hn::Set(du, kSignBit), bits);
  // As integers: they are below 2^31, and in the order of the numbers.
  const auto is_nan = hn::RebindMask(du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, int32_t(kInfinityBits))));
  auto bounded = magnitude;
  if (F::kSaturates)
    bounded = hn::BitCast(du, hn::Min(hn::BitCast(di, magnitude), hn::Set(di, int32_t(F::kGreatest))));
  const auto odd = hn::And(hn::ShiftRight<kShift>(bounded), hn::Set(du, 1u));
  const auto rebased = hn::Add(bounded, hn::Set(du, ((kBias - 127) << 23) + (1u << (kShift - 1)) - 1));
  auto stored = hn::ShiftRight<kShift>(hn::Add(rebased, odd));
  // Below the least normal number: beside one whose last bit is worth as much as the stored one's.
  constexpr uint32_t kLeastNormal = (128 - kBias) << 23;
  constexpr uint32_t kBeside = (127 + 23 + 1 - kBias - F::kMantissa) << 23;
  const auto beside = hn::BitCast(d, hn::Set(du, kBeside));
  const auto small = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, bounded), beside)), hn::Set(du, kBeside));
  const auto is_small =
      hn::RebindMask(du, hn::Lt(hn::BitCast(di, bounded), hn::Set(di, int32_t(kLeastNormal))));
  stored = hn::IfThenElse(is_small, small, stored);
  if (!F::kSaturates) {
    constexpr uint32_t kStoredInfinity = ((1u << F::kExponent) - 1) << F::kMantissa;
    stored = hn::BitCast(du, hn::Min(hn::BitCast(di, stored), hn::Set(di, int32_t(kStoredInfinity))));
    // From this on a stored exponent would be too large for the arithmetic above.
    const auto is_large = hn::RebindMask(
        du, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, int32_t(F::kGreatest + (1u << kShift)))));
    stored = hn::IfThenElse(is_large, hn::Set(du, kStoredInfinity), stored);
  }
  return hn::IfThenElse(is_nan, hn::Set(du, F::kNan), hn::Or(stored, sign));
}

template <class D>
HWY_ATTR hn::Vec<D> ToFloat(D d, hn::Vec<hn::RebindToUnsigned<D>> stored, Bfloat) {
  return hn::BitCast(d, hn::ShiftLeft<16>(stored));
}

template <class D>
HWY_ATTR hn::Vec<hn::RebindToUnsigned<D>> FromFloat(D /*d*/, hn::Vec<D> value, Bfloat) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, value);
  const auto magnitude = hn::BitCast(di, hn::AndNot(hn::Set(du, kSignBit), bits));
  const auto is_nan = hn::RebindMask(du, hn::Gt(magnitude, hn::Set(di, int32_t(kInfinityBits))));
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd));
  return hn::IfThenElse(is_nan, hn::Set(du, 0x7fffu), rounded);
}

// ---- operations on vectors ----

struct Sum {
  template <class D, class V>
  HWY_ATTR V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

template <class D, class V>
HWY_ATTR V Product(hwy::SizeTag<1>, D d, V a, V b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, static_cast<hn::TFromD<D>>(hn::GetLane(a) * hn::GetLane(b)));
#else
  // There is no multiplication of bytes: the low half of a product of words, for even and odd bytes.
  const hn::RepartitionToWide<hn::RebindToUnsigned<D>> dw;
  const auto low = hn::Set(dw, 0xff);
  const auto x = hn::BitCast(dw, a), y = hn::BitCast(dw, b);
  const auto even = hn::And(hn::Mul(x, y), low);
  const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
  return hn::BitCast(d, hn::Or(even, odd));
#endif
}
template <class D, class V>
HWY_ATTR V Product(hwy::SizeTag<4>, D, V a, V b) {
  return hn::Mul(a, b);
}
template <class D, class V>
HWY_ATTR V Product(hwy::SizeTag<8>, [[maybe_unused]] D d, V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    return hn::Mul(a, b);
  } else {
#if HWY_TARGET == HWY_SCALAR
    const auto x = static_cast<uint64_t>(hn::GetLane(a)), y = static_cast<uint64_t>(hn::GetLane(b));
    return hn::Set(d, static_cast<hn::TFromD<D>>(x * y));
#else
    // low·low + ((low·high + high·low) << 32)
    const hn::RebindToUnsigned<D> du;
    const hn::Repartition<uint32_t, decltype(du)> d32;
    const auto x = hn::BitCast(d32, a), y = hn::BitCast(d32, b);
    const auto xh = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(du, a)));
    const auto yh = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(du, b)));
    const auto cross = hn::Add(hn::MulEven(x, yh), hn::MulEven(xh, y));
    return hn::BitCast(d, hn::Add(hn::MulEven(x, y), hn::ShiftLeft<32>(cross)));
#endif
  }
}
struct Prod {
  template <class D, class V>
  HWY_ATTR V operator()(D d, V a, V b) const {
    return Product(hwy::SizeTag<sizeof(hn::TFromD<D>)>(), d, a, b);
  }
};

template <bool kGreater>
struct Extreme {
  template <class D, class V>
  HWY_ATTR V operator()(D /*d*/, V a, V b) const {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      // Of two equal ones, which may be zeros of both signs, a maximum has the bits that both have; a minimum
      // those that either has.
      const auto better = kGreater ? hn::Gt(a, b) : hn::Lt(a, b);
      const V same = kGreater ? hn::And(a, b) : hn::Or(a, b);
      const V number = hn::IfThenElse(hn::Eq(a, b), same, hn::IfThenElse(better, a, b));
      // A NaN is equal to nothing: b was taken, which is right unless it is the NaN.
      return hn::IfThenElse(hn::Eq(b, b), number, a);
    } else {
      return kGreater ? hn::Max(a, b) : hn::Min(a, b);
    }
  }
};
using Max = Extreme<true>;
using Min = Extreme<false>;

// ---- loops ----

/// All but the tail in vectors, the tail in one that is filled up with zeros. Bodies work on whole vectors of
/// `lanes` elements.
template <class T, class Body>
HWY_ATTR void ForVectors(T* dst, const T* a, const T* b, size_t elements, size_t lanes, const Body& body) {
  size_t i = 0;
  for (; i + lanes <= elements; i += lanes) body(dst + i, a + i, b + i);
  if (i == elements) return;
  const size_t left = elements - i;
  HWY_ALIGN T x[HWY_MAX_BYTES / sizeof(T)] = {}, y[HWY_MAX_BYTES / sizeof(T)] = {};
  std::memcpy(x, a + i, left * sizeof(T));
  std::memcpy(y, b + i, left * sizeof(T));
  body(x, x, y);
  std::memcpy(dst + i, x, left * sizeof(T));
}

template <class T, class Op>
HWY_ATTR void Native(void* dst, const void* a, const void* b, size_t elements) {
  const hn::ScalableTag<T> d;
  ForVectors(static_cast<T*>(dst), static_cast<const T*>(a), static_cast<const T*>(b), elements, hn::Lanes(d),
             [&](T* to, const T* x, const T* y)
                 HWY_ATTR { hn::StoreU(Op()(d, hn::LoadU(d, x), hn::LoadU(d, y)), d, to); });
}

template <class F, class Op>
HWY_ATTR void Small(void* dst, const void* a, const void* b, size_t elements) {
  using T = typename F::Stored;
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<T, decltype(d)> ds;
  ForVectors(static_cast<T*>(dst), static_cast<const T*>(a), static_cast<const T*>(b), elements, hn::Lanes(d),
             [&](T* to, const T* x, const T* y) HWY_ATTR {
               const auto left = ToFloat(d, hn::PromoteTo(du, hn::LoadU(ds, x)), F());
               const auto right = ToFloat(d, hn::PromoteTo(du, hn::LoadU(ds, y)), F());
               const auto stored = FromFloat(d, Op()(d, left, right), F());
               hn::StoreU(hn::DemoteTo(ds, hn::BitCast(di, stored)), ds, to);
             });
}

#define R2CCL_CHOOSE(LOOP, T)                                       \
  switch (reduction) {                                              \
    case Reduction::kSum:                                           \
      return LOOP<T, Sum>;                                          \
    case Reduction::kProd:                                          \
      return LOOP<T, Prod>;                                         \
    case Reduction::kMax:                                           \
      return LOOP<T, Max>;                                          \
    case Reduction::kMin:                                           \
      return LOOP<T, Min>;                                          \
  }                                                                 \
  return nullptr

template <class T>
ReduceFunction OfNative(Reduction reduction) {
  R2CCL_CHOOSE(Native, T);
}
template <class F>
ReduceFunction OfSmall(Reduction reduction) {
  R2CCL_CHOOSE(Small, F);
}

ReduceFunction Find(DataType type, Reduction reduction) {
  switch (type) {
    case DataType::kInt8:
      return OfNative<int8_t>(reduction);
    case DataType::kUint8:
      return OfNative<uint8_t>(reduction);
    case DataType::kInt32:
      return OfNative<int32_t>(reduction);
    case DataType::kUint32:
      return OfNative<uint32_t>(reduction);
    case DataType::kInt64:
      return OfNative<int64_t>(reduction);
    case DataType::kUint64:
      return OfNative<uint64_t>(reduction);
    case DataType::kFloat16:
      return OfSmall<Half>(reduction);
    case DataType::kFloat32:
      return OfNative<float>(reduction);
    case DataType::kFloat64:
      return OfNative<double>(reduction);
    case DataType::kBfloat16:
      return OfSmall<Bfloat>(reduction);
    case DataType::kFloat8e4m3:
      return OfSmall<E4m3>(reduction);
    case DataType::kFloat8e5m2:
      return OfSmall<E5m2>(reduction);
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace r2ccl::collective
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace r2ccl::collective {

HWY_EXPORT(Find);

ReduceFunction reduction_of(DataType type, Reduction reduction) {
  return HWY_DYNAMIC_DISPATCH(Find)(type, reduction);
}

double measured_reduction_speed() {
  static const double speed = [] {
    constexpr size_t kElements = 1 << 20;
    constexpr int kRounds = 4;
    const std::vector<float> a(kElements, 1), b(kElements, 2);
    std::vector<float> sum(kElements);
    const ReduceFunction add = reduction_of(DataType::kFloat32, Reduction::kSum);
    uint64_t best = UINT64_MAX;  // of a few: somebody else may have had the CPU
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t from = now_ns();
      add(sum.data(), a.data(), b.data(), kElements);
      best = std::min(best, now_ns() - from);
    }
    return double(kElements * sizeof(float)) * 1e9 / double(std::max<uint64_t>(best, 1));
  }();
  return speed;
}

}  // namespace r2ccl::collective
#endif
