// SPDX-License-Identifier: Apache-2.0
// A machine for tests of real faults: network namespaces of the test's own with a veth pair, and a folder
// that stands in for /sys.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "harness/real/real_faults.h"
#include "harness/real/shell.h"

namespace r2bench {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using faultinject::Effect;

/// A card mlx5_0 under `root`, with the port v0, and what sysfs does when its files are written to.
class MadeUpBus {
 public:
  explicit MadeUpBus(const fs::path& root) : device(root / "bus/pci/devices/0000:3b:00.0") {
    const fs::path devices = root / "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs";
    fs::create_directories(device);
    fs::create_directories(devices);
    std::ofstream(device / "vendor") << "0x15b3\n";
    std::ofstream(devices / "0") << "v0\n";
    fs::create_symlink(device, root / "class/infiniband/mlx5_0/device");
    kernel_ = std::thread([this, root] {
      while (!over_) {
        std::error_code none;
        if (fs::exists(device / "remove", none)) fs::rename(device, root / "removed", none);
        if (fs::exists(root / "bus/pci/rescan", none) && fs::exists(root / "removed", none)) {
          fs::remove(root / "removed/remove", none);
          fs::rename(root / "removed", device, none);
          fs::remove(root / "bus/pci/rescan", none);
        }
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  ~MadeUpBus() {
    over_ = true;
    kernel_.join();
  }
  const fs::path device;

 private:
  std::atomic<bool> over_{false};
  std::thread kernel_;
};

/// Once, before any thread: this process in namespaces of its own, where the kernel lets it.
inline bool in_own_namespaces() {
  static const bool done = [] {
    if (geteuid() != 0 || unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return false;
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    return mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
  }();
  return done;
}

class RealFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!in_own_namespaces()) GTEST_SKIP() << "needs root and network namespaces";
    char name[] = "/tmp/real_faults_XXXXXX";
    root = mkdtemp(name);
    sh("ip link del v0 2>/dev/null; ip link add v0 type veth peer name v1 && ip link set v1 up && ip link "
       "set v0 up "
       "&& ip addr add 10.7.0.1/24 dev v0 && ip route add 10.8.0.0/16 dev v0 table 77");
    fs::create_directories(root / "class/infiniband/rxe0/ports/1/gid_attrs/ndevs");
    write("class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "v0");
    write("class/infiniband/rxe0/parent", "v0");
    fs::create_symlink("/sys/class/net", root / "class/net");
  }
  void TearDown() override {
    if (root.empty()) return;
    run_shell("ip link del v0", 10s);
    fs::remove_all(root);
  }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text << "\n";
  }
  static std::string sh(const std::string& command) {
    const ShellResult result = run_shell(command, 20s);
    EXPECT_EQ(result.exit_code, 0) << command << ": " << result.output;
    return result.output;
  }
  void with(const std::string& fault) {
    scenario.fabric.nodes = 2;
    scenario.fabric.nics_per_node = 1;
    scenario.faults = {
        faultinject::parse_fault(YAML::Load("{at: now, target: node1/nic0, " + fault + "}"), "t.yaml")};
  }
  std::unique_ptr<RealFaults> make(const std::string& device = "rxe0") {
    return std::make_unique<RealFaults>(
        scenario.faults, scenario.fabric, nodes, [=](int) { return std::vector<std::string>{device}; },
        REAL_GUARD,
        [this](uint64_t, const std::string& what, const std::string& text) {
          notes += what + ": " + text + "\n";
        },
        MachinePlaces{root.string(), (root / "undo").string(), lifelines(sources)});
  }
  std::string refusal(const std::string& device = "rxe0") {
    try {
      make(device);
    } catch (const FabricError& error) {
      return error.what();
    }
    return "not refused";
  }
  /// Ticks until the fault has so many witnesses.
  bool witnessed(RealFaults& real, uint32_t id, size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (board.witnesses(id).size() < count) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      real.tick(board);
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
  /// From its arming over its effect to its end; `broken` looks at the machine in between.
  template <typename Broken>
  void strikes_and_is_put_back(const std::string& fault, Effect effect, Broken broken,
                               const std::string& device = "rxe0") {
    with(fault);
    const auto real = make(device);
    const uint32_t id = board.arm(scenario.faults[0]);
    ASSERT_TRUE(witnessed(*real, id, 1)) << notes;
    EXPECT_EQ(board.witnesses(id)[0].effect, effect);
    EXPECT_EQ(board.witnesses(id)[0].node, "node1");
    EXPECT_EQ(board.state(id).t0_ns, board.witnesses(id)[0].time_ns);
    EXPECT_GE(board.state(id).t0_ns, board.state(id).triggered_ns);
    broken();
    board.heal(id);
    ASSERT_TRUE(witnessed(*real, id, 2)) << notes;
    EXPECT_EQ(board.witnesses(id)[1].effect, Effect::kPutBack);
  }

  fs::path root;
  LifelineSources sources;
  Scenario scenario;
  NodesHere nodes{0, 2, {}};
  std::string notes;
  faultinject::BoardHost board = faultinject::BoardHost::create({{"node0", 1}, {"node1", 1}}, 1);
};

}  // namespace r2bench
