// SPDX-License-Identifier: Apache-2.0
// What the ranks put into their buffers and what must come out: integers that are exact in every data type,
// sums over up to 1024 ranks included, so that each result has one right value. They come from a non-linear
// mix of operation, rank and element: a sum that holds another operation's data, or data shifted by any
// number of elements, differs from the right one in all but one of 256 elements of int8, and in all but one
// of some 4000 of the wider types. Types and reductions with fewer results differ in fewer elements:
// README.md says in how many. Also the reduction itself. All loops are plain, so that the compiler makes
// vector code of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// What buffers hold, and what is done with them. Values depend on the number of ranks where few are exact in
/// the type.
struct Data {
  Data(DataType t, Reduction r = Reduction::kSum, uint32_t n = 0)  // NOLINT: implicit on purpose
      : type(t), reduction(r), ranks(n) {}
  DataType type;
  Reduction reduction;
  uint32_t ranks;
};

/// Bytes of one element.
constexpr size_t element_size(DataType type) { return static_cast<size_t>(size_of(type)); }
/// NCCL's number of it.
int nccl_type(DataType type);
/// … of what the network does: averages and premultiplied sums are sums to it.
int nccl_operation(Reduction reduction);

/// Operation `number` of a job with this seed, as the functions below take it: other seeds give other data.
constexpr uint64_t data_operation(uint64_t seed, uint64_t number) {
  return seed * 0x9fb21c651e98df25u + number;
}

/// Element `first + k` of what `rank` contributes to `operation` goes to out[k]. No contribution is 0.
void fill_input(const Data& data, void* out, size_t first, size_t count, uint32_t rank, uint64_t operation);

/// Written over outputs before each operation: no value of a floating-point type, -1 of an integer. Only in
/// int8 it may be a result.
void poison(void* data, size_t bytes);

/// Whose inputs are added up: ranks first, first + step, …
struct Contributors {
  uint32_t count = 0;
  uint32_t first = 0;
  uint32_t step = 1;
};

/// How many of `count` elements differ from the sum over `ranks` of their inputs (from their product … by the
/// reduction). Averages by a number of ranks that is no power of two are compared by relative error.
uint64_t count_wrong_sums(const Data& data, const void* in, size_t first, size_t count, Contributors ranks,
                          uint64_t operation);

/// How many differ from the input of rank `sender`. `first` is the index of in[0] in the sender's buffer.
uint64_t count_wrong_values(const Data& data, const void* in, size_t first, size_t count, uint32_t sender,
                            uint64_t operation);

/// Writes the sums over `ranks` of their inputs, `count` elements from `first` on.
void fill_sums(const Data& data, void* out, size_t first, size_t count, std::span<const uint32_t> ranks,
               uint64_t operation);

/// How many bytes are not as poison() left them.
uint64_t count_touched(const void* data, size_t bytes);

/// to[k] = a[k] op b[k], as a plugin's reduction does it. `to` may be `a` or `b`. Integers wrap.
void reduce(const Data& data, void* to, const void* a, const void* b, size_t count);

}  // namespace r2bench
