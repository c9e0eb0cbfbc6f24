// SPDX-License-Identifier: Apache-2.0
// What the tuner's versions make of NCCL's table of costs.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <string>

#include "r2ccl/plugin/testing/fake_net.h"
#include "r2ccl/plugin/tuner_shim.h"

extern "C" {
extern const r2ccl::nccl_abi::ncclTuner_v2_t ncclTunerPlugin_v2;
extern const r2ccl::nccl_abi::ncclTuner_v3_t ncclTunerPlugin_v3;
extern const r2ccl::nccl_abi::ncclTuner_v4_t ncclTunerPlugin_v4;
extern const r2ccl::nccl_abi::ncclTuner_v5_t ncclTunerPlugin_v5;
extern const r2ccl::nccl_abi::ncclTuner_v6_t ncclTunerPlugin_v6;
}

namespace r2ccl::plugin_test {
namespace {

using namespace nccl_abi;
using collective::Choice;

using Table = std::array<std::array<float, NCCL_NUM_PROTOCOLS>, NCCL_NUM_ALGORITHMS>;
constexpr float kNo = NCCL_ALGO_PROTO_IGNORE;

/// Ring and tree in all protocols, CollNet and NVLS in one.
Table usual() {
  Table table;
  for (auto& row : table) row.fill(kNo);
  table[NCCL_ALGO_RING] = {30, 40, 50};
  table[NCCL_ALGO_TREE] = {31, 41, 51};
  table[NCCL_ALGO_COLLNET_DIRECT][NCCL_PROTO_SIMPLE] = 21;
  table[NCCL_ALGO_COLLNET_CHAIN][NCCL_PROTO_SIMPLE] = 20;
  table[NCCL_ALGO_NVLS][NCCL_PROTO_SIMPLE] = 10;
  return table;
}

/// The algorithm that NCCL takes: up to 2.30 the least cost that is not negative, later (src/tuning/tuning.cc) the least
/// of those that it had offered.
int taken(const Table& offered, const Table& answered, bool newer) {
  float least = std::numeric_limits<float>::max();
  int best = NCCL_ALGO_UNDEF;
  for (int a = 0; a < NCCL_NUM_ALGORITHMS; ++a)
    for (int p = 0; p < NCCL_NUM_PROTOCOLS; ++p) {
      if (newer ? offered[a][p] == kNo : answered[a][p] < 0) continue;
      if (answered[a][p] >= least) continue;
      least = answered[a][p];
      best = a;
    }
  return best;
}

Table applied(Choice choice, Table table) {
  plugin::apply(choice, table[0].data(), NCCL_NUM_ALGORITHMS, NCCL_NUM_PROTOCOLS);
  return table;
}

TEST(TunerTable, says_what_it_offers) {
  Table table = usual();
  auto offered = plugin::offered_in(table[0].data(), NCCL_NUM_ALGORITHMS, NCCL_NUM_PROTOCOLS);
  EXPECT_TRUE(offered.collnet && offered.others);
  for (int a : {NCCL_ALGO_COLLNET_DIRECT, NCCL_ALGO_COLLNET_CHAIN, NCCL_ALGO_NVLS}) table[a].fill(kNo);
  offered = plugin::offered_in(table[0].data(), NCCL_NUM_ALGORITHMS, NCCL_NUM_PROTOCOLS);
  EXPECT_TRUE(!offered.collnet && offered.others);
}

TEST(TunerTable, is_changed_as_chosen) {
  EXPECT_EQ(applied(Choice::kAsIs, usual()), usual());
  const Table without = applied(Choice::kWithoutCollNet, usual());
  for (int a : {NCCL_ALGO_TREE, NCCL_ALGO_RING}) EXPECT_EQ(without[a], usual()[a]);
  Table with = usual();
  with[NCCL_ALGO_COLLNET_CHAIN][NCCL_PROTO_SIMPLE] = 0;  // the cheaper one of CollNet's; NVLS is another's
  EXPECT_EQ(applied(Choice::kCollNet, usual()), with);
  Table none = usual();
  for (int a : {NCCL_ALGO_COLLNET_DIRECT, NCCL_ALGO_COLLNET_CHAIN, NCCL_ALGO_NVLS}) none[a].fill(kNo);
  EXPECT_EQ(applied(Choice::kCollNet, none), none);
  EXPECT_EQ(applied(Choice::kWithoutCollNet, none), none);
}

// NCCL 2.31 compares costs without a look at their sign: an entry of -1 is the one that it takes.
TEST(TunerTable, leads_every_nccl_to_the_choice) {
  for (const bool newer : {false, true}) {
    EXPECT_EQ(taken(usual(), usual(), newer), NCCL_ALGO_NVLS);
    EXPECT_EQ(taken(usual(), applied(Choice::kWithoutCollNet, usual()), newer), NCCL_ALGO_RING) << newer;
    EXPECT_EQ(taken(usual(), applied(Choice::kCollNet, usual()), newer), NCCL_ALGO_COLLNET_CHAIN) << newer;
  }
}

template <typename Tuner>
class Tuners : public ::testing::Test {
 protected:
  static constexpr int number();
  static const Tuner& plugin();

