// SPDX-License-Identifier: Apache-2.0
// Memory that a test and all its forked processes share; made before they are.
#pragma once

#include <sys/mman.h>

#include <new>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {

template <typename T>
class SharedPage {
 public:
  SharedPage() {
    void* memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Failure("mmap");
    value_ = ::new (memory) T{};
  }
  ~SharedPage() { ::munmap(value_, sizeof(T)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  T* operator->() const { return value_; }

 private:
  T* value_;
};

// Looks every 100 us; false after the limit, which is long because the whole machine may stand still for
// minutes.
template <typename Condition>
bool eventually(Condition&& condition, std::uint64_t limit_ms = 900'000) {
  const std::uint64_t end = now_ns() + limit_ms * 1'000'000;
  while (!condition()) {
    if (now_ns() > end) return false;
    const timespec pause{0, 100'000};
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

}  // namespace vhca::test
