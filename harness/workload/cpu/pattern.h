// What the ranks put into their buffers and what must come out: integers that are exact in every data type,
// sums over up to 1024 ranks included, so that each result has one right value. They come from a non-linear
// mix of operation, rank and element: a buffer that holds another operation's data, or data shifted by any
// number of elements, differs from the right one in all but one of 256 elements of int8, and in all but one
// of some 4000 of the wider types. Also the reduction itself. All loops are plain, so that the compiler makes
// vector code of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// Bytes of one element.
size_t element_size(DataType type);
/// NCCL's number of it.
int nccl_type(DataType type);

/// Operation `number` of a job with this seed, as the functions below take it: other seeds give other data.
constexpr uint64_t data_operation(uint64_t seed, uint64_t number) {
  return seed * 0x9fb21c651e98df25u + number;
}

/// Element `first + k` of what `rank` contributes to `operation` goes to data[k]. No contribution is 0.
void fill_input(DataType type, void* data, size_t first, size_t count, uint32_t rank, uint64_t operation);

/// Written over outputs before each operation: no value of a floating-point type, -1 of an integer. Only in
/// int8 it may be a result.
void poison(void* data, size_t bytes);

/// Whose inputs are added up: ranks first, first + step, …
struct Contributors {
  uint32_t count = 0;
  uint32_t first = 0;
  uint32_t step = 1;
};

/// How many of `count` elements differ from the sum over `ranks` of their inputs.
uint64_t count_wrong_sums(DataType type, const void* data, size_t first, size_t count, Contributors ranks,
                          uint64_t operation);

/// How many differ from the input of rank `sender`. `first` is the index of data[0] in the sender's buffer.
uint64_t count_wrong_values(DataType type, const void* data, size_t first, size_t count, uint32_t sender,
                            uint64_t operation);

/// Writes the sums over `ranks` of their inputs, `count` elements from `first` on.
void fill_sums(DataType type, void* data, size_t first, size_t count, std::span<const uint32_t> ranks,
               uint64_t operation);

/// How many bytes are not as poison() left them.
uint64_t count_touched(const void* data, size_t bytes);

/// to[k] = a[k] + b[k]. `to` may be `a` or `b`. Integers wrap.
void add(DataType type, void* to, const void* a, const void* b, size_t count);

}  // namespace r2bench
