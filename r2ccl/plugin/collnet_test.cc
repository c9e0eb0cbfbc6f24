// SPDX-License-Identifier: Apache-2.0
// The translation between NCCL's CollNet calls and the host engine, for each version, over an engine that the
// test controls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "r2ccl/plugin/collnet_shim.h"
#include "r2ccl/plugin/collnet_windows.h"
#include "r2ccl/plugin/testing/any_version.h"
#include "r2ccl/plugin/testing/fake_engine.h"

extern "C" {
extern const r2ccl::nccl_abi::ncclCollNet_v8_t ncclCollNetPlugin_v8;
extern const r2ccl::nccl_abi::ncclCollNet_v9_t ncclCollNetPlugin_v9;
extern const r2ccl::nccl_abi::ncclCollNet_v10_t ncclCollNetPlugin_v10;
extern const r2ccl::nccl_abi::ncclCollNet_v11_t ncclCollNetPlugin_v11;
extern const r2ccl::nccl_abi::ncclCollNet_v12_t ncclCollNetPlugin_v12;
}

namespace r2ccl::plugin_test {
namespace {

using namespace nccl_abi;
using collective::FakeEngine;

std::string g_log;

void logger(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format, ...) {
  char text[2048];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  g_log += std::to_string(int(level)) + " " + text + "\n";
}

struct Coll8 {
  static constexpr int kNumber = 8;
  using Properties = ncclNetProperties_v8_t;
  using Part = ncclNetSGE_v8_t;
  static const auto& plugin() { return ncclCollNetPlugin_v8; }
};
struct Coll9 {
  static constexpr int kNumber = 9;
  using Properties = ncclNetProperties_v9_t;
  using Part = ncclNetSGE_v9_t;
  static const auto& plugin() { return ncclCollNetPlugin_v9; }
};
struct Coll10 {
  static constexpr int kNumber = 10;
  using Properties = ncclNetProperties_v10_t;
  using Part = ncclNetSGE_v10_t;
  static const auto& plugin() { return ncclCollNetPlugin_v10; }
};
struct Coll11 {
  static constexpr int kNumber = 11;
  using Properties = ncclNetProperties_v11_t;
  using Part = ncclNetSGE_v11_t;
  static const auto& plugin() { return ncclCollNetPlugin_v11; }
};
struct Coll12 {
  static constexpr int kNumber = 12;
  using Properties = ncclNetProperties_v12_t;
  using Part = ncclNetSGE_v12_t;
  static const auto& plugin() { return ncclCollNetPlugin_v12; }
};

template <typename V>
class CollNet : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3, kRank = 1;

  void SetUp() override {
    g_acquire_error = nullptr;
    FakeNet::instance().reset();
    engine_.reset();
    g_log.clear();
    setenv("R2CC_MODE", "3", 1);
  }
  void TearDown() override { unsetenv("R2CC_MODE"); }

  ncclResult_t init() {
    if constexpr (V::kNumber >= 11) {
      return plugin_.init(&context_, 0x77, logger);
    } else {
      return plugin_.init(logger);
    }
  }
  ncclResult_t listen(int device, void* handle, void** comm) {
    if constexpr (V::kNumber >= 11) {
      return plugin_.listen(context_, device, handle, comm);
    } else {
      return plugin_.listen(device, handle, comm);
    }
  }
  /// A group of three; listener_ and group_ are set.
  void join() {
    ASSERT_EQ(init(), ncclSuccess);
    ASSERT_EQ(listen(0, handles_[0], &listener_), ncclSuccess);
    void* handles[kRanks] = {handles_[0], handles_[1], handles_[2]};
    ASSERT_EQ(plugin_.connect(handles, kRanks, kRank, listener_, &group_), ncclSuccess);
    ASSERT_NE(group_, nullptr);
  }
  void finalize() {
    if constexpr (V::kNumber >= 11) {
      EXPECT_EQ(plugin_.finalize(context_), ncclSuccess);
    }
  }
  void leave() {
    EXPECT_EQ(plugin_.closeColl(group_), ncclSuccess);
    EXPECT_EQ(plugin_.closeListen(listener_), ncclSuccess);
    finalize();
    EXPECT_EQ(engine_.closed_groups, 1);
    EXPECT_EQ(engine_.closed_listeners, 1);
    EXPECT_EQ(engine_.registrations_at_close, 0);
  }
  ncclResult_t all_reduce(void* data, int64_t count, ncclDataType_t type, ncclRedOp_t operation,
                          void** request) {
    if constexpr (V::kNumber == 8) {
      return plugin_.iallreduce(group_, data, data, static_cast<int>(count), type, operation, nullptr,
                                nullptr, request);
    } else {
      return plugin_.iallreduce(group_, data, data, static_cast<size_t>(count), type, operation, nullptr,
                                nullptr, request);
    }
  }
  typename V::Part part(void* data, size_t bytes) {
    typename V::Part made{};
    made.address = data;
    made.size = static_cast<decltype(made.size)>(bytes);
    return made;
  }

