// SPDX-License-Identifier: Apache-2.0
#include "harness/fabric/device_choice.h"

#include <gtest/gtest.h>

#include "harness/fabric/device_fabric.h"

namespace r2bench {
namespace {

using Names = std::vector<std::string>;

/// An r7525: the first port is the control network's.
const Names kActive = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"};
bool is_first(const std::string& device) { return device == "mlx5_0"; }

std::string error_of(const Names& active, const DeviceWish& wish, size_t wanted) {
  try {
    choose_devices(active, wish, wanted);
  } catch (const FabricError& error) {
    return error.what();
  }
  return "no error";
}

TEST(DeviceChoice, without_a_wish_is_the_order_of_libibverbs) {
  EXPECT_EQ(choose_devices(kActive, {}, 2), (Names{"mlx5_0", "mlx5_1"}));
  EXPECT_EQ(choose_devices(kActive, {}, 4), kActive);
}

TEST(DeviceChoice, takes_the_control_port_after_all_others) {
  EXPECT_EQ(choose_devices(kActive, {"", is_first}, 2), (Names{"mlx5_1", "mlx5_2"}));
  EXPECT_EQ(choose_devices(kActive, {"", is_first}, 4), (Names{"mlx5_1", "mlx5_2", "mlx5_3", "mlx5_0"}));
}

TEST(DeviceChoice, leaves_out_what_NCCL_IB_HCA_excludes) {
  EXPECT_EQ(choose_devices(kActive, {"^=mlx5_0", nullptr}, 2), (Names{"mlx5_1", "mlx5_2"}));
  EXPECT_EQ(choose_devices(kActive, {"^=mlx5_1", is_first}, 3), (Names{"mlx5_2", "mlx5_3", "mlx5_0"}));
  EXPECT_EQ(choose_devices({"mlx5_1", "mlx5_10"}, {"^=mlx5_1", nullptr}, 1), (Names{"mlx5_10"}));
  EXPECT_NE(error_of({"mlx5_1", "mlx5_10"}, {"^mlx5_1", nullptr}, 1), "no error") << "a prefix, as in NCCL";
}

TEST(DeviceChoice, takes_what_NCCL_IB_HCA_lists_the_control_port_too) {
  EXPECT_EQ(choose_devices(kActive, {"=mlx5_0,mlx5_3", is_first}, 2), (Names{"mlx5_0", "mlx5_3"}));
  EXPECT_EQ(choose_devices(kActive, {"mlx5_2:1,mlx5_3:2", is_first}, 1), (Names{"mlx5_2"}));
}

TEST(DeviceChoice, that_does_not_suffice_says_what_was_left_out) {
  const std::string error = error_of(kActive, {"^=mlx5_0,mlx5_2", is_first}, 4);
  EXPECT_NE(error.find("wants 4 RDMA devices"), std::string::npos) << error;
  EXPECT_NE(error.find("has 2 (NCCL_IB_HCA=^=mlx5_0,mlx5_2 leaves out mlx5_0, mlx5_2)"), std::string::npos)
      << error;
  EXPECT_EQ(error_of({}, {}, 1).find("NCCL_IB_HCA"), std::string::npos);
}

}  // namespace
}  // namespace r2bench
