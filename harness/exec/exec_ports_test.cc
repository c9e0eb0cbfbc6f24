// SPDX-License-Identifier: Apache-2.0
// What the ports of a shared fabric are like: link layer, how many, MTU.
#include "harness/exec/testing/exec_fixture.h"

namespace r2bench::test {
namespace {

TEST_F(Exec, link_layer_ports_and_mtu_are_those_that_were_asked_for) {
  FAIL_UNLESS_INSTALLED("ibv_devinfo", "ibverbs-utils");
  const Words wanted = {"--node",     "node0",   "--nics", "1",     "--link",
                        "infiniband", "--ports", "2",      "--mtu", "2048"};
  Command& info = exec(wanted, {"ibv_devinfo", "-v"});
  EXPECT_EQ(info.status(), 0) << info.output();
  std::string text = info.output();
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\t'; }),
             text.end());
  for (const char* line : {"phys_port_cnt:2", "\nport:1\n", "\nport:2\n", "link_layer:InfiniBand",
                           "active_mtu:2048(4)", "port_lid:1\n", "port_lid:2\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " is missing in\n" << info.output();
  EXPECT_EQ(text.find("Ethernet"), std::string::npos) << info.output();
}

TEST_F(Exec, programs_meet_on_the_second_port_of_infiniband) {
  FAIL_UNLESS_INSTALLED("ibv_rc_pingpong", "ibverbs-utils");
  Words options = {"--node", "node0", "--link", "infiniband", "--ports", "2", "--mtu", "2048"};
  const Words pingpong = {"ibv_rc_pingpong", "-c", "-d", "vhca0", "-i", "2", "-m", "2048"};
  Command& one = server(options, pingpong);
  options[1] = "node1";
  Command& other = client(options, pingpong);
  EXPECT_EQ(other.status(), 0) << other.output();
  EXPECT_EQ(one.status(), 0) << one.output();
  EXPECT_NE(other.output().find("usec/iter"), std::string::npos) << other.output();
}

TEST_F(Exec, other_ports_are_refused_with_what_there_is) {
  stay({"--node", "node0", "--ports", "2"});
  for (const Words& other : {Words{"--link", "infiniband"}, Words{"--ports", "1"}, Words{"--mtu", "1024"}}) {
    Command& command = exec({"--node", "node1", other[0], other[1]}, {"true"});
    EXPECT_EQ(command.status(), 64);
    EXPECT_NE(command.output().find(other[0] + " " + other[1] + " was asked for"), std::string::npos)
        << command.output();
    EXPECT_NE(command.output().find("0 ns, 2 ports each"), std::string::npos) << command.output();
  }
  EXPECT_EQ(
      exec({"--node", "node1", "--link", "ethernet", "--ports", "2", "--mtu", "4096"}, {"true"}).status(), 0);
}

}  // namespace
}  // namespace r2bench::test
