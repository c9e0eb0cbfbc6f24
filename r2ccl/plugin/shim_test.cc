// SPDX-License-Identifier: Apache-2.0
// The translation between NCCL's calls and the core, for each version, over a core that the test controls.
#include <gtest/gtest.h>

#include <cstdarg>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "r2ccl/plugin/shim.h"
#include "r2ccl/plugin/testing/any_version.h"
#include "r2ccl/plugin/testing/fake_net.h"

extern "C" {
extern const r2ccl::nccl_abi::ncclNet_v8_t ncclNetPlugin_v8;
extern const r2ccl::nccl_abi::ncclNet_v9_t ncclNetPlugin_v9;
extern const r2ccl::nccl_abi::ncclNet_v10_t ncclNetPlugin_v10;
extern const r2ccl::nccl_abi::ncclNet_v11_t ncclNetPlugin_v11;
extern const r2ccl::nccl_abi::ncclNet_v12_t ncclNetPlugin_v12;
}

namespace r2ccl::plugin_test {
namespace {

struct Line {
  ncclDebugLogLevel level;
  std::string text;
};
std::vector<Line> g_log;

void logger(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format, ...) {
  char text[2048];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  g_log.push_back({level, text});
}

size_t lines_with(const std::string& part) {
  size_t n = 0;
  for (const Line& line : g_log) n += line.text.find(part) != std::string::npos;
  return n;
}

template <typename V>
const typename V::Net& plugin_object() {
  if constexpr (V::kNumber == 8) return ncclNetPlugin_v8;
  if constexpr (V::kNumber == 9) return ncclNetPlugin_v9;
  if constexpr (V::kNumber == 10) return ncclNetPlugin_v10;
  if constexpr (V::kNumber == 11) return ncclNetPlugin_v11;
  if constexpr (V::kNumber == 12) return ncclNetPlugin_v12;
}

template <typename V>
class Shim : public ::testing::Test {
 protected:
  void SetUp() override {
    g_acquire_error = nullptr;
    FakeNet::instance().reset();
    g_log.clear();
    ASSERT_EQ(plugin_.init(logger), ncclSuccess);
    ASSERT_EQ(plugin_.connect(0, handle_, &comm_), ncclSuccess);
    ASSERT_NE(comm_, nullptr);
  }
  void TearDown() override {
    FakeNet::instance().reset();
    EXPECT_EQ(plugin_.finalize(), ncclSuccess);
  }

