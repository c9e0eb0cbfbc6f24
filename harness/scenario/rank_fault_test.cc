// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/rank_fault.h"

#include <gtest/gtest.h>

#include "faultinject/plan/kind.h"
#include "harness/scenario/scenario.h"

namespace r2bench {
namespace {

TEST(RankFaultKinds, each_stands_in_its_place_and_is_found_by_its_name) {
  for (size_t i = 0; i < rank_fault_kinds().size(); ++i) {
    const RankFaultInfo& kind = rank_fault_kinds()[i];
    EXPECT_EQ(size_t(kind.kind), i) << kind.name;
    EXPECT_EQ(&rank_fault_info(kind.kind), &kind);
    EXPECT_EQ(find_rank_fault_kind(kind.name), &kind);
    EXPECT_EQ(faultinject::find_fault_kind(kind.name), nullptr) << "a NIC's fault has that name";
  }
  EXPECT_EQ(find_rank_fault_kind("port_down"), nullptr);
}

TEST(RankFaultKinds, what_no_signal_does_is_for_the_engine_that_can_be_told) {
  for (const RankFaultInfo& kind : rank_fault_kinds()) {
    EXPECT_TRUE(kind.signal != 0 || kind.engines == std::vector<Engine>{Engine::kCpu}) << kind.name;
    EXPECT_NE(kind.engines.size() == 3, std::string(kind.why_not).size() > 0) << kind.name;
  }
}

}  // namespace
}  // namespace r2bench
