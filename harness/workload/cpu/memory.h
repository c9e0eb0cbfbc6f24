// SPDX-License-Identifier: Apache-2.0
// Page-aligned anonymous memory, as buffers that are registered with a NIC want it.
#pragma once

#include <cstddef>

namespace r2bench {

class Memory {
 public:
  Memory() = default;
  /// Zeroed, every page touched. Throws std::system_error. 0 bytes give one page.
  explicit Memory(size_t bytes);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace r2bench
