// SPDX-License-Identifier: Apache-2.0
#include "harness/workload/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace r2bench {

Memory::Memory(size_t bytes) : size_(std::max<size_t>(bytes, 4096)) {
  void* memory =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(),
                            "cannot allocate " + std::to_string(size_) + " bytes");
  data_ = static_cast<char*>(memory);
}

Memory::Memory(Memory&& other) noexcept { *this = std::move(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Memory::~Memory() {
  if (data_) munmap(data_, size_);
}

}  // namespace r2bench
