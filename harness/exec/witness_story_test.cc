// SPDX-License-Identifier: Apache-2.0
#include "harness/exec/witness_story.h"

#include <gtest/gtest.h>

#include <sstream>

namespace r2bench {
namespace {

using nlohmann::json;

json fault(uint32_t id, uint64_t triggered_ns, uint64_t t0_ns, json effects) {
  return {{"id", id},
          {"kind", "port_down"},
          {"target", "node1/nic0"},
          {"armed_ns", 1'000'000'000},
          {"healed_ns", 0},
          {"triggered_ns", triggered_ns},
          {"t0_ns", t0_ns},
          {"effects", std::move(effects)}};
}

json effect(uint64_t time_ns, const std::string& what) {
  return {{"time_ns", time_ns}, {"pid", 17},   {"rank", "ib_write_bw"}, {"node", "node1"},
          {"nic", 0},           {"qp_num", 5}, {"what", what}};
}

TEST(WitnessStory, tells_each_fault_and_what_it_did) {
  const json story = {
      {"witnesses_lost", 0},
      {"faults",
       {fault(1, 2'500'000'000, 2'500'100'000,
              {effect(2'500'100'000, "QP moved to ERR"), effect(3'000'000'000, "WC 12 shown")}),
        fault(2, 0, 0, json::array()), fault(3, 1'020'000'000, 0, json::array())}}};
  std::ostringstream out;
  tell(story, 1, out);
  EXPECT_EQ(out.str(),
            "fault 1, port_down node1/nic0: armed, triggered +1.500 s, took effect (t0) +1.500 s\n"
            "  +1.500 s  node1/nic0 qp 5 in ib_write_bw (pid 17): QP moved to ERR\n"
            "  … and 1 more (--witness FILE keeps all)\n"
            "fault 2, port_down node1/nic0: armed, never triggered, never took effect\n"
            "fault 3, port_down node1/nic0: armed, triggered +20 ms, never took effect\n");
}

TEST(WitnessStory, says_what_was_lost) {
  std::ostringstream out;
  tell({{"witnesses_lost", 3}, {"faults", json::array()}}, 1, out);
  EXPECT_EQ(out.str(), "3 effects were not recorded, or not made, because a table of the injector was full\n");
}

}  // namespace
}  // namespace r2bench
