// Debian's own programs, unchanged, over the virtual HCA. What is not installed is skipped with a line that says so.
#include <gtest/gtest.h>
#include <limits.h>

#include <fstream>
#include <sstream>

#include "harness/vhca/tests/verbs_fixture.h"

namespace vhca::test {
namespace {

std::string output_of(const std::string& command, int& code) {
  std::string output;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) throw Failure("popen");
  char text[4096];
  for (std::size_t got; (got = std::fread(text, 1, sizeof text, pipe)) > 0;) output.append(text, got);
  const int status = ::pclose(pipe);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
  return output;
}

bool is_installed(const std::string& program) {
  int code;
  output_of("command -v " + program, code);
  return code == 0;
}

std::string vhca_exec() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string self(path, static_cast<std::size_t>(length));
  return "timeout 60 " + self.substr(0, self.rfind('/')) + "/vhca-exec";
}

// A port of its own for each test, so that tests in parallel do not meet.
std::string tcp_port() { return std::to_string(20000 + ::getpid() % 20000); }

std::string run_one(const std::string& arguments, const std::string& command) {
  int code;
  const std::string output = output_of(vhca_exec() + " " + arguments + " -- " + command, code);
  EXPECT_EQ(code, 0) << output;
  return output;
}
std::string run_pair(const std::string& arguments, const std::string& command) {
  return run_one("--nodes 2 " + arguments, command + " :: " + command + " 127.0.0.1");
}

// A program that is built without a sanitizer cannot load a library that needs one.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

#define SKIP_UNLESS_INSTALLED(program, package)                                                  \
  if (kSanitized) GTEST_SKIP() << "the library is built with a sanitizer, " << program << " is not"; \
  if (!is_installed(program)) GTEST_SKIP() << program << " is not installed (package " << package << ")"

TEST(Programs, ibv_devices_lists_the_nodes_devices) {
  SKIP_UNLESS_INSTALLED("ibv_devices", "ibverbs-utils");
  const std::string output = run_one("--nodes 1 --nics 3", "ibv_devices");
  for (const char* name : {"vhca0", "vhca1", "vhca2"}) EXPECT_NE(output.find(name), std::string::npos) << output;
  EXPECT_EQ(output.find("vhca3"), std::string::npos) << output;
}

TEST(Programs, ibv_devinfo_shows_an_active_ethernet_port_with_a_routable_gid) {
  SKIP_UNLESS_INSTALLED("ibv_devinfo", "ibverbs-utils");
  const std::string output = run_one("--nodes 1 --nics 2", "ibv_devinfo -v -d vhca1");
  for (const char* text : {"PORT_ACTIVE", "Ethernet", "::ffff:10.1.0.1, RoCE v2", "fe80:"})
    EXPECT_NE(output.find(text), std::string::npos) << output;
}

TEST(Programs, ibv_rc_pingpong_checks_its_data_polling_and_sleeping) {
  SKIP_UNLESS_INSTALLED("ibv_rc_pingpong", "ibverbs-utils");
  for (const char* mode : {"", " -e", " -s 1000000 -n 50", " -r 17 -n 2000"})
    for (const char* rate : {"", "--rate 10Gbit/s --latency 2us"}) {
      const std::string output = run_pair(rate, "ibv_rc_pingpong -c -d vhca0 -g 1 -p " + tcp_port() + mode);
      EXPECT_NE(output.find("usec/iter"), std::string::npos) << output;
      EXPECT_EQ(output.find("invalid data"), std::string::npos) << output;
    }
}

// The average of perftest's row, in MiB/s.
double average_of(const std::string& output) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream row(line);
    double bytes, iterations, peak, average;
    if (row >> bytes >> iterations >> peak >> average && bytes > 0) return average;
  }
  return 0;
}

TEST(Programs, perftest_measures_bandwidth_with_every_operation) {
  SKIP_UNLESS_INSTALLED("ib_write_bw", "perftest");
  for (const char* program : {"ib_write_bw", "ib_send_bw", "ib_read_bw", "ib_send_bw -e", "ib_write_bw -b", "ib_write_bw -q 8"}) {
    const std::string output = run_pair("", std::string(program) + " -d vhca0 -x 1 -n 500 -F -p " + tcp_port());
    EXPECT_GT(average_of(output), 0) << program << '\n' << output;
  }
}

TEST(Programs, perftest_finds_the_ports_rate) {
  SKIP_UNLESS_INSTALLED("ib_write_bw", "perftest");
  for (const char* program : {"ib_write_bw", "ib_read_bw", "ib_send_bw -q 4"}) {
    const std::string output = run_pair("--rate 1Gbit/s", std::string(program) + " -d vhca0 -x 1 -D 2 -F -p " + tcp_port());
    EXPECT_NEAR(average_of(output), 1e9 / 8 / 1048576, 0.02 * 1e9 / 8 / 1048576) << program << '\n' << output;
  }
}

TEST(Programs, perftest_measures_latency) {
  SKIP_UNLESS_INSTALLED("ib_write_lat", "perftest");
  for (const char* program : {"ib_write_lat", "ib_send_lat", "ib_read_lat"}) {
    const std::string output = run_pair("", std::string(program) + " -d vhca0 -x 1 -n 500 -F -p " + tcp_port());
    EXPECT_NE(output.find("t_typical"), std::string::npos) << program << '\n' << output;
  }
}

}  // namespace
}  // namespace vhca::test
