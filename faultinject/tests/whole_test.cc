// SPDX-License-Identifier: Apache-2.0
// What all faults have in common, on real programs: every name that a plan may use does what it says; targets
// are as wide as their patterns; several faults come in the order that the plan gives; and heal puts
// everything back, whatever was injected.
#include <algorithm>
#include <cerrno>

#include "faultinject/control/board.h"
#include "faultinject/plan/names.h"
#include "faultinject/tests/testing/nodes.h"

namespace faultinject::testing {
namespace {

class WholeTest : public Nodes {
 protected:
  void expect_healthy(int qp) {
    a->must("post " + std::to_string(qp) + " write 1 8 0");
    const auto wcs = a->poll(qp, 1, 10000);
    ASSERT_EQ(wcs.size(), 1u);
    EXPECT_EQ(wcs[0].status, kSuccess);
  }
};

TEST_F(WholeTest, every_async_event_comes_by_its_name) {
  start(14, 1, 16, "shared", "srq");
  int shown = 0;
  for (const std::string& name : event_names()) {
    if (name == "WQ_FATAL") continue;  // of work queues, which no program here has
    const uint32_t id = arm("{target: node0/nic0, kind: async_event, event: " + name + ", at: now}");
    if (count(id, Effect::kEventDelivered) == 0) {  // of a queue pair: it waits for one that posts
      a->must("post 0 write 1 8 0");
      EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess) << name;
    }
    const std::string wanted = "event " + std::to_string(*event_number(name));
    EXPECT_EQ(a->ask("event 10000").substr(0, wanted.size()), wanted) << name;
    EXPECT_EQ(count(id, Effect::kEventDelivered), 1u) << name;
    shown++;
  }
  EXPECT_EQ(shown, 19);
  EXPECT_EQ(b->ask("event 0"), "none");
  expect_healthy(0);
}

TEST_F(WholeTest, a_post_before_rts_is_refused_whatever_keeps_sends_back) {
  start();
  const int reset = a->make_qp(), init = a->make_qp(), receiver = a->make_qp();
  const int peer = b->make_qp();
  a->must("init " + std::to_string(init));
  ASSERT_EQ(a->ask("connect " + std::to_string(receiver) + " " + std::to_string(b->numbers[size_t(peer)]) +
                   " " + b->gid + " " + b->address + " " + b->key + " receive"),
            "ok");
  for (const char* kind : {"noop", "throttle, rate: 1 kbit/s", "delay, delay: 1 h",
                           "port_flap, down: 1 h, up: 1 ms", "reorder, window: 1 h, depth: 100", "freeze"}) {
    const uint32_t id = arm("{target: node0/nic0, at: now, kind: " + std::string(kind) + "}");
    if (kind == std::string("freeze")) {
      ASSERT_TRUE(took_effect_within(id, 5000));
    } else {
      EXPECT_EQ(a->ask("create_cq"), "ok") << "its process has heard of it";
    }
    for (const int qp : {reset, init, receiver})
      EXPECT_EQ(a->ask("post " + std::to_string(qp) + " write 1 8 0"), "errno " + std::to_string(EINVAL))
          << kind << " qp " << qp;
    board.heal(id);
    EXPECT_EQ(a->ask("create_cq"), "ok");
    expect_healthy(0);
  }
}

TEST_F(WholeTest, a_post_before_rts_is_not_counted_and_takes_no_strike) {
  const uint32_t at_third =
      arm("{target: node0/nic0, kind: completion_error, status: REM_OP_ERR, at: {wr: 3}}");
  start();
  const int reset = a->make_qp(), init = a->make_qp();
  a->must("init " + std::to_string(init));
  const auto expect_refused = [&] {
    for (const int qp : {reset, init})
      EXPECT_EQ(a->ask("post " + std::to_string(qp) + " write 1 8 0"), "errno " + std::to_string(EINVAL));
  };
  for (int i = 1; i <= 2; i++) {
    expect_refused();
    expect_healthy(0);
  }
  EXPECT_EQ(board.state(at_third).phase, FaultState::Phase::kArmed);
  const uint32_t refuses = arm("{target: node0/nic0, kind: post_fail, errno: EIO, at: now}");
  EXPECT_EQ(a->ask("create_cq"), "ok") << "its process has heard of it";
  expect_refused();
  EXPECT_EQ(board.state(refuses).t0_ns, 0u);
  board.heal(refuses);
  EXPECT_EQ(a->ask("create_cq"), "ok");
  a->must("post 0 write 3 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, *status_number("REM_OP_ERR"));
}

TEST_F(WholeTest, a_completion_fails_with_every_status_by_its_name) {
  struct Armed {
    std::string name;
    uint32_t id;
  };
  std::vector<Armed> all;  // each strikes the first of two WRs; armed first, so that no post is faster
  for (const std::string& name : status_names()) {
    if (*status_number(name) == kSuccess || *status_number(name) == kFlushed) continue;
    const std::string at = "at: {wr: " + std::to_string(2 * all.size() + 1) + "}";
    all.push_back(
        {name, arm("{target: node0/nic0, kind: completion_error, status: " + name + ", " + at + "}")});
  }
  EXPECT_GT(all.size(), 15u);
  start();
  int qp = 0;
  for (const auto& [name, id] : all) {
    a->must("post " + std::to_string(qp) + " write 1 8 0 unsignaled");
    a->must("post " + std::to_string(qp) + " write 2 8 0");
    const auto wcs = a->poll(qp, 2, 10000);
    ASSERT_EQ(wcs.size(), 2u) << name;
    EXPECT_EQ(wcs[0].wr_id, 1u);
    EXPECT_EQ(wcs[0].status, *status_number(name)) << name;
    EXPECT_EQ(wcs[1].status, kFlushed);
    EXPECT_EQ(count(id, Effect::kWcRewritten), 1u) << name;
    qp = a->make_qp();
    b->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(*a, qp, *b, qp));
  }
  expect_healthy(qp);
}

TEST_F(WholeTest, three_faults_strike_in_exactly_the_order_of_the_plan) {
  const uint32_t first = arm("{name: first, target: node0/nic0, kind: drop_completion, at: {wr: 3}}");
  const uint32_t second =
      arm("{name: second, target: node0/nic0, kind: post_fail, errno: EIO, after: first}");
  const uint32_t third =
      arm("{target: node0/nic0, kind: async_event, event: SM_CHANGE, after: {fault: second, wait: 30 ms}}");
  start();
  for (int i = 1; i <= 2; i++) {
    a->must("post 0 write " + std::to_string(i) + " 8 0");
    EXPECT_EQ(a->poll(0, 1, 10000).at(0).wr_id, uint64_t(i));
  }
  EXPECT_EQ(board.state(second).t0_ns, 0u) << "its turn has not come";
  a->must("post 0 write 3 8 0");
  EXPECT_TRUE(a->poll(0, 1, 100).empty()) << "the first one took it";
  ASSERT_TRUE(eventually([&] { return board.state(second).triggered_ns != 0; }));
  EXPECT_EQ(board.state(third).triggered_ns, 0u) << "the second one has touched nothing yet";
  EXPECT_TRUE(eventually([&] { return a->ask("post 0 write 4 8 0") == "errno " + std::to_string(EIO); }));
  EXPECT_EQ(a->ask("event 10000"), "event " + std::to_string(kEventSmChange));
  const uint64_t t0[] = {board.state(first).t0_ns, board.state(second).t0_ns, board.state(third).t0_ns};
  EXPECT_LT(t0[0], t0[1]);
  EXPECT_LE(t0[1] + 30 * kMs, t0[2]);
}

// Each round begins at one more WR, whichever process posts it, and strikes the next post of any of them.
TEST_F(WholeTest, a_fault_repeats_at_every_twentieth_wr_of_eight_processes) {
  constexpr int kProcesses = 8;
  constexpr uint64_t kPosts = 10000, kEvery = 20, kRounds = kProcesses * kPosts / kEvery;
  const uint32_t id = arm("{target: node0/nic0, kind: post_fail, errno: EIO, at: {wr: 20}, repeat: 60000}");
  b = &agent("node1", "8");
  ASSERT_NO_FATAL_FAILURE(b->open());
  std::vector<Agent*> posters;
  for (int i = 0; i < kProcesses; i++) {
    Agent& poster = agent("node0", std::to_string(i));
    posters.push_back(&poster);
    ASSERT_NO_FATAL_FAILURE(poster.open());
    poster.make_qp();
    b->make_qp();
    ASSERT_NO_FATAL_FAILURE(connect(poster, 0, *b, i));
  }
  for (Agent* each : posters) each->tell("posts 0 " + std::to_string(kPosts));
  uint64_t refused = 0;
  for (Agent* each : posters) {
    const std::string answer = each->hear();
    ASSERT_EQ(answer.substr(0, 3), "ok ") << answer;
    refused += std::stoull(answer.substr(3));
  }
  EXPECT_LE(refused, kRounds);
  EXPECT_GE(refused + kProcesses, kRounds) << "one that began in the last posts may find no other";
  EXPECT_LE(refused, board.state(id).rounds);
  EXPECT_EQ(count(id, Effect::kPostRefused), refused) << "each is the first of its round";
}

// However many strikes the rounds before it had.
TEST_F(WholeTest, each_round_has_a_record_of_its_first_strike) {
  constexpr uint64_t kStrikes = 200, kRounds = 10;
  const uint32_t id = arm("{target: node0/nic0, kind: post_fail, errno: EIO, at: {wr: 1}, count: " +
                          std::to_string(kStrikes) + ", repeat: " + std::to_string(kRounds) + "}");
  start();
  a->tell("posts 0 " + std::to_string((kStrikes + 1) * kRounds));
  const std::string answer = a->hear();
  ASSERT_EQ(answer.substr(0, 3), "ok ") << answer;
  ASSERT_GE(std::stoull(answer.substr(3)), kStrikes * (kRounds - 1) + 1);
  std::map<uint32_t, uint64_t> of_round;
  for (const Witness& witness : board.witnesses(id))
    of_round[witness.round] += witness.effect == Effect::kPostRefused;
  EXPECT_EQ(of_round.size(), kRounds);
  EXPECT_EQ(of_round[0], kStrikes);
  EXPECT_EQ(of_round[kRounds - 1], 1u) << "the first one alone, where the others would be too many";
}

TEST_F(WholeTest, each_record_says_its_round_whatever_strikes_and_whenever_it_shows) {
  start(10, 1);
  int qp = 0;
  for (const std::string kind : {"qp_error", "ack_lost", "ack_lost, report: after_retries",
                                 "port_down, for: 20 ms", "blackhole, for: 20 ms", "freeze, for: 20 ms"}) {
    const uint32_t id = arm("{target: node0/nic0, at: {wr: 1}, repeat: 2, kind: " + kind + "}");
    std::map<uint32_t, uint32_t> rounds;  // by queue pair
    for (const uint32_t round : {0u, 1u}) {
      qp++;
      a->make_qp(), b->make_qp();
      ASSERT_NO_FATAL_FAILURE(connect(*a, qp, *b, qp));
      rounds[a->numbers[size_t(qp)]] = round;
      a->must("post " + std::to_string(qp) + " write 1 4096 0");
      ASSERT_EQ(a->poll(qp, 1, 10000).size(), 1u) << kind;
      ASSERT_TRUE(eventually([&] {
        const FaultState state = board.state(id);
        return state.rounds == round + 1 && (round > 0 || state.phase == FaultState::Phase::kArmed);
      })) << kind;
    }
    std::map<uint32_t, size_t> records;  // of each round
    for (const Witness& witness : board.witnesses(id)) {
      if (const auto own = rounds.find(witness.qp_num); own != rounds.end())
        EXPECT_EQ(witness.round, own->second) << kind << ": " << witness.what;
      ++records[witness.round];
    }
    EXPECT_EQ(records.size(), 2u) << kind;
    board.heal(id);
  }
}

TEST_F(WholeTest, a_pattern_strikes_what_it_matches_and_nothing_else) {
  start();
  const uint32_t other = arm("{target: 'node*/nic[1-1]', kind: post_fail, count: all, at: now}");
  expect_healthy(0);
  EXPECT_EQ(board.state(other).t0_ns, 0u) << "nobody uses those";
  const uint32_t all = arm("{target: 'node*/nic[0-1]', kind: post_fail, errno: EIO, count: all, at: now}");
  for (Agent* each : {a, b})
    EXPECT_TRUE(
        eventually([&] { return each->ask("post 0 write 1 8 0") == "errno " + std::to_string(EIO); }));
  EXPECT_TRUE(witnessed(all, Effect::kPostRefused, "node0"));
  EXPECT_TRUE(witnessed(all, Effect::kPostRefused, "node1"));
}

class TwoPortsTest : public Nodes {
 protected:
  TwoPortsTest() : Nodes({}, 1, 2) {}
};

TEST_F(TwoPortsTest, a_fault_of_one_port_leaves_the_other_alone) {
  start(10, 1);  // its queue pairs use port 1
  const uint32_t second = arm("{target: node0/nic0/port:2, kind: port_down, at: now}");
  EXPECT_EQ(a->ask("event 5000"), "event " + std::to_string(kEventPortErr));
  EXPECT_EQ(a->ask("event 50"), "none") << "of one port only";
  EXPECT_EQ(a->ask("port 2").substr(0, 4), "ok " + std::to_string(kPortDown));
  EXPECT_EQ(a->ask("port 1").substr(0, 4), "ok " + std::to_string(kPortActive));
  a->must("post 0 write 1 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kSuccess);
  EXPECT_EQ(count(second, Effect::kQpToErr), 0u);
  const uint32_t first = arm("{target: node0/nic0/port:1, kind: port_down, at: now}");
  ASSERT_TRUE(eventually([&] { return witnessed(first, Effect::kQpToErr, "node0"); }));
  a->must("post 0 write 2 8 0");
  EXPECT_EQ(a->poll(0, 1, 10000).at(0).status, kRetryExceeded);
  board.heal_all();
  for (const char* port : {"port 1", "port 2"})
    EXPECT_TRUE(eventually([&] { return a->ask(port).substr(0, 4) == "ok " + std::to_string(kPortActive); }));
}

TEST_F(WholeTest, heal_puts_everything_back_whatever_was_injected) {
  start();
  const std::vector<std::string> lasting = {"kind: noop",
                                            "kind: port_down",
                                            "kind: blackhole",
                                            "kind: blackhole, direction: in",
                                            "kind: port_flap, down: 20 ms, up: 20 ms, count: 1000",
                                            "kind: throttle, rate: 1 Mbit/s",
                                            "kind: delay, delay: 10 s",
                                            "kind: reorder, window: 10 s",
                                            "kind: device_fatal",
                                            "kind: cq_error, qp: all",
                                            "kind: completion_error, status: REM_OP_ERR, count: all",
                                            "kind: drop_completion, count: all",
                                            "kind: post_fail, count: all",
                                            "kind: poll_fail, count: all",
                                            "kind: reg_fail, count: all",
                                            "kind: connect_fail, count: all",
                                            "kind: gid_change",
                                            "kind: ack_lost, min_bytes: 1 B",
                                            "kind: qp_error",
                                            "kind: async_event, event: SM_CHANGE",
                                            "kind: freeze"};
  for (const std::string& one : lasting) arm("{target: '*/*', at: now, " + one + "}");
  ASSERT_TRUE(eventually([&] { return board.state(uint32_t(lasting.size())).t0_ns != 0; })) << "it is frozen";
  board.heal_all();
  for (uint32_t id = 1; id <= board.armed(); id++)
    EXPECT_EQ(board.state(id).phase, FaultState::Phase::kHealed) << lasting[id - 1];
  for (Agent* each : {a, b}) {
    EXPECT_TRUE(eventually([&] { return each->port_state() == kPortActive; }));
    EXPECT_EQ(each->ask("register"), "ok");
    EXPECT_EQ(each->ask("create_cq"), "ok");
    EXPECT_EQ(each->ask("gid 1"), "ok " + each->gid) << "the address is back";
  }
  const int qp = a->make_qp();
  EXPECT_EQ(b->make_qp(), qp);
  ASSERT_NO_FATAL_FAILURE(connect(*a, qp, *b, qp));
  for (int i = 0; i < 100; i++) expect_healthy(qp);
  // Nothing is armed, so nothing may be in the way: not even the old queue pair, once it is gone.
  a->must("destroy 0");
  a->must("close");
  EXPECT_EQ(a->wait_for_exit(), 0);
}

}  // namespace
}  // namespace faultinject::testing
