// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/readiness.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace r2bench {
namespace {

namespace fs = std::filesystem;

class Machine : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "readiness-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(Machine, without_a_driver_has_no_gpu) { EXPECT_TRUE(gpus(root_.string()).empty()); }

TEST_F(Machine, lists_its_gpus_in_the_order_of_their_addresses) {
  write("proc/driver/nvidia/gpus/0000:b1:00.0/information", "Model: \t\t NVIDIA H100\nIRQ: 7\n");
  write("proc/driver/nvidia/gpus/0000:3b:00.0/information", "IRQ: 8\n");
  write("sys/bus/pci/devices/0000:b1:00.0/numa_node", "1\n");
  EXPECT_EQ(gpus(root_.string()),
            (std::vector<std::string>{"0000:3b:00.0 of unknown model, NUMA node unknown",
                                      "0000:b1:00.0 NVIDIA H100, NUMA node 1"}));
}

TEST_F(Machine, that_lacks_the_virtual_hca_says_how_to_get_it) {
  const Readiness none = vhca_readiness(root_.string());
  ASSERT_FALSE(none.ready());
  EXPECT_NE(none.missing[0].find("./r2bench build"), std::string::npos);
  write("vhca/libibverbs.so.1", "");
  EXPECT_TRUE(vhca_readiness(root_.string()).ready());
}

}  // namespace
}  // namespace r2bench
