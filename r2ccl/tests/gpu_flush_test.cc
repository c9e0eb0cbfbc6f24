// Flushing a GPU's memory, over a CUDA driver that the test is.
#include "r2ccl/channel/gpu_flush.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

namespace r2ccl {
namespace {

/// What the driver says and what it was asked for. One per test, and per thread's current context.
struct Cuda {
  std::map<uint64_t, int> ordinal;  ///< of pointers; others are unknown to it
  std::map<uint64_t, void*> owner;  ///< context of pointers; others have none
  int ordering = 0, options = 1, refusal = 0;
  std::vector<void*> flushed_in;  ///< current context of each flush
  std::vector<void*> stack;
  int retained = 0, asked = 0;
};
Cuda* g_cuda = nullptr;

void* context(uintptr_t n) { return reinterpret_cast<void*>(n); }

const CudaDriver kDriver = {
    [](void* value, int attribute, uint64_t pointer) {
      if (!g_cuda->ordinal.contains(pointer)) return 1;  // CUDA_ERROR_INVALID_VALUE
      if (attribute == 9) *static_cast<int*>(value) = g_cuda->ordinal[pointer];
      if (attribute == 1) *static_cast<void**>(value) = g_cuda->owner[pointer];
      return 0;
    },
    [](int* value, int attribute, int) {
      ++g_cuda->asked;
      *value = attribute == 117 ? g_cuda->options : attribute == 118 ? g_cuda->ordering : -1;
      return 0;
    },
    [](void** out, int device) {
      ++g_cuda->retained;
      *out = context(0x100u + unsigned(device));
      return 0;
    },
    [](void** out) {
      *out = g_cuda->stack.empty() ? nullptr : g_cuda->stack.back();
      return 0;
    },
    [](void* pushed) {
      g_cuda->stack.push_back(pushed);
      return 0;
    },
    [](void** popped) {
      *popped = g_cuda->stack.back();
      g_cuda->stack.pop_back();
      return 0;
    },
    [](int target, int scope) {
      if (target != 0 || scope != 100) return 1;
      if (g_cuda->refusal != 0) return g_cuda->refusal;
      g_cuda->flushed_in.push_back(g_cuda->stack.empty() ? nullptr : g_cuda->stack.back());
      return 0;
    },
};

class Flush : public ::testing::Test {
 protected:
  Flush() { g_cuda = &cuda_; }
  ~Flush() override { g_cuda = nullptr; }
  static const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }
  void expect_error(const void* address, const std::string& part) {
    const auto flushed = flush_.flush(address);
    ASSERT_FALSE(flushed.ok());
    EXPECT_EQ(flushed.error().code, ErrorCode::kGpuMemory);
    EXPECT_NE(flushed.error().message.find(part), std::string::npos) << flushed.error().message;
    EXPECT_TRUE(cuda_.flushed_in.empty());
  }
  Cuda cuda_;
  GpuFlush flush_{kDriver};
};

TEST_F(Flush, happens_in_the_context_of_the_memory_and_leaves_the_threads_own) {
  cuda_.ordinal = {{0x10, 2}};
  cuda_.owner = {{0x10, context(7)}};
  cuda_.stack = {context(5)};
  ASSERT_TRUE(flush_.flush(at(0x10)).ok());
  EXPECT_EQ(cuda_.flushed_in, (std::vector<void*>{context(7)}));
  EXPECT_EQ(cuda_.stack, (std::vector<void*>{context(5)}));
}

TEST_F(Flush, a_thread_without_a_context_gets_one_for_as_long_as_it_takes) {
  cuda_.ordinal = {{0x10, 2}};  // mapped memory: it belongs to no context
  ASSERT_TRUE(flush_.flush(at(0x10)).ok());
  ASSERT_TRUE(flush_.flush(at(0x10)).ok());
  EXPECT_EQ(cuda_.flushed_in, (std::vector<void*>(2, context(0x102)))) << "the primary one of its GPU";
  EXPECT_EQ(cuda_.retained, 1);
  EXPECT_TRUE(cuda_.stack.empty());
}

TEST_F(Flush, each_gpu_is_flushed_on_its_own) {
  cuda_.ordinal = {{0x10, 0}, {0x20, 3}};
  ASSERT_TRUE(flush_.flush(at(0x10)).ok());
  ASSERT_TRUE(flush_.flush(at(0x20)).ok());
  EXPECT_EQ(cuda_.flushed_in, (std::vector<void*>{context(0x100), context(0x103)}));
}

TEST_F(Flush, a_gpu_that_sees_writes_in_order_is_left_alone) {
  cuda_.ordinal = {{0x10, 0}};
  cuda_.ordering = 100;
  cuda_.options = 0;
  ASSERT_TRUE(flush_.flush(at(0x10)).ok());
  EXPECT_TRUE(cuda_.flushed_in.empty());
  EXPECT_GE(cuda_.asked, 1);
  EXPECT_EQ(cuda_.retained, 0);
}

TEST_F(Flush, a_gpu_that_offers_none_to_the_host_is_an_error_that_says_so) {
  cuda_.ordinal = {{0x10, 0}};
  cuda_.options = 2;
  expect_error(at(0x10), "offers no flush to the host");
}

TEST_F(Flush, what_the_driver_refuses_is_told_with_its_number) {
  expect_error(at(0x30), "cuPointerGetAttribute of a received buffer returned CUDA error 1");
  cuda_.ordinal = {{0x10, 0}};
  cuda_.refusal = 801;
  expect_error(at(0x10), "cuFlushGPUDirectRDMAWrites returned CUDA error 801");
  EXPECT_TRUE(cuda_.stack.empty());
}

TEST(CudaDriver, that_is_not_there_is_an_error_that_says_what_it_is_for) {
  const auto driver = CudaDriver::load("libcuda-that-is-not-there.so.1");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kGpuMemory);
  EXPECT_NE(driver.error().message.find("has to be flushed"), std::string::npos);
  EXPECT_NE(driver.error().message.find("libcuda-that-is-not-there"), std::string::npos);
}

TEST(CudaDriver, of_an_old_release_is_named_as_such) {
  const auto driver = CudaDriver::load("libc.so.6");
  ASSERT_FALSE(driver.ok());
  EXPECT_NE(driver.error().message.find("older than 11.3"), std::string::npos) << driver.error().message;
}

}  // namespace
}  // namespace r2ccl
