// SPDX-License-Identifier: Apache-2.0
// NCCL's IB transport is found in a libnccl (testing/testnet, as a stand-in for one), and in nothing else.
#include "harness/workload/cpu/nccl_ib.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace r2bench {
namespace {

std::string refusal(const std::string& library, int abi = 0) {
  try {
    load_net_plugin(library, abi);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "";
}

class NcclIb : public testing::Test {
 protected:
  ~NcclIb() override { unsetenv("TESTNET_NCCL_VERSION"); }
};

TEST_F(NcclIb, is_the_net_of_a_libnccl) {
  const auto net = load_net_plugin(STANDIN_NCCL, 0);
  EXPECT_EQ(net->abi(), 12);
  int devices = 0;
  EXPECT_EQ(net->init(nullptr), r2ccl::nccl_abi::ncclSuccess);
  EXPECT_EQ(net->devices(&devices), r2ccl::nccl_abi::ncclSuccess);
  EXPECT_GT(devices, 0);
}

TEST_F(NcclIb, has_the_interface_of_its_nccl) {
  for (const auto& [version, abi] :
       {std::pair{"22304", 8}, std::pair{"22403", 9}, std::pair{"22505", 9}, std::pair{"22605", 10},
        std::pair{"22707", 10}, std::pair{"22809", 11}, std::pair{"22902", 11}, std::pair{"23007", 12}}) {
    setenv("TESTNET_NCCL_VERSION", version, 1);
    EXPECT_EQ(load_net_plugin(STANDIN_NCCL, 0)->abi(), abi) << version;
  }
}

TEST_F(NcclIb, of_an_unknown_version_is_refused) {
  for (const char* version : {"22205", "23300", "0"}) {
    setenv("TESTNET_NCCL_VERSION", version, 1);
    const std::string why = refusal(STANDIN_NCCL);
    EXPECT_NE(why.find(version), std::string::npos) << why;
    EXPECT_NE(why.find("2.23 to 2.32"), std::string::npos) << why;
  }
}

TEST_F(NcclIb, needs_the_symbol_table) {
  const std::string why = refusal(STRIPPED_NCCL);
  EXPECT_NE(why.find("ncclNetIb"), std::string::npos) << why;
  EXPECT_NE(why.find("stripped"), std::string::npos) << why;
}

TEST_F(NcclIb, is_not_what_a_plugin_exports) {
  EXPECT_NE(refusal(STANDIN_NCCL, 12).find("does not export ncclNetPlugin_v12"), std::string::npos);
  EXPECT_NE(refusal("libm.so.6").find("exports none of ncclNetPlugin_v8"), std::string::npos);
  EXPECT_EQ(load_net_plugin(TESTNET_PLUGIN, 10)->abi(), 10);
}

}  // namespace
}  // namespace r2bench