  const decltype(V::plugin())& plugin_ = V::plugin();
  FakeEngine& engine_ = FakeEngine::instance();
  char handles_[kRanks][NCCL_NET_HANDLE_MAXSIZE] = {};
  void *context_ = nullptr, *listener_ = nullptr, *group_ = nullptr;
};

using Versions = ::testing::Types<Coll8, Coll9, Coll10, Coll11, Coll12>;
struct VersionName {
  template <typename V>
  static std::string GetName(int) {
    return "v" + std::to_string(V::kNumber);
  }
};
TYPED_TEST_SUITE(CollNet, Versions, VersionName);

void* const kGarbage = reinterpret_cast<void*>(uintptr_t{0xdeadbeef});

TYPED_TEST(CollNet, says_the_nets_name_and_has_every_call_that_nccl_needs) {
  const auto& plugin = this->plugin_;
  EXPECT_STREQ(plugin.name, plugin::kName);
  EXPECT_TRUE(plugin.init && plugin.devices && plugin.getProperties && plugin.listen && plugin.connect);
  EXPECT_TRUE(plugin.reduceSupport && plugin.regMr && plugin.regMrDmaBuf && plugin.deregMr);
  EXPECT_TRUE(plugin.iallreduce && plugin.iallgather && plugin.ireducescatter && plugin.iflush);
  EXPECT_TRUE(plugin.test && plugin.closeColl && plugin.closeListen);
  if constexpr (TypeParam::kNumber >= 9) {
    EXPECT_EQ(plugin.makeVDevice, nullptr);
  }
  if constexpr (TypeParam::kNumber >= 11) {
    EXPECT_NE(plugin.finalize, nullptr);
  }
}

TYPED_TEST(CollNet, refuses_silently_below_mode_3) {
  for (const char* mode : {"0", "1", "2"}) {
    setenv("R2CC_MODE", mode, 1);
    EXPECT_NE(this->init(), ncclSuccess) << mode;
    EXPECT_EQ(this->context_, nullptr);
  }
  EXPECT_EQ(g_log.find("1 "), std::string::npos) << g_log;  // no line of level VERSION or WARN
  EXPECT_EQ(g_log.find("2 "), std::string::npos) << g_log;
}

TYPED_TEST(CollNet, refuses_with_a_reason_where_gpu_memory_is_registered) {
  setenv("R2CC_GPU_DIRECT", "1", 1);
  EXPECT_NE(this->init(), ncclSuccess);
  unsetenv("R2CC_GPU_DIRECT");
  EXPECT_NE(g_log.find("R2CC_GPU_DIRECT"), std::string::npos) << g_log;
}

TYPED_TEST(CollNet, has_the_nets_devices_and_sets_every_member_of_their_properties) {
  ASSERT_EQ(this->init(), ncclSuccess);
  int count = -1;
  ASSERT_EQ(this->plugin_.devices(&count), ncclSuccess);
  EXPECT_EQ(count, FakeNet::instance().devices());
  using Properties = typename TypeParam::Properties;
  alignas(Properties) unsigned char first[sizeof(Properties)], second[sizeof(Properties)];
  std::memset(first, 0xa5, sizeof first);
  std::memset(second, 0x5a, sizeof second);
  ASSERT_EQ(this->plugin_.getProperties(1, reinterpret_cast<Properties*>(first)), ncclSuccess);
  ASSERT_EQ(this->plugin_.getProperties(1, reinterpret_cast<Properties*>(second)), ncclSuccess);
  size_t untouched = 0;
  for (size_t i = 0; i < sizeof(Properties); ++i) untouched += first[i] != second[i];
  EXPECT_EQ(untouched, TypeParam::kNumber == 11 ? 8u : 4u);  // padding
  const auto& properties = *reinterpret_cast<const Properties*>(first);
  EXPECT_EQ(FakeNet::instance().properties(1).name, properties.name);
  EXPECT_EQ(properties.ptrSupport, NCCL_PTR_HOST);
  if constexpr (TypeParam::kNumber >= 9) {
    EXPECT_EQ(properties.maxCollBytes, collective::kMaxOperationBytes);
  }
  EXPECT_NE(this->plugin_.getProperties(2, reinterpret_cast<Properties*>(first)), ncclSuccess);
  this->finalize();
}

TYPED_TEST(CollNet, passes_the_communicator_on) {
  this->join();
  EXPECT_EQ(this->engine_.listener.communicator, TypeParam::kNumber >= 11 ? 0x77u : 0u);
  EXPECT_EQ(this->engine_.group.rank, this->kRank);
  EXPECT_EQ(this->engine_.group.ranks, size_t(this->kRanks));
  this->leave();
}

TYPED_TEST(CollNet, a_group_that_does_not_come_about_is_null_and_no_error) {
  ASSERT_EQ(this->init(), ncclSuccess);
  ASSERT_EQ(this->listen(0, this->handles_[0], &this->listener_), ncclSuccess);
  void* handles[] = {this->handles_[0], this->handles_[1]};
  for (const bool error : {false, true}) {
    const Error late{ErrorCode::kPeerGone, "node " + std::to_string(TypeParam::kNumber) + " did not come"};
    this->engine_.joins = false;
    this->engine_.fail = error ? &late : nullptr;
    this->group_ = kGarbage;
    EXPECT_EQ(this->plugin_.connect(handles, 2, 0, this->listener_, &this->group_), ncclSuccess);
    EXPECT_EQ(this->group_, nullptr);
  }
  EXPECT_NE(g_log.find("did not come"), std::string::npos);
  EXPECT_EQ(this->plugin_.closeColl(nullptr), ncclSuccess);
  this->engine_.fail = nullptr;
  EXPECT_NE(this->plugin_.connect(handles, 2, 2, this->listener_, &this->group_), ncclSuccess);
  EXPECT_EQ(this->plugin_.closeListen(this->listener_), ncclSuccess);
  this->finalize();
}

TYPED_TEST(CollNet, answers_for_every_type_and_operation) {
  ASSERT_EQ(this->init(), ncclSuccess);
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (int operation = 0; operation < 4; ++operation) {
      int supported = -1;
      ASSERT_EQ(this->plugin_.reduceSupport(ncclDataType_t(type), ncclRedOp_t(operation), &supported),
                ncclSuccess);
      EXPECT_EQ(supported, type != ncclFloat8e5m2);
    }
  }
  int supported = -1;
  EXPECT_EQ(this->plugin_.reduceSupport(ncclDataType_t(12), ncclSum, &supported), ncclSuccess);
  EXPECT_EQ(supported, 0);
  EXPECT_EQ(this->plugin_.reduceSupport(ncclInt8, ncclRedOp_t(4), &supported), ncclSuccess);
  EXPECT_EQ(supported, 0);
  this->finalize();
}

