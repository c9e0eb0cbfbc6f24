// SPDX-License-Identifier: Apache-2.0
// Each real fault on each way in which a job can end: it is put back. Links and the switch are veth; the PCI
// bus is made up; Open vSwitch is the real one where it is installed, and made up as well.
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <optional>

#include "harness/real/testing/machine.h"
#include "harness/real/undo_list.h"

namespace r2bench {
namespace {

constexpr auto kPatience = 60s;

struct Kind {
  const char* name;
  const char* fault;  ///< ROOT stands for the test's folder
  const char* device;
  const char* is_cut;  ///< a command that succeeds as long as the change is there
};
const Kind kKinds[] = {
    {"link_down", "kind: real_link_down", "rxe0", "grep -q down /sys/class/net/v0/operstate"},
    {"tc", "kind: real_tc, loss: 100 %", "rxe0", "tc qdisc show dev v0 | grep -q netem"},
    {"ovs_drop", "kind: real_ovs_drop, bridge: br0, via: 'PATH=ROOT:$PATH'", "rxe0",
     "grep -q actions=drop ROOT/flows"},
    {"ovs_drop_open_vswitch", "kind: real_ovs_drop, bridge: br0, via: 'OVS_RUNDIR=ROOT'", "rxe0",
     "OVS_RUNDIR=ROOT ovs-ofctl dump-flows br0 | grep -q actions=drop"},
    {"pcie_remove", "kind: real_pcie_remove", "mlx5_0", "[ ! -e ROOT/bus/pci/devices/0000:3b:00.0 ]"},
    {"switch_port", "kind: real_switch_port, cut: ip link set v1 down, mend: ip link set v1 up", "rxe0",
     "grep -q 0 /sys/class/net/v0/carrier"},
};

struct Exit {
  const char* name;
  bool owner_killed,
      guard_killed;  ///< by SIGKILL; neither: the job ends by itself, with the fault not healed
};
const Exit kExits[] = {{"job_over", false, false},
                       {"owner_killed", true, false},
                       {"guard_killed", false, true},
                       {"both_killed", true, true}};

class RealExitsTest : public RealFaultsTest, public ::testing::WithParamInterface<std::tuple<Kind, Exit>> {
 protected:
  void SetUp() override {
    RealFaultsTest::SetUp();
    if (IsSkipped()) return;
    const std::string kind = std::get<0>(GetParam()).name;
    if (kind == "tc" && !succeeds("tc qdisc add dev v1 root netem loss 1% && tc qdisc del dev v1 root"))
      GTEST_SKIP() << "this kernel has no netem";
    if (kind == "ovs_drop") made_up_open_vswitch();
    if (kind == "ovs_drop_open_vswitch" && !open_vswitch()) return;
    if (kind == "pcie_remove") bus.emplace(root);
  }
  void TearDown() override {
    over = true;
    if (kernel.joinable()) kernel.join();
    bus.reset();
    if (!root.empty()) run_shell(in_root("kill $(cat ROOT/ovs*.pid 2>/dev/null) 2>/dev/null"), 10s);
    RealFaultsTest::TearDown();
  }

  static bool succeeds(const std::string& command) { return run_shell(command, 20s).exit_code == 0; }
  std::string in_root(std::string text) const {
    for (size_t at; (at = text.find("ROOT")) != std::string::npos;) text.replace(at, 4, root.string());
    return text;
  }
  bool is_cut() const { return succeeds(in_root(std::get<0>(GetParam()).is_cut)); }
  bool within_patience(const std::function<bool()>& condition) const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(10ms);
    }
    return true;
  }

  void made_up_open_vswitch() {
    const fs::path tool = root / "ovs-ofctl";
    std::ofstream(tool) << in_root(
        "#!/bin/sh\n"
        "case $1 in add-flow) echo \"n_packets=3, $3\" >>ROOT/flows ;; del-flows) : >ROOT/flows ;; "
        "*) cat ROOT/flows 2>/dev/null; true ;; esac\n");
    fs::permissions(tool, fs::perms::owner_all);
  }

