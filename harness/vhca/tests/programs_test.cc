// SPDX-License-Identifier: Apache-2.0
// Debian's own programs, each with what it should print. Their rates and latencies are in
// programs_rate_test.cc.
#include "harness/vhca/testing/programs_fixture.h"

namespace vhca::test {
namespace {

constexpr const char* kEthernet = "--link ethernet";
constexpr const char* kInfiniBand = "--link infiniband";

void expect_words(const std::string& output, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(output.find(word), std::string::npos) << word << " is missing in\n" << output;
}

TEST_F(Programs, ibv_devices_lists_the_nodes_devices) {
  const std::string output = run_one("--nodes 1 --nics 3", "ibv_devices");
  expect_words(output, {"vhca0", "vhca1", "vhca2", "02c2ccfffe000002"});
  EXPECT_EQ(output.find("vhca3"), std::string::npos) << output;
}

TEST_F(Programs, ibv_devinfo_shows_an_active_ethernet_port_with_a_routable_gid) {
  expect_words(run_one("--nodes 1 --nics 2 --mtu 1024", "ibv_devinfo -v -d vhca1"),
               {"PORT_ACTIVE", "link_layer:\t\tEthernet", "::ffff:10.1.0.1, RoCE v2",
                "fe80:", "atomic_cap:\t\t\tATOMIC_HCA (1)", "max_srq:\t\t\t512", "active_mtu:\t\t1024 (3)",
                "max_srq_wr:"});
}

TEST_F(Programs, ibv_devinfo_shows_infiniband_ports_with_lids) {
  const std::string output =
      run_one("--nodes 1 --nics 2 --ports 2 --link infiniband", "ibv_devinfo -v -d vhca1");
  expect_words(output, {"phys_port_cnt:\t\t\t2", "link_layer:\t\tInfiniBand", "port_lid:\t\t3",
                        "port_lid:\t\t4", "sm_lid:\t\t\t1"});
  EXPECT_EQ(output.find("RoCE"), std::string::npos) << output;
}

class Pingpong : public Programs {
 protected:
  // -c: the program compares the data it received.
  void run(const std::string& program, const std::string& options = "",
           const std::string& fabric = kEthernet) {
    const Pair pair = run_pair(
        fabric, program + " -c " + (fabric.find("infiniband") == std::string::npos ? "-g 1 " : "") + options);
    for (const std::string& output : {pair.server, pair.client}) {
      expect_words(output, {"usec/iter"});
      EXPECT_EQ(output.find("invalid data"), std::string::npos) << program << options << '\n' << output;
    }
  }
  void run_all_ways(const std::string& program) {
    run(program);
    run(program, "-e");  // sleeps on a completion channel
    run(program, "-n 300", "--rate 10Gbit/s --latency 2us");
    run(program, "", kInfiniBand);
    run(program, "-i 2", "--ports 2");
  }
};

TEST_F(Pingpong, ibv_rc_pingpong) {
  run_all_ways("ibv_rc_pingpong");
  run("ibv_rc_pingpong", "-s 1000000 -n 50");
  run("ibv_rc_pingpong", "-r 17 -n 2000");
  run("ibv_rc_pingpong", "-N");  // ibv_wr_*
  run("ibv_rc_pingpong", "-m 1024", "--mtu 1024");
}
TEST_F(Pingpong, ibv_srq_pingpong) {
  run_all_ways("ibv_srq_pingpong");
  run("ibv_srq_pingpong", "-q 32 -n 2000");
}
TEST_F(Pingpong, ibv_uc_pingpong) { run_all_ways("ibv_uc_pingpong"); }
TEST_F(Pingpong, ibv_ud_pingpong) { run_all_ways("ibv_ud_pingpong"); }

TEST_F(Pingpong, what_the_device_cannot_do_is_said) {
  const Output output = output_of(vhca_exec() + " --nodes 1 -- ibv_rc_pingpong -t -g 1 -d vhca0");
  EXPECT_NE(output.code, 0);
  expect_words(output.text, {"completion timestamp"});
}

class Perftest : public Programs {
 protected:
  void run(const std::string& command, const std::string& fabric = kEthernet) {
    const bool ethernet = fabric.find("infiniband") == std::string::npos;
    const Pair pair = run_pair(fabric, command + " -F" + (ethernet ? " -x 1" : ""));
    const std::vector<double> row = row_of(pair.client);
    ASSERT_GE(row.size(), 4u) << command << '\n' << pair.client;
    const bool latency = command.find("_lat") != std::string::npos;
    // Typical microseconds, average MiB/s; 0 where the machine was so busy that perftest could not tell its clock.
    if (pair.client.find("Correlation coefficient") == std::string::npos)
      EXPECT_GT(row[latency ? 4 : 3], 0) << command << '\n' << pair.client;
    expect_words(pair.client,
                 {latency ? "t_typical[usec]" : "BW average[MB/sec]", ethernet ? "Ethernet" : "IB"});
  }
};

TEST_F(Perftest, ib_send_bw) {
  run("ib_send_bw -n 500");
  run("ib_send_bw -n 500 -e");
  run("ib_send_bw -n 500 -b");
  run("ib_send_bw -n 500 -a");
  run("ib_send_bw -n 500 -c UC");
  run("ib_send_bw -n 400 -r 512 -c UD");  // all fit into the receive queue: none is dropped
  run("ib_send_bw -n 500 -q 4 --use-srq");
  run("ib_send_bw -n 500", kInfiniBand);
  run("ib_send_bw -n 400 -r 512 -c UD", kInfiniBand);
  run("ib_send_bw -n 500 -i 2 -m 1024", "--ports 2 --mtu 1024");
}
TEST_F(Perftest, ib_send_lat) {
  run("ib_send_lat -n 500");
  run("ib_send_lat -n 300 -e");
  run("ib_send_lat -n 500 -c UC");
  run("ib_send_lat -n 500 -c UD");
  run("ib_send_lat -n 500 --use-srq");
  run("ib_send_lat -n 500 -I 64");
  run("ib_send_lat -n 500", kInfiniBand);
}
TEST_F(Perftest, ib_write_bw) {
  run("ib_write_bw -n 500");
  run("ib_write_bw -n 500 -b");
  run("ib_write_bw -n 500 -q 8");
  run("ib_write_bw -n 500 -c UC");
  run("ib_write_bw -n 500", kInfiniBand);
}
TEST_F(Perftest, ib_write_lat) {
  run("ib_write_lat -n 500");
  run("ib_write_lat -n 500 -c UC");
  run("ib_write_lat -n 500", kInfiniBand);
}
TEST_F(Perftest, ib_read_bw) {
  run("ib_read_bw -n 500");
  run("ib_read_bw -n 500 -q 4");
  run("ib_read_bw -n 500", kInfiniBand);
}
TEST_F(Perftest, ib_read_lat) {
  run("ib_read_lat -n 500");
  run("ib_read_lat -n 500", kInfiniBand);
}
TEST_F(Perftest, ib_atomic_bw) {
  run("ib_atomic_bw -n 500");
  run("ib_atomic_bw -n 500 -A CMP_AND_SWAP");
  run("ib_atomic_bw -n 500 -q 4");
  run("ib_atomic_bw -n 500", kInfiniBand);
}
TEST_F(Perftest, ib_atomic_lat) {
  run("ib_atomic_lat -n 500");
  run("ib_atomic_lat -n 500 -A CMP_AND_SWAP");
  run("ib_atomic_lat -n 500", kInfiniBand);
}

}  // namespace
}  // namespace vhca::test
