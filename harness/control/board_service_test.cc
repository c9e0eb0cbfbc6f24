// SPDX-License-Identifier: Apache-2.0
#include "harness/control/board_service.h"

#include <gtest/gtest.h>

#include "faultinject/control/board_host.h"
#include "faultinject/plan/plan.h"

namespace r2bench {
namespace {

using faultinject::BoardHost;
using faultinject::NodeShape;
using nlohmann::json;

const std::vector<NodeShape> kNodes = {{"node0", 2}, {"node1", 2}};

class Service : public testing::Test {
 protected:
  json ask(const json& request) { return service.answer(request, "inject").value(); }
  json fault(uint32_t id) { return ask({{"type", "list"}, {"ids", {id}}})["faults"][0]; }

  BoardHost board = BoardHost::create(kNodes, 1);
  std::vector<std::string> notes;
  BoardService service{board, kNodes, "scenario", [this](const std::string& text) { notes.push_back(text); }};
};

TEST_F(Service, adds_lists_and_heals) {
  faultinject::FaultSpec own;
  own.name = "own";
  own.target = faultinject::parse_target("node0/nic1");
  board.arm(own);
  const json added =
      ask({{"type", "add"}, {"text", "{at: now, target: node1/nic0, kind: port_down}"}, {"file", "f"}});
  EXPECT_EQ(added["ids"], json({2}));
  EXPECT_EQ(service.added(), std::set<uint32_t>{2});
  const json faults = ask({{"type", "list"}})["faults"];
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0]["by"], "scenario");
  EXPECT_EQ(faults[0]["state"], "armed");
  EXPECT_EQ(faults[1]["by"], "inject");
  EXPECT_EQ(faults[1]["kind"], "port_down");
  EXPECT_EQ(faults[1]["target"], "node1/nic0");
  EXPECT_EQ(faults[1]["state"], "triggered");
  EXPECT_EQ(faults[1]["effects"], 0);
  EXPECT_EQ(ask({{"type", "heal"}})["healed"], 2);
  EXPECT_EQ(fault(1)["state"], "removed");
  EXPECT_EQ(fault(2)["state"], "healed");
  EXPECT_EQ(ask({{"type", "heal"}})["healed"], 0);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0], "fault 2, port_down node1/nic0: added by inject");
  EXPECT_EQ(notes[1], "2 healed by inject");
}

TEST_F(Service, knows_which_faults_of_others_it_has_ended) {
  faultinject::FaultSpec own;
  own.target = faultinject::parse_target("node0/nic1");
  for (int i = 0; i < 4; ++i) board.arm(own);
  board.heal(3);  // by itself
  ask({{"type", "add"}, {"text", "{at: now, target: node1/nic0, kind: port_down}"}, {"file", "f"}});
  EXPECT_TRUE(service.ended().empty());
  ask({{"type", "remove"}, {"id", 2}});
  ask({{"type", "remove"}, {"id", 3}});
  ask({{"type", "remove"}, {"id", 5}});
  EXPECT_EQ(service.ended(), std::set<uint32_t>{2});
  ask({{"type", "heal"}});
  EXPECT_EQ(service.ended(), (std::set<uint32_t>{1, 2, 4}));
  EXPECT_EQ(service.added(), std::set<uint32_t>{5});
}

TEST_F(Service, adds_all_or_none) {
  EXPECT_THROW(
      ask({{"type", "add"},
           {"text",
            "- {at: now, target: node1/nic0, kind: noop}\n- {at: now, target: node7/nic0, kind: noop}"},
           {"file", "f"}}),
      faultinject::PlanError);
  EXPECT_EQ(board.armed(), 0u);
}

TEST_F(Service, a_time_counts_from_the_arming) {
  board.restart_clock();
  ask({{"type", "add"}, {"text", "{at: {time: 1 h}, target: '*/nic*', kind: noop}"}, {"file", "f"}});
  ask({{"type", "add"}, {"text", "{at: {time: 0}, target: '*/nic*', kind: noop}"}, {"file", "f"}});
  EXPECT_EQ(fault(1)["state"], "armed");
  EXPECT_EQ(fault(2)["state"], "triggered");
  EXPECT_EQ(fault(1)["triggered_ns"], 0);
}

// A job that answers waits while its answer does not fit into the socket: for as long as a client is stopped.
TEST_F(Service, an_answer_fits_into_a_socket_that_nobody_reads) {
  constexpr size_t kWitnesses = 3000, kSocket = 212'992;  // net.core.wmem_default
  ask({{"type", "add"}, {"text", "{at: now, target: '*/nic*', kind: noop}"}, {"file", "f"}});
  for (size_t i = 0; i < kWitnesses; ++i)
    board.report(1, UINT64_MAX - kWitnesses + i, 1, 0, faultinject::Effect::kKernelLinkDown);
  size_t told = 0;
  for (bool more = true; more;) {
    const json answer = ask({{"type", "witnesses"}, {"ids", {1}}, {"from", told}});
    EXPECT_LT(answer.dump().size(), kSocket * 3 / 4);
    told += answer["witnesses"].size();
    more = answer["more"];
  }
  EXPECT_EQ(told, kWitnesses);
}

TEST_F(Service, removes_one) {
  ask({{"type", "add"}, {"text", "{at: {wr: 10}, target: '*/nic*', kind: qp_error}"}, {"file", "f"}});
  EXPECT_EQ(ask({{"type", "remove"}, {"id", 1}})["was"], "armed");
  EXPECT_EQ(ask({{"type", "remove"}, {"id", 1}})["was"], "removed");
  EXPECT_THROW(ask({{"type", "remove"}, {"id", 2}}), std::out_of_range);
  EXPECT_THROW(ask({{"type", "remove"}, {"id", 0}}), std::out_of_range);
  EXPECT_FALSE(service.answer({{"type", "else"}}, "inject"));
}

}  // namespace
}  // namespace r2bench
