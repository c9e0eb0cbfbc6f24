// SPDX-License-Identifier: Apache-2.0
// The runner's wait for its agents, which threads of this process play.
#include "harness/hosts/launched_cluster.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>

#include "harness/hosts/host_agent.h"
#include "harness/hosts/testing/fake_agent.h"

namespace r2bench {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kSecret = "0123456789abcdef";

class LaunchedClusterTest : public testing::Test {
 protected:
  LaunchedClusterTest() {
    folder_ = fs::temp_directory_path() / ("r2bench-cluster-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    // The runner's own agent, which does not call.
    std::ofstream(folder_ / "agent.sh") << "#!/bin/sh\nwhile [ -e \"${0%/*}\" ]; do sleep 0.02; done\n";
    fs::permissions(folder_ / "agent.sh", fs::perms::owner_all);
    port_ = Rendezvous(kSecret).port();  // one that is free
    setenv("R2BENCH_PORT", std::to_string(port_).c_str(), 1);
    setenv(kSecretVariable, kSecret.c_str(), 1);
  }
  ~LaunchedClusterTest() override {
    agents_.clear();
    unsetenv("R2BENCH_PORT");
    unsetenv(kSecretVariable);
    fs::remove_all(folder_);
  }
  void call(const std::string& host, int order, int count, FakeAgent::Take take = FakeAgent::serve) {
    json hello = agent_hello(order, count);
    hello["name"] = host;
    agents_.emplace_back(port_, kSecret, hello, std::move(take));
  }
  std::unique_ptr<LaunchedCluster> cluster() {
    ClusterOptions options;
    options.launcher = Launcher::kEnv;
    options.program = folder_ / "agent.sh";
    return std::make_unique<LaunchedCluster>(options);
  }
  /// Why there is no cluster.
  std::string refusal() {
    try {
      cluster();
    } catch (const FabricError& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;

 private:
  uint16_t port_ = 0;
  std::list<FakeAgent> agents_;
};

TEST_F(LaunchedClusterTest, hosts_are_in_the_launchers_order) {
  call("b", 1, 2);
  call("a", 0, 2);
  const auto found = cluster();
  const std::vector<Host*> hosts = found->hosts(".");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0]->facts().name, "a");
  EXPECT_EQ(hosts[1]->facts().name, "b");
  EXPECT_EQ(found->master_address(), "a");
  // The names of containers, for example, mean nothing to the others.
  setenv("MASTER_ADDR", "10.1.2.3", 1);
  EXPECT_EQ(found->master_address(), "10.1.2.3");
  unsetenv("MASTER_ADDR");
  fs::remove_all(folder_);  // the runner's own agent ends
}

TEST_F(LaunchedClusterTest, a_host_that_dies_after_it_has_called_is_named) {
  call("a", 0, 2, [](SecureLink&, const json&) { return false; });
  const std::string why = refusal();
  EXPECT_NE(why.find("host a has called, and then was lost: "), std::string::npos) << why;
}

TEST_F(LaunchedClusterTest, two_hosts_with_one_number_are_named) {
  call("a", 1, 3);
  call("b", 1, 3);
  const std::string why = refusal();
  EXPECT_NE(why.find("hosts a and b both have the number 1"), std::string::npos) << why;
}

TEST_F(LaunchedClusterTest, hosts_that_disagree_on_their_count_are_named) {
  call("a", 0, 2);
  call("b", 1, 3);
  const std::string why = refusal();
  EXPECT_NE(why.find("host a has been told that there are 2 hosts, host b that there are 3"),
            std::string::npos)
      << why;
}

TEST_F(LaunchedClusterTest, a_port_that_is_none_is_named) {
  const auto is_named = [this](const char* variable, const char* value) {
    setenv(variable, value, 1);
    const std::string why = refusal();
    EXPECT_NE(why.find(std::string(variable) + "='" + value + "'"), std::string::npos) << why;
  };
  is_named("R2BENCH_PORT", "29x");
  is_named("R2BENCH_PORT", "95000");
  unsetenv("R2BENCH_PORT");
  is_named("MASTER_PORT", "none");
  is_named("MASTER_PORT", "65535");  // the one above is the runner's
  unsetenv("MASTER_PORT");
}

TEST_F(LaunchedClusterTest, a_number_that_the_count_excludes_is_refused) {
  call("a", 2, 2);
  EXPECT_NE(refusal().find("host a has the number 2, but there are 2 hosts"), std::string::npos);
}

}  // namespace
}  // namespace r2bench
