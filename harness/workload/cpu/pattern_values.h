// SPDX-License-Identifier: Apache-2.0
// What pattern.h does, for every type and reduction, one element at a time; pattern.cc has the fast loops for
// sums of the usual types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/workload/cpu/pattern.h"

namespace r2bench::values {

void fill_input(const Data& data, void* out, size_t first, size_t count, uint32_t rank, uint64_t operation);
uint64_t count_wrong_sums(const Data& data, const void* in, size_t first, size_t count, Contributors ranks,
                          uint64_t operation);
void fill_sums(const Data& data, void* out, size_t first, size_t count, std::span<const uint32_t> ranks,
               uint64_t operation);
void reduce(const Data& data, void* to, const void* a, const void* b, size_t count);

}  // namespace r2bench::values
