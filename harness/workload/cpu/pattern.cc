#include "harness/workload/cpu/pattern.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace r2bench {
namespace {

constexpr int64_t kValues = 64;  // inputs are 1 … 64: sums stay exact in float32 up to 2^18 ranks

/// 1 … 64. The top bits of a multiplicative hash change with every element and with every shift of the data;
/// the iteration moves all of them, so that a stale buffer is wrong everywhere.
inline uint32_t value(uint32_t element, uint32_t rank_term, uint32_t iteration) {
  return 1 + ((((element * 2654435761u + rank_term) >> 26) + iteration) & (kValues - 1));
}
inline uint32_t term(uint32_t rank) { return rank * 0x9e3779b9u ^ 0x5bd1e995u; }

/// Integers are summed as unsigned, so that they wrap alike everywhere.
template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>,
                               std::make_unsigned_t<std::conditional_t<std::is_integral_v<T>, T, int>>, T>;

template <typename T>
struct Ops {
  static constexpr size_t kSize = sizeof(T);

  static void fill(void* data, size_t first, size_t count, uint32_t rank, uint64_t iteration) {
    T* out = static_cast<T*>(data);
    const uint32_t t = term(rank), i = uint32_t(iteration), base = uint32_t(first);
    for (size_t k = 0; k < count; ++k) out[k] = T(value(base + uint32_t(k), t, i));
  }

  static uint64_t wrong_sums(const void* data, size_t first, size_t count, Contributors ranks,
                             uint64_t iteration) {
    const T* in = static_cast<const T*>(data);
    const uint32_t i = uint32_t(iteration);
    uint64_t wrong = 0;
    constexpr size_t kBlock = 1024;
    uint32_t sums[kBlock];
    for (size_t done = 0; done < count; done += kBlock) {
      const size_t n = count - done < kBlock ? count - done : kBlock;
      std::memset(sums, 0, sizeof(sums));
      const uint32_t base = uint32_t(first + done);
      for (uint32_t member = 0; member < ranks.count; ++member) {
        const uint32_t t = term(ranks.first + member * ranks.step);
        for (size_t k = 0; k < n; ++k) sums[k] += value(base + uint32_t(k), t, i);
      }
      uint32_t bad = 0;
      for (size_t k = 0; k < n; ++k) bad += in[done + k] != T(sums[k]);
      wrong += bad;
    }
    return wrong;
  }

  static uint64_t wrong_values(const void* data, size_t first, size_t count, uint32_t sender,
                               uint64_t iteration) {
    const T* in = static_cast<const T*>(data);
    const uint32_t t = term(sender), i = uint32_t(iteration), base = uint32_t(first);
    uint64_t wrong = 0;
    for (size_t k = 0; k < count; ++k) wrong += in[k] != T(value(base + uint32_t(k), t, i));
    return wrong;
  }

  static uint64_t wrong_copies(const void* data, size_t first, size_t count, uint32_t sender,
                               uint64_t iteration, size_t per_message, uint64_t first_message) {
    const T* in = static_cast<const T*>(data);
    const uint32_t t = term(sender), i = uint32_t(iteration), base = uint32_t(first);
    uint64_t wrong = wrong_values(data, first, count, sender, iteration);
    // The markers were compared as data: put that right.
    for (size_t start = 0, m = 0; start < count; start += per_message, ++m) {
      wrong -= in[start] != T(value(base + uint32_t(start), t, i));
      T expected;
      mark(&expected, first_message + m);
      wrong += in[start] != expected;
    }
    return wrong;
  }

  static constexpr int64_t modulus() { return sizeof(T) == 1 ? 60 : 1 << 20; }
  static void mark(void* element, uint64_t number) {
    *static_cast<T*>(element) = T(kValues + 1 + int64_t(number % uint64_t(modulus())));
  }
  static int64_t read(const void* element) {
    const T found = *static_cast<const T*>(element);
    if (!(found >= T(kValues + 1)) || !(found < T(kValues + modulus()) + T(1))) return -1;
    const int64_t number = int64_t(found) - kValues - 1;
    return T(number + kValues + 1) == found ? number : -1;
  }

  static void add(void* to, const void* a, const void* b, size_t count) {
    T* out = static_cast<T*>(to);
    const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
    for (size_t k = 0; k < count; ++k) out[k] = T(Sum<T>(x[k]) + Sum<T>(y[k]));
  }
};

template <typename F>
auto dispatch(DataType type, F f) {
  switch (type) {
    case DataType::kInt8:
      return f(Ops<int8_t>{});
    case DataType::kInt32:
      return f(Ops<int32_t>{});
    case DataType::kInt64:
      return f(Ops<int64_t>{});
    case DataType::kFloat64:
      return f(Ops<double>{});
    case DataType::kFloat32:
      break;
  }
  return f(Ops<float>{});
}

}  // namespace

size_t element_size(DataType type) {
  return dispatch(type, [](auto ops) { return ops.kSize; });
}

void fill_input(DataType type, void* data, size_t first, size_t count, uint32_t rank, uint64_t iteration) {
  dispatch(type, [&](auto ops) { ops.fill(data, first, count, rank, iteration); });
}

void poison(void* data, size_t bytes) { std::memset(data, 0xff, bytes); }  // NaN, or -1

uint64_t count_touched(const void* data, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(data);
  return uint64_t(std::count_if(at, at + bytes, [](unsigned char byte) { return byte != 0xff; }));
}

uint64_t count_wrong_values(DataType type, const void* data, size_t first, size_t count, uint32_t sender,
                            uint64_t iteration) {
  return dispatch(type, [&](auto ops) { return ops.wrong_values(data, first, count, sender, iteration); });
}

uint64_t count_wrong_sums(DataType type, const void* data, size_t first, size_t count, Contributors ranks,
                          uint64_t iteration) {
  return dispatch(type, [&](auto ops) { return ops.wrong_sums(data, first, count, ranks, iteration); });
}

uint64_t count_wrong_copies(DataType type, const void* data, size_t first, size_t count, uint32_t sender,
                            uint64_t iteration, size_t elements_per_message, uint64_t first_message) {
  return dispatch(type, [&](auto ops) {
    return ops.wrong_copies(data, first, count, sender, iteration, elements_per_message, first_message);
  });
}

void mark_message(DataType type, void* element, uint64_t number) {
  dispatch(type, [&](auto ops) { ops.mark(element, number); });
}

int64_t read_marker(DataType type, const void* element) {
  return dispatch(type, [&](auto ops) { return ops.read(element); });
}

int64_t marker_modulus(DataType type) {
  return dispatch(type, [](auto ops) { return ops.modulus(); });
}

void add(DataType type, void* to, const void* a, const void* b, size_t count) {
  dispatch(type, [&](auto ops) { ops.add(to, a, b, count); });
}

}  // namespace r2bench