TYPED_TEST(CollNet, passes_an_allreduce_on) {
  this->join();
  std::vector<double> data(10);
  const struct {
    ncclRedOp_t nccl;
    collective::Reduction ours;
  } kOperations[] = {{ncclSum, collective::Reduction::kSum},
                     {ncclProd, collective::Reduction::kProd},
                     {ncclMax, collective::Reduction::kMax},
                     {ncclMin, collective::Reduction::kMin}};
  for (const auto& operation : kOperations) {
    void* request = kGarbage;
    ASSERT_EQ(this->all_reduce(data.data(), 10, ncclFloat64, operation.nccl, &request), ncclSuccess);
    ASSERT_EQ(request, &this->engine_.operation);
    EXPECT_EQ(this->engine_.last_count, 10u);
    EXPECT_EQ(this->engine_.last_type, collective::DataType::kFloat64);
    EXPECT_EQ(this->engine_.last_reduction, operation.ours);
    EXPECT_EQ(this->engine_.last_sent, data.data());
    int done = -1, bytes = -1;
    this->engine_.operation.outcome = {};
    ASSERT_EQ(this->plugin_.test(request, &done, &bytes), ncclSuccess);
    EXPECT_EQ(done, 0);
    this->engine_.operation.outcome = {true, 80};
    ASSERT_EQ(this->plugin_.test(request, &done, &bytes), ncclSuccess);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(bytes, 80);
    ASSERT_EQ(this->plugin_.test(request, &done, nullptr), ncclSuccess);
  }
  this->engine_.ready = false;
  void* request = kGarbage;
  EXPECT_EQ(this->all_reduce(data.data(), 10, ncclFloat64, ncclSum, &request), ncclSuccess);
  EXPECT_EQ(request, nullptr);
  this->leave();
}

