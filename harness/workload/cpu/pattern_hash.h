// SPDX-License-Identifier: Apache-2.0
// Where the patterns' numbers come from: a non-linear mix of operation, rank and element.
#pragma once

#include <cstdint>

namespace r2bench {

/// What an operation's data depends on beside element and rank.
struct OperationKey {
  uint32_t offset;
  uint32_t factor;  ///< odd
};

/// A bijection of 64 bits without visible structure (the finaliser of SplitMix64).
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
inline OperationKey key_of(uint64_t operation) {
  const uint64_t x = mix(operation + 0x9e3779b97f4a7c15u);
  return {uint32_t(x), uint32_t(x >> 32) | 1};
}
/// A rank's own odd factor in this operation.
inline uint32_t factor_of(uint32_t rank, uint64_t operation) {
  return uint32_t(mix(mix(operation ^ 0xd1342543de82ef95u) + rank) >> 16) | 1;
}

/// What an element is for all ranks. The shifts make it non-linear: without them the elements of a shifted
/// buffer would lie a constant apart, and sums over the ranks would be equal for some shifts. GPU code, too.
constexpr uint32_t hash_of(uint32_t element, OperationKey key) {
  uint32_t x = element * 2654435761u + key.offset;
  x = (x ^ (x >> 16)) * key.factor;
  return x ^ (x >> 15);
}

}  // namespace r2bench
