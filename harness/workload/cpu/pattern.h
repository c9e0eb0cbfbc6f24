// What the ranks put into their buffers and what must come out: small integers, exact in every data type,
// that depend on rank, element and iteration, so that a missing, doubled, stale or misplaced contribution
// shows. Also the reduction itself. All loops are plain, so that the compiler makes vector code of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/scenario/scenario.h"

namespace r2bench {

/// Bytes of one element.
size_t element_size(DataType type);

/// Element `first + k` of what `rank` contributes to iteration `iteration` goes to data[k].
void fill_input(DataType type, void* data, size_t first, size_t count, uint32_t rank, uint64_t iteration);

/// What cannot be a result. Written over outputs before each operation.
void poison(void* data, size_t bytes);

/// Whose inputs are added up: ranks first, first + step, …
struct Contributors {
  uint32_t count = 0;
  uint32_t first = 0;
  uint32_t step = 1;
};

/// How many of `count` elements differ from the sum over `ranks` of their inputs.
uint64_t count_wrong_sums(DataType type, const void* data, size_t first, size_t count, Contributors ranks,
                          uint64_t iteration);

/// How many differ from the input of rank `sender`. `first` is the index of data[0] in the sender's buffer.
uint64_t count_wrong_values(DataType type, const void* data, size_t first, size_t count, uint32_t sender,
                            uint64_t iteration);

/// How many bytes are not as poison() left them.
uint64_t count_touched(const void* data, size_t bytes);

/// How many differ from the input of rank `sender`, but for the first element of each message (a sequence
/// marker, see mark_message): message m of `elements_per_message` carries number `first_message + m`.
/// `first` is the index of data[0] in the whole buffer, and the start of a message.
uint64_t count_wrong_copies(DataType type, const void* data, size_t first, size_t count, uint32_t sender,
                            uint64_t iteration, size_t elements_per_message, uint64_t first_message);

/// Writes message number `number` into the first element of a message.
void mark_message(DataType type, void* element, uint64_t number);

/// Reads it back. Numbers are kept modulo marker_modulus(type); -1 when the element is no marker.
int64_t read_marker(DataType type, const void* element);
int64_t marker_modulus(DataType type);

/// to[k] = a[k] + b[k]. `to` may be `a` or `b`. Integers wrap.
void add(DataType type, void* to, const void* a, const void* b, size_t count);

}  // namespace r2bench
