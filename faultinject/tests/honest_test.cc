// SPDX-License-Identifier: Apache-2.0
// The same seed and the same single-threaded program: the same faults at the same WRs, and the program sees
// the same. Another seed: other WRs.
#include <algorithm>
#include <sstream>

#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class HonestTest : public Nodes {
 protected:
  struct History {
    std::vector<std::string> program;  // what each of its calls answered
    std::vector<std::string> log;      // the witness log, without times and process ids
  };

  History run(uint64_t seed) {
    agents.clear();
    board = BoardHost::create({{"node0", 2}, {"node1", 2}}, seed);
    arm("{target: node0/nic0, kind: drop_completion, at: {probability: 0.1}, repeat: 1000}");
    arm("{target: node0/nic0, kind: post_fail, at: {wr: 7}, repeat: 4}");
    arm("{target: node0/nic0, kind: post_fail, errno: EIO, opcode: read, at: {probability: 0.3}, repeat: "
        "1000}");
    arm("{target: node0/nic0, kind: completion_error, status: REM_OP_ERR, qp: 1, at: {bytes: 400 B}}");
    start();
    a->make_qp(), b->make_qp();
    connect(*a, 1, *b, 1);
    History history;
    for (int i = 0; i < 120; i++) {
      const std::string qp = std::to_string(i % 2), operation = i % 3 == 0 ? " read " : " write ";
      history.program.push_back(a->ask("post " + qp + operation + std::to_string(i) + " 8 0"));
      std::istringstream answer(a->ask("poll " + qp + " send 1 0"));
      std::string word, fields;
      answer >> word >> fields;
      history.program.push_back(fields.substr(0, fields.rfind(':')));  // wr_id:status, without its time
    }
    for (const Witness& witness : board.witnesses()) {
      std::ostringstream line;
      const auto at = std::find(a->numbers.begin(), a->numbers.end(), witness.qp_num);
      line << witness.fault_id << " " << witness.node << "/nic" << witness.nic << " qp "
           << (at == a->numbers.end() ? -1 : at - a->numbers.begin()) << ": " << witness.what;
      history.log.push_back(line.str());
    }
    return history;
  }
};

TEST_F(HonestTest, the_same_seed_gives_the_same_faults_at_the_same_wrs) {
  const History first = run(7), second = run(7), other = run(8);
  EXPECT_EQ(first.program, second.program);
  EXPECT_EQ(first.log, second.log);
  EXPECT_GT(first.log.size(), 10u) << "enough happened to tell";
  EXPECT_NE(first.log, other.log) << "another seed draws other WRs";
}

TEST_F(HonestTest, queue_pairs_without_acknowledgements_draw_each_for_itself) {
  for (const std::string type : {"ud", "uc"}) {
    SCOPED_TRACE(type);
    agents.clear();
    board = BoardHost::create({{"node0", 2}, {"node1", 2}}, 42);
    arm("{target: node0/nic0, kind: post_fail, at: {probability: 0.5}, repeat: 100000}");
    ASSERT_NO_FATAL_FAILURE(start(14, 1, 128, "shared", type));
    a->make_qp(14, 1, 128, "shared", type), b->make_qp(14, 1, 128, "shared", type);
    ASSERT_NO_FATAL_FAILURE(connect(*a, 1, *b, 1));
    const auto draws = [&](int qp) {
      std::string refused;
      for (int i = 0; i < 64; i++)
        refused += a->ask("post " + std::to_string(qp) + " send 1 8 0") == "ok" ? '-' : 'x';
      return refused;
    };
    const std::string first = draws(0), second = draws(1);
    for (const std::string& each : {first, second}) {
      EXPECT_GT(std::count(each.begin(), each.end(), 'x'), 8) << each;
      EXPECT_LT(std::count(each.begin(), each.end(), 'x'), 56) << each;
    }
    EXPECT_NE(first, second);
  }
}

}  // namespace
}  // namespace faultinject::testing