  /// A bridge of the real Open vSwitch, with its datapath in user space, and RoCE v2 packets into it: v1 is a
  /// port of it. Other flows are there before and have to stay.
  bool open_vswitch() {
    if (!succeeds("command -v ovs-vswitchd ovsdb-server ovs-vsctl")) {
      [] { GTEST_SKIP() << "Open vSwitch is missing: apt-get install openvswitch-switch"; }();
      return false;
    }
    sh(
        in_root("export OVS_RUNDIR=ROOT OVS_LOGDIR=ROOT; "
                "ovsdb-tool create ROOT/conf.db /usr/share/openvswitch/vswitch.ovsschema && "
                "ovsdb-server ROOT/conf.db --remote=punix:ROOT/db.sock --pidfile=ROOT/ovsdb.pid --detach "
                ">/dev/null 2>&1 && "
                "ovs-vswitchd unix:ROOT/db.sock --pidfile=ROOT/ovs.pid --detach >/dev/null 2>&1 && "
                "ovs-vsctl --db=unix:ROOT/db.sock --timeout=20 add-br br0 -- set bridge br0 "
                "datapath_type=netdev -- add-port br0 v1 && "
                "ovs-ofctl add-flow br0 cookie=0x1,priority=1,udp,tp_dst=4791,actions=normal && "
                "ip neigh replace 10.7.0.9 lladdr 02:00:00:00:00:09 dev v0"));
    kernel = std::thread([this] {
      while (!over) {
        run_shell("bash -c 'echo a message >/dev/udp/10.7.0.9/4791'", 10s);
        std::this_thread::sleep_for(20ms);
      }
    });
    return true;
  }

  /// A process that makes the fault and then ends by itself when it is told to, or is killed.
  struct Owner {
    pid_t pid = 0, guard = 0;
    int tell = -1;
  };
  Owner strike() {
    int told[2], tell[2];
    EXPECT_EQ(pipe(told), 0);
    EXPECT_EQ(pipe(tell), 0);
    Owner owner;
    owner.pid = fork();
    if (owner.pid == 0) {
      close(tell[1]);  // else it would never see the end of it
      const auto real = make(std::get<0>(GetParam()).device);
      const uint32_t id = board.arm(scenario.faults[0]);
      const pid_t guard = witnessed(*real, id, 1) ? real->guard_pid() : 0;
      (void)!::write(told[1], &guard, sizeof(guard));
      char end;
      (void)!read(tell[0], &end, 1);
      real->finish(board);
      _exit(0);
    }
    close(told[1]);
    close(tell[0]);
    EXPECT_EQ(read(told[0], &owner.guard, sizeof(owner.guard)), ssize_t(sizeof(owner.guard)));
    close(told[0]);
    owner.tell = tell[1];
    return owner;
  }

  std::atomic<bool> over{false};
  std::thread kernel;
  std::optional<MadeUpBus> bus;
};

TEST_P(RealExitsTest, it_is_put_back) {
  const auto& [kind, exit] = GetParam();
  with(in_root(kind.fault));
  const Owner owner = strike();
  ASSERT_GT(owner.guard, 0) << "no witness";
  EXPECT_TRUE(is_cut());
  if (exit.guard_killed) kill(owner.guard, SIGKILL);
  if (exit.owner_killed) kill(owner.pid, SIGKILL);
  close(owner.tell);
  waitpid(owner.pid, nullptr, 0);
  const auto ignore = [](const std::string&) {};
  if (exit.guard_killed && exit.owner_killed) {
    EXPECT_TRUE(is_cut()) << "the test's own condition: nobody has put it back";
    EXPECT_TRUE(within_patience(
        [&] { return put_back_what_is_left(ignore, (root / "undo").string()) == 0 && !is_cut(); }));
  } else {
    EXPECT_TRUE(within_patience([&] { return !is_cut(); }));
  }
  EXPECT_TRUE(within_patience([&] { return !fs::exists(root / "undo"); }))
      << "nothing is left to be put back";
  if (std::string(kind.name) == "ovs_drop_open_vswitch") {
    EXPECT_TRUE(succeeds(in_root("OVS_RUNDIR=ROOT ovs-ofctl dump-flows br0 cookie=0x1/-1 | grep -q NORMAL")))
        << "the flows of others stay";
  }
  if (std::string(kind.name) == "link_down") {
    EXPECT_NE(sh("ip route show table 77").find("10.8.0.0/16 dev v0"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(each, RealExitsTest,
                         ::testing::Combine(::testing::ValuesIn(kKinds), ::testing::ValuesIn(kExits)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param).name) + "_" +
                                  std::get<1>(each.param).name;
                         });

}  // namespace
}  // namespace r2bench
