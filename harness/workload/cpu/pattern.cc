// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/pattern.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "harness/workload/cpu/pattern_hash.h"
#include "harness/workload/cpu/pattern_values.h"
#include "r2ccl/plugin/nccl_collnet_abi.h"

namespace r2bench {
namespace {

/// A contribution, never 0: 1 … 2^14, so that the sum of 2^10 ranks is exact in float32; of int8, whose sums
/// wrap, 1 … 255, as many as there are.
template <typename T>
inline int32_t value(uint32_t hash, uint32_t rank_factor) {
  const uint32_t x = hash * rank_factor;
  if constexpr (sizeof(T) == 1) {
    const int32_t byte = int32_t(x >> 24);
    return byte + (byte == 0);
  } else {
    return 1 + int32_t(x >> 18);
  }
}

/// Calls `f`, compiled for AVX2 where the machine has it: SSE2 alone has no multiplication of 32-bit
/// integers.
#if defined(__x86_64__)
template <typename F>
[[gnu::target("avx2"), gnu::flatten]] auto with_avx2(F f) {
  return f();
}
template <typename F>
auto vectorised(F f) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  return has_avx2 ? with_avx2(f) : f();
}
#else
template <typename F>
auto vectorised(F f) {
  return f();
}
#endif

/// Integers are summed as unsigned, so that they wrap alike everywhere.
template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>,
                               std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>, T>;

template <typename T>
struct Ops {
  static void fill(void* data, size_t first, size_t count, uint32_t rank, uint64_t operation) {
    T* out = static_cast<T*>(data);
    const OperationKey key = key_of(operation);
    const uint32_t factor = factor_of(rank, operation), base = uint32_t(first);
    vectorised([=] {
      for (size_t k = 0; k < count; ++k) out[k] = T(value<T>(hash_of(base + uint32_t(k), key), factor));
    });
  }

  static uint64_t wrong_sums(const void* data, size_t first, size_t count, Contributors ranks,
                             uint64_t operation) {
    const T* in = static_cast<const T*>(data);
    const OperationKey key = key_of(operation);
    return vectorised([=] {
      uint64_t wrong = 0;
      constexpr size_t kBlock = 1024;
      uint32_t hashes[kBlock];
      int32_t sums[kBlock];
      for (size_t done = 0; done < count; done += kBlock) {
        const size_t n = count - done < kBlock ? count - done : kBlock;
        const uint32_t base = uint32_t(first + done);
        for (size_t k = 0; k < n; ++k) {
          hashes[k] = hash_of(base + uint32_t(k), key);
          sums[k] = 0;
        }
        for (uint32_t member = 0; member < ranks.count; ++member) {
          const uint32_t factor = factor_of(ranks.first + member * ranks.step, operation);
          for (size_t k = 0; k < n; ++k) sums[k] += value<T>(hashes[k], factor);
        }
        uint32_t bad = 0;
        for (size_t k = 0; k < n; ++k) bad += in[done + k] != T(sums[k]);
        wrong += bad;
      }
      return wrong;
    });
  }

  static void fill_sums(void* data, size_t first, size_t count, std::span<const uint32_t> ranks,
                        uint64_t operation) {
    T* out = static_cast<T*>(data);
    const OperationKey key = key_of(operation);
    std::fill_n(out, count, T(0));
    for (const uint32_t rank : ranks) {
      const uint32_t factor = factor_of(rank, operation);
      for (size_t k = 0; k < count; ++k)
        out[k] = T(Sum<T>(out[k]) + Sum<T>(value<T>(hash_of(uint32_t(first + k), key), factor)));
    }
  }

  static void add(void* to, const void* a, const void* b, size_t count) {
    T* out = static_cast<T*>(to);
    const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
    for (size_t k = 0; k < count; ++k) out[k] = T(Sum<T>(x[k]) + Sum<T>(y[k]));
  }
};

/// Calls `f` with the type's fast loops, or `slow` where it has none: they are for sums of these types.
template <typename F, typename Slow>
auto dispatch(const Data& data, F f, Slow slow) {
  if (data.reduction != Reduction::kSum) return slow();
  switch (data.type) {
    case DataType::kInt8:
      return f(Ops<int8_t>{});
    case DataType::kInt32:
      return f(Ops<int32_t>{});
    case DataType::kInt64:
      return f(Ops<int64_t>{});
    case DataType::kUint8:
      return f(Ops<uint8_t>{});
    case DataType::kUint32:
      return f(Ops<uint32_t>{});
    case DataType::kUint64:
      return f(Ops<uint64_t>{});
    case DataType::kFloat64:
      return f(Ops<double>{});
    case DataType::kFloat32:
      return f(Ops<float>{});
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      break;
  }
  return slow();
}

}  // namespace

int nccl_type(DataType type) {
  using namespace r2ccl::nccl_abi;  // NOLINT
  switch (type) {
    case DataType::kInt8:
      return ncclInt8;
    case DataType::kUint8:
      return ncclUint8;
    case DataType::kInt32:
      return ncclInt32;
    case DataType::kUint32:
      return ncclUint32;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kUint64:
      return ncclUint64;
    case DataType::kFloat16:
      return ncclFloat16;
    case DataType::kFloat64:
      return ncclFloat64;
    case DataType::kBfloat16:
      return ncclBfloat16;
    case DataType::kFloat8e4m3:
      return ncclFloat8e4m3;
    case DataType::kFloat8e5m2:
      return ncclFloat8e5m2;
    case DataType::kFloat32:
      break;
  }
  return ncclFloat32;
}

int nccl_operation(Reduction reduction) {
  using namespace r2ccl::nccl_abi;  // NOLINT
  switch (reduction) {
    case Reduction::kProd:
      return ncclProd;
    case Reduction::kMin:
      return ncclMin;
    case Reduction::kMax:
      return ncclMax;
    case Reduction::kSum:
    case Reduction::kAvg:
    case Reduction::kPremulSum:
      break;
  }
  return ncclSum;
}

void fill_input(const Data& data, void* out, size_t first, size_t count, uint32_t rank, uint64_t operation) {
  dispatch(
      data, [&](auto ops) { ops.fill(out, first, count, rank, operation); },
      [&] { values::fill_input(data, out, first, count, rank, operation); });
}

void poison(void* data, size_t bytes) { std::memset(data, 0xff, bytes); }  // NaN, or -1

uint64_t count_touched(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  return uint64_t(std::count_if(at, at + bytes, [](unsigned char byte) { return byte != 0xff; }));
}

uint64_t count_wrong_values(const Data& data, const void* in, size_t first, size_t count, uint32_t sender,
                            uint64_t operation) {
  return count_wrong_sums(data, in, first, count, {1, sender, 1}, operation);
}

uint64_t count_wrong_sums(const Data& data, const void* in, size_t first, size_t count, Contributors ranks,
                          uint64_t operation) {
  return dispatch(
      data, [&](auto ops) { return ops.wrong_sums(in, first, count, ranks, operation); },
      [&] { return values::count_wrong_sums(data, in, first, count, ranks, operation); });
}

void fill_sums(const Data& data, void* out, size_t first, size_t count, std::span<const uint32_t> ranks,
               uint64_t operation) {
  dispatch(
      data, [&](auto ops) { ops.fill_sums(out, first, count, ranks, operation); },
      [&] { values::fill_sums(data, out, first, count, ranks, operation); });
}

void reduce(const Data& data, void* to, const void* a, const void* b, size_t count) {
  dispatch(
      data, [&](auto ops) { ops.add(to, a, b, count); }, [&] { values::reduce(data, to, a, b, count); });
}

}  // namespace r2bench
