// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/base/file_limit.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

class FileLimit : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    ASSERT_GE(before_.rlim_max, 512u);
  }
  void TearDown() override { setrlimit(RLIMIT_NOFILE, &before_); }
  static rlim_t soft() {
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur;
  }
  void set_soft(rlim_t files) const {
    const rlimit limit{files, before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  rlimit before_{};
};

TEST_F(FileLimit, is_raised_as_far_as_asked) {
  set_soft(256);
  raise_file_limit(512);
  EXPECT_EQ(soft(), 512u);
}

TEST_F(FileLimit, is_raised_no_further_than_the_hard_limit) {
  set_soft(256);
  raise_file_limit(before_.rlim_max == RLIM_INFINITY ? RLIM_INFINITY : before_.rlim_max + 1);
  EXPECT_EQ(soft(), before_.rlim_max);
}

TEST_F(FileLimit, is_not_lowered) {
  set_soft(512);
  raise_file_limit(256);
  EXPECT_EQ(soft(), 512u);
}

}  // namespace
}  // namespace r2ccl