  Plugin<V> plugin_{plugin_object<V>()};
  FakeNet& core_ = FakeNet::instance();
  char handle_[NCCL_NET_HANDLE_MAXSIZE] = {};
  void* comm_ = nullptr;
  char buffer_[64] = {};
};

using Versions = ::testing::Types<Version8, Version9, Version10, Version11, Version12>;
struct VersionName {
  template <typename V>
  static std::string GetName(int) {
    return "v" + std::to_string(V::kNumber);
  }
};
TYPED_TEST_SUITE(Shim, Versions, VersionName);

void* const kPreset = reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION);

TYPED_TEST(Shim, says_its_name_and_has_every_call_that_nccl_needs) {
  const auto& net = this->plugin_.net;
  EXPECT_STREQ(net.name, "R2CCL");
  EXPECT_TRUE(net.init && net.devices && net.getProperties && net.listen && net.connect && net.accept);
  EXPECT_TRUE(net.regMr && net.regMrDmaBuf && net.deregMr && net.isend && net.irecv && net.iflush &&
              net.test);
  EXPECT_TRUE(net.closeSend && net.closeRecv && net.closeListen);
  EXPECT_EQ(net.getDeviceMr, nullptr);
  EXPECT_EQ(net.irecvConsumed, nullptr);
  if constexpr (TypeParam::kNumber >= 9) {
    EXPECT_EQ(net.makeVDevice, nullptr);
  }
  if constexpr (TypeParam::kNumber >= 11) {
    ASSERT_NE(net.finalize, nullptr);
    ASSERT_NE(net.setNetAttr, nullptr);
    ncclNetAttr_t hints{};
    EXPECT_EQ(net.setNetAttr(this->plugin_.context, &hints), ncclSuccess);
  }
}

TYPED_TEST(Shim, sets_every_member_of_the_properties) {
  // NCCL hands in memory with anything in it: bytes that differ after two calls were not written.
  using Properties = typename TypeParam::Properties;
  alignas(Properties) unsigned char first[sizeof(Properties)], second[sizeof(Properties)];
  std::memset(first, 0xa5, sizeof first);
  std::memset(second, 0x5a, sizeof second);
  ASSERT_EQ(this->plugin_.net.getProperties(0, reinterpret_cast<Properties*>(first)), ncclSuccess);
  ASSERT_EQ(this->plugin_.net.getProperties(0, reinterpret_cast<Properties*>(second)), ncclSuccess);
  size_t untouched = 0;
  for (size_t i = 0; i < sizeof(Properties); ++i) untouched += first[i] != second[i];
  const size_t padding = TypeParam::kNumber == 11 ? 8 : 4;
  EXPECT_EQ(untouched, padding);
}

TYPED_TEST(Shim, describes_host_only_devices_that_nccl_accepts) {
  typename TypeParam::Properties a, b, again;
  ASSERT_EQ(this->plugin_.net.getProperties(0, &a), ncclSuccess);
  ASSERT_EQ(this->plugin_.net.getProperties(1, &b), ncclSuccess);
  ASSERT_EQ(this->plugin_.net.getProperties(0, &again), ncclSuccess);
  EXPECT_STREQ(a.name, "fake0");
  EXPECT_STREQ(a.pciPath, "/sys/devices/pci0000:00/0000:00:01.0");
  EXPECT_EQ(b.pciPath, nullptr);
  EXPECT_EQ(a.name, again.name) << "NCCL keeps the pointer";
  EXPECT_NE(a.guid, b.guid);
  EXPECT_EQ(a.ptrSupport, NCCL_PTR_HOST);
  EXPECT_EQ(a.regIsGlobal, 1);
  EXPECT_EQ(a.speed, 100000);
  EXPECT_EQ(a.port, 1);
  EXPECT_FLOAT_EQ(a.latency, 1.5f);
  EXPECT_EQ(a.maxComms, 4096);
  EXPECT_EQ(a.maxRecvs, 1);
  EXPECT_EQ(a.netDeviceType, NCCL_NET_DEVICE_HOST);
  if constexpr (TypeParam::kNumber >= 9) {
    EXPECT_EQ(a.forceFlush, 0);
    EXPECT_EQ(b.vProps.ndevs, 1);
    EXPECT_EQ(b.vProps.devs[0], 1);
    EXPECT_GT(a.maxP2pBytes, 0u);
    EXPECT_LT(a.maxP2pBytes, size_t{1} << 31);
    EXPECT_GT(a.maxCollBytes, 0u);
    EXPECT_LT(a.maxCollBytes, size_t{1} << 31);
  }
  if constexpr (TypeParam::kNumber >= 11) {
    EXPECT_EQ(a.maxMultiRequestSize, 1);
  }
  if constexpr (TypeParam::kNumber >= 12) {
    EXPECT_EQ(a.railId, NCCL_NET_ID_UNDEF);
    EXPECT_EQ(a.planeId, NCCL_NET_ID_UNDEF);
  }
}

TYPED_TEST(Shim, answers_call_again_with_null_whatever_was_there) {
  this->core_.ready = false;
  void* comm = kPreset;
  EXPECT_EQ(this->plugin_.connect(0, this->handle_, &comm), ncclSuccess);
  EXPECT_EQ(comm, nullptr);
  comm = kPreset;
  EXPECT_EQ(this->plugin_.accept(&this->core_.listener, &comm), ncclSuccess);
  EXPECT_EQ(comm, nullptr);
  void* request = kPreset;
  EXPECT_EQ(this->plugin_.isend(this->comm_, this->buffer_, 8, nullptr, &request), ncclSuccess);
  EXPECT_EQ(request, nullptr);
  request = kPreset;
  EXPECT_EQ(this->plugin_.irecv(this->comm_, this->buffer_, 8, nullptr, &request), ncclSuccess);
  EXPECT_EQ(request, nullptr);
}

TYPED_TEST(Shim, always_gives_a_request_even_where_nccl_needs_no_completion) {
  void* request = kPreset;
  ASSERT_EQ(this->plugin_.irecv(this->comm_, this->buffer_, 8, nullptr, &request), ncclSuccess);
  EXPECT_EQ(request, &this->core_.request);
}

TYPED_TEST(Shim, passes_sizes_through_and_refuses_what_does_not_fit) {
  void* request = nullptr;
  ASSERT_EQ(this->plugin_.isend(this->comm_, this->buffer_, 0, nullptr, &request), ncclSuccess);
  EXPECT_EQ(this->core_.last_bytes, 0u);
  const auto longest = static_cast<int64_t>(plugin::kLongestMessage);
  ASSERT_EQ(this->plugin_.irecv(this->comm_, this->buffer_, longest, nullptr, &request), ncclSuccess);
  EXPECT_EQ(this->core_.last_bytes, plugin::kLongestMessage);
  const int posted = this->core_.posted;
  EXPECT_EQ(this->plugin_.isend(this->comm_, this->buffer_, -1, nullptr, &request), ncclInvalidArgument);
  EXPECT_EQ(this->plugin_.irecv(this->comm_, this->buffer_, longest + 1, nullptr, &request),
            ncclInvalidArgument);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(this->core_.posted, posted);
}

TYPED_TEST(Shim, refuses_grouped_receives) {
  void* request = kPreset;
  EXPECT_EQ(this->plugin_.irecv(this->comm_, this->buffer_, 8, nullptr, &request, 2), ncclInvalidArgument);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(this->core_.posted, 0);
}

TYPED_TEST(Shim, says_what_memory_is_registered) {
  const auto& net = this->plugin_.net;
  void* registration = kPreset;
  EXPECT_EQ(net.regMr(this->comm_, this->buffer_, 64, NCCL_PTR_HOST, &registration), ncclSuccess);
  EXPECT_EQ(registration, &this->core_.registration);
  EXPECT_EQ(this->core_.last_memory.kind, BufferMemory::Kind::kHost);
  EXPECT_EQ(net.deregMr(this->comm_, registration), ncclSuccess);
  EXPECT_EQ(net.regMr(this->comm_, this->buffer_, 64, NCCL_PTR_CUDA, &registration), ncclSuccess);
  EXPECT_EQ(this->core_.last_memory.kind, BufferMemory::Kind::kGpu);
  EXPECT_EQ(net.regMrDmaBuf(this->comm_, this->buffer_, 64, NCCL_PTR_CUDA, 4096, 3, &registration),
            ncclSuccess);
  EXPECT_EQ(this->core_.last_memory.kind, BufferMemory::Kind::kDmaBuf);
  EXPECT_EQ(this->core_.last_memory.offset, 4096u);
  EXPECT_EQ(this->core_.last_memory.fd, 3);
  registration = kPreset;
  EXPECT_EQ(net.regMr(this->comm_, this->buffer_, 64, 8, &registration), ncclInvalidArgument);
  EXPECT_EQ(registration, nullptr);
}

TYPED_TEST(Shim, nothing_may_be_closed_and_given_back) {
  const auto& net = this->plugin_.net;
  EXPECT_EQ(net.closeSend(nullptr), ncclSuccess);
  EXPECT_EQ(net.closeRecv(nullptr), ncclSuccess);
  EXPECT_EQ(net.closeListen(nullptr), ncclSuccess);
  EXPECT_EQ(net.deregMr(this->comm_, nullptr), ncclSuccess);
  EXPECT_EQ(this->core_.calls_with_nothing, 0) << "the core never hears of it";
}

TYPED_TEST(Shim, a_refused_registration_leaves_null) {
  const Error error{ErrorCode::kInvalidArgument, "only host memory"};
  this->core_.fail_with(&error);
  const auto& net = this->plugin_.net;
  for (const bool by_descriptor : {false, true}) {
    void* registration = kPreset;
    const ncclResult_t result =
        by_descriptor ? net.regMrDmaBuf(this->comm_, this->buffer_, 64, NCCL_PTR_CUDA, 0, 3, &registration)
                      : net.regMr(this->comm_, this->buffer_, 64, NCCL_PTR_CUDA, &registration);
    EXPECT_EQ(result, ncclInvalidArgument);
    EXPECT_EQ(registration, nullptr);
  }
}

TYPED_TEST(Shim, offers_the_memory_that_the_core_offers) {
  const auto offered = [](bool gpu, bool dma_buf) {
    NicProperties nic;
    nic.gpu_memory = gpu;
    nic.dma_buf = dma_buf;
    typename TypeParam::Properties properties;
    plugin::fill_properties_v8(nic, &properties);
    return properties.ptrSupport;
  };
  EXPECT_EQ(offered(false, false), NCCL_PTR_HOST);
  EXPECT_EQ(offered(true, false), NCCL_PTR_HOST | NCCL_PTR_CUDA);
  EXPECT_EQ(offered(true, true), NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF);
}

TYPED_TEST(Shim, test_reports_done_and_bytes) {
  void* request = nullptr;
  ASSERT_EQ(this->plugin_.irecv(this->comm_, this->buffer_, 64, nullptr, &request), ncclSuccess);
  this->core_.request.outcome = {false, 0};
  int done = 5, bytes = 5;
  EXPECT_EQ(this->plugin_.net.test(request, &done, &bytes), ncclSuccess);
  EXPECT_EQ(done, 0);
  this->core_.request.outcome = {true, 40};
  EXPECT_EQ(this->plugin_.net.test(request, &done, &bytes), ncclSuccess);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(bytes, 40);
  EXPECT_EQ(this->plugin_.net.test(request, &done, nullptr), ncclSuccess);
}

TYPED_TEST(Shim, a_flush_leaves_nothing_to_test) {
  void* request = kPreset;
  void* data[1] = {this->buffer_};
  int bytes[1] = {8};
  void* registrations[1] = {&this->core_.registration};
  EXPECT_EQ(this->plugin_.net.iflush(this->comm_, 1, data, bytes, registrations, &request), ncclSuccess);
  EXPECT_EQ(request, nullptr);
}

TYPED_TEST(Shim, logs_an_error_once_with_its_advice) {
  const std::string what = "vhca0 and vhca1 failed, seen by v" + std::to_string(TypeParam::kNumber);
  const Error error{ErrorCode::kAllPathsDown, what};
  this->core_.fail_with(&error);
  int done = 1;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(this->plugin_.net.test(&this->core_.request, &done, nullptr), ncclRemoteError);
  }
  EXPECT_EQ(done, 0);
  EXPECT_EQ(lines_with(what), 1u);
  EXPECT_EQ(lines_with(std::string(advice(ErrorCode::kAllPathsDown))), 1u);
  EXPECT_EQ(g_log.back().level, NCCL_LOG_WARN);
}

