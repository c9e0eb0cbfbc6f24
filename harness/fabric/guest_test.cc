// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/guest.h"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/fabric/device_fabric.h"
#include "harness/fabric/scripts.h"

namespace r2bench {
namespace {

/// What the guest's init would do with the script, done by this machine's shell: `share` and `job` as given.
std::string played(const GuestJob& job, const std::string& definitions) {
  const ScriptResult result = run_script({"/bin/sh", "-c", definitions + "\n" + guest_script(job)}, 300);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

TEST(Guest, words_and_variables_arrive_as_they_are) {
  GuestJob job;
  job.command = {"printf", "<%s>", "a b", "it's", "$HOME", "\"", ""};
  job.environment = {{"PLAIN", "x"}};
  job.folder = "/";
  EXPECT_EQ(played(job, "job() { \"$@\"; }"), "<a b><it's><$HOME><\"><>");
  job.command = {"sh", "-c", "echo $TRICKY-$PLAIN-$R2BENCH_RXE_HERE; pwd"};
  job.environment = {
      {"TRICKY", "';echo no"}, {"PLAIN", "x"}, {"BASH_FUNC_f%%", "() { :; }"}, {"PATH", "/nowhere"}};
  EXPECT_EQ(played(job, "job() { \"$@\"; }"), "';echo no-x-1\n/");
}

TEST(Guest, folders_are_shared_under_their_own_path) {
  GuestJob job;
  job.command = {"true"};
  job.folder = "/";
  job.writable = {"/a b", "/c"};
  EXPECT_EQ(played(job, "share() { echo \"$1=$2\"; }; job() { :; }"), "share0=/a b\nshare1=/c");
}

TEST(Guest, the_script_that_the_rxe_fabric_needs_is_there_and_says_how_it_is_used) {
  const ScriptResult usage = run_script({fabric_script("rxe_net.sh")}, 300);
  EXPECT_EQ(usage.exit_code, 64);
  EXPECT_NE(usage.output.find("up NODES NICS"), std::string::npos) << usage.output;
}

TEST(Guest, a_script_that_takes_too_long_is_ended) {
  EXPECT_EQ(run_script({"/bin/sh", "-c", "sleep 3600"}, 1).exit_code, 124);
}

TEST(Guest, devices_are_not_made_on_a_machine_that_did_not_allow_it) {
  unsetenv(kRxeHereVariable);
  EXPECT_THROW(make_fabric("rxe", Fabric{}, "/nowhere"), FabricError);
}

TEST(Guest, a_cache_that_holds_no_guest_is_told_with_the_way_to_get_one) {
  const ScriptResult check = run_script(
      {"/usr/bin/python3", fabric_script("make_guest.py"), "--check", "--cache", "/nonexistent"}, 900);
  EXPECT_EQ(check.exit_code, 3) << check.output;
  EXPECT_TRUE(check.output.find("apt-get") != std::string::npos ||
              check.output.find("not made yet") != std::string::npos)
      << check.output;
}

}  // namespace
}  // namespace r2bench
