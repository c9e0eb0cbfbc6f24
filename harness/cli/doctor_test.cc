// SPDX-License-Identifier: Apache-2.0
// `doctor`: what is missing, and the topology that it draws.
#include "harness/cli/testing/program_fixture.h"
#include "harness/cli/topology_view.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Program = ProgramTest;

TEST_F(Program, doctor_names_what_is_missing) {
  const int status = call({"doctor"});
  EXPECT_TRUE(status == 0 || status == 1);
  for (const char* what : {"kernel", "locked memory", "R2CC_MODE", "NCCL_IB_TIMEOUT", "virtual HCA", "vhca",
                           "rxe", "verbs", "GPUDirect"}) {
    EXPECT_NE(out.str().find(what), std::string::npos) << what;
  }
}

TEST_F(Program, doctor_draws_the_topology_of_a_scenario) {
  std::ofstream("t.yaml") << "version: 1\nmodes: [migrate]\n"
                             "fabric: {nics_per_node: 4, nic_rate: 1 Gbit/s, topology: {sockets: 2, "
                             "switches_per_socket: 1, gpus_per_socket: 1, cross_socket: 40 %}}\n";
  ASSERT_EQ(call({"doctor", "--topology", "--scenario", "t.yaml"}), 0) << err.str();
  const std::string text = out.str();
  for (const char* line :
       {"├─ socket 0\n", "│  ├─ NUMA node 0", "│  └─ PCIe switch", "│     ├─ GPU gpu0", "      └─ NIC vhca3",
        "1 Gbit/s\n", "  vhca0  same switch: vhca1; cross socket: vhca2 vhca3\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
  const auto row = [&](const std::string& first) {
    const size_t at = text.find("  " + first + " ");
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_NE(row("gpu0").find("switch ×1    switch ×1    cross ×2.50  cross ×2.50"), std::string::npos)
      << text;
  EXPECT_NE(row("NUMA node 1").find("cross ×2.50  cross ×2.50  socket ×1    socket ×1"), std::string::npos)
      << text;
}

TEST_F(Program, doctor_draws_a_file_that_lstopo_wrote_and_says_what_is_wrong_with_others) {
  std::ofstream("none.xml")
      << "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
         "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0x1\" "
         "complete_cpuset=\"0x1\" allowed_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
         "allowed_nodeset=\"0x1\" gp_index=\"1\">"
         "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
         "nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"2\" local_memory=\"1073741824\"/>"
         "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
         "complete_nodeset=\"0x1\" gp_index=\"3\"/></object></topology>\n";
  EXPECT_EQ(call({"doctor", "--topology", "--xml", "none.xml"}), 0) << err.str();
  EXPECT_NE(out.str().find("No RDMA NIC in this file"), std::string::npos) << out.str();

  std::ofstream("bad.xml") << "<nothing/>";
  EXPECT_EQ(call({"doctor", "--topology", "--xml", "bad.xml"}), 64);
  EXPECT_NE(err.str().find("bad.xml: hwloc cannot read this"), std::string::npos) << err.str();
  EXPECT_EQ(call({"doctor", "--topology", "--xml", "missing.xml"}), 64);
  EXPECT_NE(err.str().find("missing.xml: cannot be read: No such file"), std::string::npos) << err.str();
  EXPECT_EQ(call({"doctor", "--topology", "--scenario", "nic_down.yaml"}), 64);
  EXPECT_NE(err.str().find("nic_down.yaml: the scenario declares no topology"), std::string::npos)
      << err.str();
  EXPECT_EQ(call({"doctor", "--xml", "none.xml"}), 64) << "without --topology";
  EXPECT_EQ(call({"doctor", "--topology"}), 0) << err.str();
  EXPECT_NE(out.str().find("This machine\n"), std::string::npos);
}

// libpciaccess reads its table of names anew for each topology, and never frees it.
TEST(TopologyOfMachine, needs_no_names_of_pci_devices) {
  const std::string xml = topology_of_machine().xml;
  EXPECT_NE(xml.find("<topology "), std::string::npos) << xml;
  EXPECT_EQ(xml.find("PCIVendor"), std::string::npos) << xml;
}

TEST_F(Program, doctor_is_about_the_fabric_that_is_asked_for) {
  const int any = call({"doctor"}), verbs = call({"doctor", "--fabric", "verbs"});
  EXPECT_TRUE(any == 0 || any == 1);
  // Whatever this machine has: the status and the marked lines say the same.
  const bool marked = out.str().find("✗") != std::string::npos;
  EXPECT_EQ(verbs, marked ? 1 : 0) << out.str();
  EXPECT_EQ(call({"doctor", "--fabric", "vcha"}), 64);
}

// ssh joins its words and hands them to a shell on the other host.
class ProbeOverSsh : public Program {
 protected:
  void SetUp() override {
    Program::SetUp();
    script("as-ssh", "shift\nHOME='" + fs::absolute("their home").string() + "' exec sh -c \"$*\"");
    fs::create_directories("their home");
  }
  static void script(const fs::path& path, const std::string& text) {
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }
  /// Whether the probe in `folder` is started when the command line names it `named`.
  bool is_found(const fs::path& folder, const std::string& named) {
    fs::create_directories(folder);
    fs::remove("was-here");
    script(folder / "probe", "touch '" + fs::absolute("was-here").string() + "'");
    const std::string ssh = fs::absolute("as-ssh").string();
    call({"doctor", "--cluster", "--host", "elsewhere", "--ssh", ssh.c_str(), "--probe", named.c_str()});
    return fs::exists("was-here");
  }
};

TEST_F(ProbeOverSsh, whose_path_has_blanks_and_quotes_is_found) {
  const fs::path folder = fs::absolute("a 'probe' $HOME");
  EXPECT_TRUE(is_found(folder, (folder / "probe").string())) << out.str();
}

TEST_F(ProbeOverSsh, below_the_home_over_there_is_found) {
  for (const char* folder : {"bin", "a 'bin' $HOME"})
    EXPECT_TRUE(is_found(fs::path("their home") / folder, std::string("~/") + folder + "/probe"))
        << out.str();
}

TEST_F(ProbeOverSsh, whose_path_begins_with_a_tilde_that_stands_for_no_home_is_found) {
  for (const char* folder : {"~", "~a b"})
    EXPECT_TRUE(is_found(folder, std::string("./") + folder + "/probe"));
  EXPECT_TRUE(is_found("~a b", "~a b/probe")) << out.str();
}

}  // namespace
}  // namespace r2bench