TYPED_TEST(Shim, lets_no_exception_through) {
  void* out = kPreset;
  this->core_.before_call = [] { throw std::runtime_error("boom"); };
  EXPECT_EQ(this->plugin_.listen(0, this->handle_, &out), ncclInternalError);
  EXPECT_EQ(out, nullptr);
  EXPECT_GE(lines_with("boom"), 1u);
  this->core_.before_call = [] { throw 42; };
  EXPECT_EQ(this->plugin_.isend(this->comm_, this->buffer_, 8, nullptr, &out), ncclInternalError);
}

TYPED_TEST(Shim, refuses_a_device_that_is_not_there) {
  typename TypeParam::Properties properties;
  EXPECT_EQ(this->plugin_.net.getProperties(2, &properties), ncclInvalidArgument);
  EXPECT_EQ(this->plugin_.net.getProperties(-1, &properties), ncclInvalidArgument);
  void* comm = nullptr;
  EXPECT_EQ(this->plugin_.listen(2, this->handle_, &comm), ncclInvalidArgument);
  EXPECT_EQ(this->plugin_.connect(-1, this->handle_, &comm), ncclInvalidArgument);
}

TYPED_TEST(Shim, gives_each_communicator_its_own_context) {
  if constexpr (TypeParam::kNumber >= 11) {
    Plugin<TypeParam> other{this->plugin_.net};
    ASSERT_EQ(other.init(logger), ncclSuccess);
    EXPECT_NE(other.context, nullptr);
    EXPECT_NE(other.context, this->plugin_.context);
    EXPECT_EQ(other.finalize(), ncclSuccess);
    int count = 0;
    EXPECT_EQ(this->plugin_.net.devices(&count), ncclSuccess) << "one communicator's end is not the core's";
    EXPECT_EQ(count, 2);
  }
}

TYPED_TEST(Shim, init_fails_with_the_reason_when_the_core_cannot_start) {
  const std::string what = "no port is active, seen by v" + std::to_string(TypeParam::kNumber);
  const Error error{ErrorCode::kNoDevice, what};
  g_acquire_error = &error;
  Plugin<TypeParam> other{this->plugin_.net};
  EXPECT_EQ(other.init(logger), ncclSystemError);
  EXPECT_EQ(other.context, nullptr);
  EXPECT_EQ(lines_with(what), 1u);
}

TEST(ShimDeathTest, refuses_calls_before_init) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";  // a process of its own, which has not called init
  EXPECT_EXIT(
      {
        int count = 0;
        std::_Exit(ncclNetPlugin_v8.devices(&count));
      },
      ::testing::ExitedWithCode(ncclInvalidArgument), "before a successful init");
}

}  // namespace
}  // namespace r2ccl::plugin_test