TYPED_TEST(CollNet, refuses_what_was_not_offered) {
  this->join();
  char byte = 0;
  void* request = kGarbage;
  EXPECT_EQ(this->all_reduce(&byte, 1, ncclDataType_t(12), ncclSum, &request), ncclInvalidArgument);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(this->all_reduce(&byte, 1, ncclInt8, ncclRedOp_t(4), &request), ncclInvalidArgument);
  EXPECT_EQ(this->all_reduce(&byte, (int64_t{1} << 30) + 1, ncclInt8, ncclSum, &request),
            ncclInvalidArgument);
  EXPECT_EQ(this->all_reduce(&byte, -1, ncclInt8, ncclSum, &request), ncclInvalidArgument);
  void* registration = kGarbage;
  EXPECT_EQ(this->plugin_.regMr(this->group_, &byte, 1, NCCL_PTR_CUDA, &registration), ncclInvalidArgument);
  EXPECT_EQ(registration, nullptr);
  EXPECT_EQ(this->plugin_.regMrDmaBuf(this->group_, &byte, 1, NCCL_PTR_CUDA, 0, 3, &registration),
            ncclInvalidArgument);
  EXPECT_EQ(this->engine_.begun, 0);
  this->leave();
}

TYPED_TEST(CollNet, reports_the_engines_errors) {
  this->join();
  char byte = 0;
  void* request = kGarbage;
  ASSERT_EQ(this->all_reduce(&byte, 1, ncclInt8, ncclSum, &request), ncclSuccess);
  const Error down{ErrorCode::kAllPathsDown, "no path to node 2"};
  this->engine_.fail = &down;
  int done = -1;
  EXPECT_EQ(this->plugin_.test(request, &done, nullptr), ncclRemoteError);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(this->all_reduce(&byte, 1, ncclInt8, ncclSum, &request), ncclRemoteError);
  EXPECT_EQ(request, nullptr);
  this->engine_.fail = nullptr;
  this->leave();
}

TYPED_TEST(CollNet, registers_host_memory_and_flushes_nothing) {
  this->join();
  char byte = 0;
  void *registration = kGarbage, *request = kGarbage;
  ASSERT_EQ(this->plugin_.regMr(this->group_, &byte, 1, NCCL_PTR_HOST, &registration), ncclSuccess);
  EXPECT_EQ(registration, &this->engine_.registration);
  EXPECT_EQ(this->plugin_.iflush(this->group_, &byte, 1, registration, &request), ncclSuccess);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(this->plugin_.deregMr(this->group_, registration), ncclSuccess);
  EXPECT_EQ(this->plugin_.deregMr(this->group_, nullptr), ncclSuccess);
  EXPECT_EQ(this->engine_.registrations, 0);
  this->leave();
}

TYPED_TEST(CollNet, gathers_a_whole_window_without_a_copy) {
  this->join();
  std::vector<char> sent(8, 'a'), received(24);
  auto part = this->part(received.data(), 24);
  void* request = kGarbage;
  ASSERT_EQ(this->plugin_.iallgather(this->group_, sent.data(), 1, &part, 8, 0, 24, nullptr, &request),
            ncclSuccess);
  EXPECT_EQ(request, &this->engine_.operation);
  EXPECT_EQ(this->engine_.last_sent, sent.data());
  EXPECT_EQ(this->engine_.last_received, received.data());
  EXPECT_EQ(this->engine_.registrations, 0);
  this->leave();
}

