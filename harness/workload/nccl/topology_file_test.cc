// SPDX-License-Identifier: Apache-2.0
// The file that places virtual NICs beside a GPU.
#include "harness/workload/nccl/topology_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

namespace r2bench {
namespace {

const std::string kCpu =
    "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: X\n";

size_t count(const std::string& text, const std::string& expression) {
  const std::regex regex(expression);
  return size_t(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()));
}

TEST(TopologyFile, puts_gpu_and_nics_under_one_bridge) {
  const std::string text = topology_text({0, 0x1a, 0}, {"vhca0", "vhca1"}, kCpu);
  EXPECT_EQ(count(text, "busid=\"0000:1a:00.0\" class=\"0x030200\""), 1u);  // lower case, as NCCL compares it
  EXPECT_EQ(count(text, "<net name=\"vhca[01]\"/>"), 2u);
  EXPECT_EQ(count(text, "<pci "), 4u);
  EXPECT_EQ(count(text, "</pci>"), 3u);  // the GPU's is empty
  EXPECT_LT(text.find("0x060400"), text.find("0x030200"));
  EXPECT_NE(text.find("vendor=\"AuthenticAMD\" familyid=\"25\" modelid=\"17\""), std::string::npos);
}

TEST(TopologyFile, can_be_read_by_its_path) {
  std::ifstream file(write_topology_file({1, 2, 3}, {"vhca0"}));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("0001:02:03.0"), std::string::npos);
}

}  // namespace
}  // namespace r2bench
