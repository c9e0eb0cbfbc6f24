// SPDX-License-Identifier: Apache-2.0
// The devices of soft RoCE by a script that only writes down what it was asked for.
#include "harness/fabric/rxe_fabric.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/fabric/device_fabric.h"
#include "harness/fabric/guest.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

class RxeFabric : public ::testing::Test {
 protected:
  RxeFabric() {
    std::string folder = (fs::temp_directory_path() / "rxe-fabric-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = folder;
    setenv("R2BENCH_SHARE", folder.c_str(), 1);
    setenv(kRxeHereVariable, "1", 1);
  }
  ~RxeFabric() override {
    unsetenv("R2BENCH_SHARE");
    unsetenv(kRxeHereVariable);
    fs::remove_all(folder_);
  }
  /// A script that fails at that word.
  void make_script(const std::string& fails_at) {
    const fs::path script = folder_ / "harness" / "fabric" / "guest" / "rxe_net.sh";
    fs::create_directories(script.parent_path());
    std::ofstream(script) << "#!/bin/sh\necho \"$*\" >> '" << log().string() << "'\n[ \"$1\" != '" << fails_at
                          << "' ]\n";
    fs::permissions(script, fs::perms::owner_all);
  }
  fs::path log() const { return folder_ / "log"; }
  std::string asked_for() const {
    std::ostringstream text;
    text << std::ifstream(log()).rdbuf();
    return text.str();
  }
  static Fabric shape() {
    Fabric shape;
    shape.nodes = 2;
    shape.nics_per_node = 1;
    shape.nic_rate_bits_per_s = 1'000'000;
    return shape;
  }

  fs::path folder_;
};

TEST_F(RxeFabric, makes_shapes_and_removes_its_devices) {
  make_script("nothing");
  make_rxe_fabric(shape());
  EXPECT_EQ(asked_for(), "up 2 1\nshape n0k0 rate 1000000bit\nshape n1k0 rate 1000000bit\ndown\n");
}

TEST_F(RxeFabric, that_cannot_be_shaped_leaves_no_devices) {
  make_script("shape");
  EXPECT_THROW(make_rxe_fabric(shape()), FabricError);
  EXPECT_EQ(asked_for(), "up 2 1\nshape n0k0 rate 1000000bit\ndown\n");
}

TEST_F(RxeFabric, that_cannot_be_made_completely_leaves_no_devices) {
  make_script("up");
  EXPECT_THROW(make_rxe_fabric(shape()), FabricError);
  EXPECT_EQ(asked_for(), "up 2 1\ndown\n");
}

}  // namespace
}  // namespace r2bench