  void SetUp() override {
    g_acquire_error = nullptr;
    FakeNet::instance().reset();
    ASSERT_EQ(plugin::init(nullptr), ncclSuccess);
    setenv("R2CC_NODE_SCOPE", ("tuner test " + std::to_string(number())).c_str(), 1);
  }
  void TearDown() override {
    unsetenv("R2CC_MODE");
    unsetenv("R2CC_NODE_SCOPE");
  }
  ncclResult_t init(void** context, size_t ranks, size_t nodes) {
    if constexpr (number() >= 5) {
      ncclNvlDomainInfo_v5_t domains{};
      return plugin().init(context, 0x1234567, ranks, nodes, nullptr, &domains, nullptr);
    } else {
      return plugin().init(ranks, nodes, nullptr, context);
    }
  }
  /// What is left of `table`; in version 2, which has none, what the answer would leave.
  Table ask(void* context, ncclFunc_t function, Table table) {
    auto** const costs = reinterpret_cast<float**>(&table);
    int channels = 0, algorithm = NCCL_ALGO_UNDEF, protocol = NCCL_PROTO_UNDEF;
    ncclResult_t result = ncclSuccess;
    if constexpr (number() == 2) {
      result = plugin().getCollInfo(context, function, 1 << 26, 1, 0, 1, &algorithm, &protocol, &channels);
      if (algorithm == NCCL_ALGO_RING) table = applied(Choice::kWithoutCollNet, table);
      if (algorithm == NCCL_ALGO_COLLNET_CHAIN) table = applied(Choice::kCollNet, table);
    } else if constexpr (number() == 3) {
      result = plugin().getCollInfo(context, function, 1 << 26, 1, costs, NCCL_NUM_ALGORITHMS,
                                    NCCL_NUM_PROTOCOLS, &channels);
    } else {
      result = plugin().getCollInfo(context, function, 1 << 26, 1, costs, NCCL_NUM_ALGORITHMS,
                                    NCCL_NUM_PROTOCOLS, 0, &channels);
    }
    EXPECT_EQ(result, ncclSuccess);
    EXPECT_EQ(channels, 0);
    return table;
  }
  void destroy(void* context) {
    if constexpr (number() >= 5) {
      EXPECT_EQ(plugin().finalize(context), ncclSuccess);
    } else {
      EXPECT_EQ(plugin().destroy(context), ncclSuccess);
    }
  }
};

template <>
constexpr int Tuners<ncclTuner_v2_t>::number() {
  return 2;
}
template <>
const ncclTuner_v2_t& Tuners<ncclTuner_v2_t>::plugin() {
  return ncclTunerPlugin_v2;
}
// Versions 3 and 4 … differ in their calls, so each has a type of its own.
template <>
constexpr int Tuners<ncclTuner_v3_t>::number() {
  return 3;
}
template <>
const ncclTuner_v3_t& Tuners<ncclTuner_v3_t>::plugin() {
  return ncclTunerPlugin_v3;
}
template <>
constexpr int Tuners<ncclTuner_v4_t>::number() {
  return 4;
}
template <>
const ncclTuner_v4_t& Tuners<ncclTuner_v4_t>::plugin() {
  return ncclTunerPlugin_v4;
}
template <>
constexpr int Tuners<ncclTuner_v5_t>::number() {
  return 5;
}
template <>
const ncclTuner_v5_t& Tuners<ncclTuner_v5_t>::plugin() {
  return ncclTunerPlugin_v5;
}
template <>
constexpr int Tuners<ncclTuner_v6_t>::number() {
  return 6;
}
template <>
const ncclTuner_v6_t& Tuners<ncclTuner_v6_t>::plugin() {
  return ncclTunerPlugin_v6;
}

using Versions =
    ::testing::Types<ncclTuner_v2_t, ncclTuner_v3_t, ncclTuner_v4_t, ncclTuner_v5_t, ncclTuner_v6_t>;
TYPED_TEST_SUITE(Tuners, Versions);

TYPED_TEST(Tuners, leave_the_table_alone_below_mode_3) {
  for (const char* mode : {"0", "1", "2"}) {
    setenv("R2CC_MODE", mode, 1);
    void* context = nullptr;
    ASSERT_EQ(this->init(&context, 4, 4), ncclSuccess);
    EXPECT_EQ(this->ask(context, ncclFuncAllReduce, usual()), usual());
    EXPECT_EQ(this->ask(context, ncclFuncAllGather, usual()), usual());
    this->destroy(context);
  }
}

TYPED_TEST(Tuners, take_collnet_out_while_nothing_is_degraded) {
  setenv("R2CC_MODE", "3", 1);
  void* context = nullptr;
  ASSERT_EQ(this->init(&context, 4, 4), ncclSuccess);
  EXPECT_EQ(this->ask(context, ncclFuncAllReduce, usual()), applied(Choice::kWithoutCollNet, usual()));
  EXPECT_EQ(this->ask(context, ncclFuncAllGather, usual()), applied(Choice::kWithoutCollNet, usual()));
  if constexpr (!std::is_same_v<TypeParam, ncclTuner_v2_t>) {
    Table only;  // NCCL_ALGO=allreduce:collnetchain
    for (auto& row : only) row.fill(kNo);
    only[NCCL_ALGO_COLLNET_CHAIN][NCCL_PROTO_SIMPLE] = 5;
    EXPECT_EQ(this->ask(context, ncclFuncAllReduce, only), only);
  }
  this->destroy(context);
}

TYPED_TEST(Tuners, bear_a_context_that_never_was) {
  EXPECT_EQ(this->ask(nullptr, ncclFuncAllReduce, usual()), usual());
  this->destroy(nullptr);
}

TYPED_TEST(Tuners, say_the_plugins_name) { EXPECT_STREQ(this->plugin().name, "R2CCL"); }

}  // namespace
}  // namespace r2ccl::plugin_test