TYPED_TEST(CollNet, gathers_any_window) {
  // 100 bytes of each of three ranks, in windows of 70 that cross their borders, in two parts each. The fake
  // engine gives every rank what this one has, so each share is a prefix of ours or more.
  this->join();
  for (size_t offset = 0; offset < 300; offset += 70) {
    const size_t bytes = std::min<size_t>(70, 300 - offset), first = bytes / 3;
    const plugin::Window window{100, offset, bytes, 3};
    std::vector<char> sent(window.largest_share());
    std::iota(sent.begin(), sent.end(), char(offset));
    std::vector<char> one(first, '?'), two(bytes - first, '?');
    typename TypeParam::Part parts[] = {this->part(one.data(), first), this->part(two.data(), bytes - first)};
    void* request = kGarbage;
    ASSERT_EQ(
        this->plugin_.iallgather(this->group_, sent.data(), 2, parts, 100, offset, bytes, nullptr, &request),
        ncclSuccess);
    ASSERT_NE(request, nullptr);
    this->engine_.operation.outcome = {};
    int done = -1, size = -1;
    ASSERT_EQ(this->plugin_.test(request, &done, &size), ncclSuccess);
    EXPECT_EQ(done, 0);
    EXPECT_EQ(std::count(one.begin(), one.end(), '?'), std::ptrdiff_t(one.size()));
    this->engine_.operation.outcome = {true, 1};
    ASSERT_EQ(this->plugin_.test(request, &done, &size), ncclSuccess);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(size, int(bytes));
    std::vector<char> got = one;
    got.insert(got.end(), two.begin(), two.end());
    for (int rank = 0; rank < 3; ++rank) {
      const size_t own = window.share(this->kRank);
      for (size_t i = 0; i < std::min(window.share(rank), own); ++i)
        EXPECT_EQ(got[window.begin(rank) + i], sent[i]) << offset << " " << rank << " " << i;
    }
  }
  this->leave();
}

TYPED_TEST(CollNet, scatters_any_window) {
  // The fake engine gives this rank its own share back.
  this->join();
  for (size_t offset = 0; offset < 300; offset += 68) {
    const size_t bytes = std::min<size_t>(68, 300 - offset), first = bytes / 2;
    const plugin::Window window{100, offset, bytes, 3};
    std::vector<char> sent(bytes), received(100, '?');
    std::iota(sent.begin(), sent.end(), char(offset));
    typename TypeParam::Part parts[] = {this->part(sent.data(), first),
                                        this->part(sent.data() + first, bytes - first)};
    void* request = kGarbage;
    this->engine_.operation.outcome = {true, 1};
    ASSERT_EQ(this->plugin_.ireducescatter(this->group_, 2, parts, received.data(), 100, offset, bytes,
                                           ncclFloat32, ncclMax, nullptr, &request),
              ncclSuccess);
    EXPECT_EQ(this->engine_.last_type, collective::DataType::kFloat32);
    EXPECT_EQ(this->engine_.last_reduction, collective::Reduction::kMax);
    EXPECT_EQ(this->engine_.last_count, window.largest_share() / 4);
    int done = -1, size = -1;
    ASSERT_EQ(this->plugin_.test(request, &done, &size), ncclSuccess);
    EXPECT_EQ(done, 1);
    const size_t own = window.share(this->kRank);
    EXPECT_EQ(size, int(own));
    for (size_t i = 0; i < own; ++i) EXPECT_EQ(received[i], sent[window.begin(this->kRank) + i]);
    for (size_t i = own; i < 100; ++i) EXPECT_EQ(received[i], '?');
  }
  this->leave();
}

TYPED_TEST(CollNet, refuses_windows_outside_the_data) {
  this->join();
  char bytes[64] = {};
  void* request = kGarbage;
  auto part = this->part(bytes, 64);
  EXPECT_EQ(this->plugin_.iallgather(this->group_, bytes, 1, &part, 16, 0, 32, nullptr, &request),
            ncclInvalidArgument);  // the part is longer
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(this->plugin_.iallgather(this->group_, bytes, 1, &part, 16, 0, 64, nullptr, &request),
            ncclInvalidArgument);  // three ranks have 48
  EXPECT_EQ(this->plugin_.ireducescatter(this->group_, 1, &part, bytes, 64, 2, 64, ncclFloat32, ncclSum,
                                         nullptr, &request),
            ncclInvalidArgument);  // begins within an element
  EXPECT_EQ(this->engine_.begun, 0);
  this->leave();
}

TEST(Window, shares_are_what_it_holds_of_each_rank) {
  const plugin::Window window{100, 150, 120, 4};
  EXPECT_EQ(window.share(0), 0u);
  EXPECT_EQ(window.share(1), 50u);
  EXPECT_EQ(window.share(2), 70u);
  EXPECT_EQ(window.share(3), 0u);
  EXPECT_EQ(window.begin(1), 0u);
  EXPECT_EQ(window.begin(2), 50u);
  EXPECT_EQ(window.largest_share(), 70u);
  EXPECT_FALSE(window.whole());
}

}  // namespace
}  // namespace r2ccl::plugin_test
