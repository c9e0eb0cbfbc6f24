// SPDX-License-Identifier: Apache-2.0
// perftest and ibv_rc_pingpong under the three faults that matter most: they fail with their own words,
// within a bound, and the injector's log names the completion that they saw.
#include "harness/programs/testing/broken_programs.h"

namespace r2bench::test {
namespace {

// Both programs set timeout 14 and 7 retries: (7 + 1) · 4.096 µs · 2^14.
constexpr uint64_t kRetryWindowNs = 8 * 4096ull << 14;
constexpr int kFlushed = 5, kRetryExceeded = 12;
const char* const kQpToErr = "QP moved to ERR";

struct Case {
  const Program* program;
  const char* kind;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Program& program : foreign_programs())
    for (const char* kind : {"port_down", "qp_error", "blackhole"}) cases.push_back({&program, kind});
  return cases;
}

class PerftestFaults : public BrokenPrograms, public testing::WithParamInterface<Case> {
 protected:
  const Program& program() const { return *GetParam().program; }
  std::string kind() const { return GetParam().kind; }
  bool cuts_the_port() const { return kind() != "qp_error"; }

  /// What the client printed, what it ended with, and what the log says that it saw, are one story.
  void expect_failure(Command& client, const Log& log) {
    EXPECT_GT(client.status(kBoundSeconds), 0) << client.output();
    EXPECT_LT(client.status(), 64) << "its own status, not one of r2bench's\n" << client.output();
    const auto printed = failed_status(program(), client.output());
    ASSERT_TRUE(printed) << client.output();
    if (std::string(program().name).starts_with("ib_")) {
      EXPECT_NE(client.output().find("Completion with error at"), std::string::npos) << client.output();
    }
    // Who looks at its receive queue first finds that one flushed.
    EXPECT_TRUE(*printed == kFlushed || (cuts_the_port() && *printed == kRetryExceeded)) << *printed;
    if (cuts_the_port() && !program().receives) {
      EXPECT_EQ(*printed, kRetryExceeded);
    }

    EXPECT_EQ(log.fault["took_effect"], true);
    EXPECT_TRUE(log.has("node1", kQpToErr)) << log.fault.dump(1);
    const auto seen = log.seen_next("node1");
    ASSERT_FALSE(seen.empty()) << log.fault.dump(1);
    EXPECT_EQ(seen.back(), *printed) << log.fault.dump(1);
    EXPECT_EQ(log.has("node1", "PORT_ERR delivered"), kind() == "port_down");
    EXPECT_EQ(log.has("node1", "QP_FATAL delivered"), kind() == "qp_error");
    EXPECT_EQ(log.has("node1", "WC 12 shown"), cuts_the_port());
    // A cut port is dead to its peer, too, also to a server that only receives and stays in RTR.
    EXPECT_EQ(log.has("node0", kQpToErr), cuts_the_port());
    if (cuts_the_port()) {
      // It begins when the request is posted, which may be a little before the fault takes effect.
      EXPECT_GE(log.after_t0_ns("node1", "WC 12 shown") + 1'000'000, kRetryWindowNs);
    }
  }
};

TEST_P(PerftestFaults, a_planned_fault_ends_it_in_its_own_words) {
  const Ends ends =
      start_pair(program().words, "- {at: {wr: 500}, target: node1/nic0, kind: " + kind() + "}\n");
  ASSERT_GE(ends.client->status(kBoundSeconds), 0) << "it hangs\n" << ends.client->output();
  expect_failure(*ends.client, log_of());
  EXPECT_NE(ends.client->output().find("the program's next completion there: "), std::string::npos)
      << "the story on stderr tells it, too\n"
      << ends.client->output();
  end_server(*ends.server);
}

TEST_P(PerftestFaults, a_fault_added_by_hand_ends_it_and_heal_lets_the_next_one_run) {
  Command& keeper = stay({"--node", "node1", "--rate", "1 Gbit/s"});  // the fabric outlives both programs
  const Ends ends = start_pair(program().words, "");
  const std::string fault = "{at: {wr: 200}, target: node1/nic0, kind: " + kind() + "}";
  ASSERT_EQ(inject({"add", fault}, name), "1\n");
  ASSERT_GE(ends.client->status(kBoundSeconds), 0) << "it hangs\n" << ends.client->output();
  const auto story = nlohmann::json::parse(inject({"list", "--json", "--effects"}, name));
  ASSERT_EQ(story["faults"].size(), 1u);
  expect_failure(*ends.client, {story["faults"][0]});
  EXPECT_EQ(story["faults"][0]["state"], "at work");
  EXPECT_NE(inject({"list", "--effects"}, name).find("the program's next completion there: "),
            std::string::npos);
  end_server(*ends.server);

  EXPECT_NE(inject({"heal"}, name).find("1 healed"), std::string::npos);
  EXPECT_EQ(faults(name)[0]["state"], "healed");
  Words few = program().words;
  few.back() = "200";
  const Ends again = start_pair(few, "", {});
  EXPECT_EQ(again.client->status(kBoundSeconds), 0) << again.client->output();
  EXPECT_EQ(again.server->status(kBoundSeconds), 0) << again.server->output();
  keeper.release();
  EXPECT_EQ(keeper.status(), 0);
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.program->name) + "_" + info.param.kind;
}
INSTANTIATE_TEST_SUITE_P(Foreign, PerftestFaults, testing::ValuesIn(all_cases()), name_of);

class PerftestBothEnds : public BrokenPrograms {};

TEST_F(PerftestBothEnds, a_qp_error_of_both_ends_fails_client_and_server_with_flushes) {
  for (const Program& program : foreign_programs()) {
    if (std::string(program.name) != "ib_send_bw" && std::string(program.name) != "ibv_rc_pingpong") continue;
    // Armed by hand, so that it is not healed the moment the client has ended, which the server may not have
    // noticed.
    name += "b";
    Command& keeper = stay({"--node", "node1", "--rate", "1 Gbit/s"});
    const Ends ends = start_pair(program.words, "");
    inject({"add", "{at: {wr: 500}, target: node1/nic0, kind: qp_error, side: both}"}, name);
    EXPECT_GT(ends.client->status(kBoundSeconds), 0) << ends.client->output();
    EXPECT_GT(ends.server->status(kBoundSeconds), 0) << ends.server->output();
    for (Command* command : {ends.client, ends.server})
      EXPECT_EQ(failed_status(program, command->output()), kFlushed) << command->output();
    const Log log{nlohmann::json::parse(inject({"list", "--json", "--effects"}, name))["faults"][0]};
    for (const char* node : {"node0", "node1"}) {
      EXPECT_TRUE(log.has(node, kQpToErr)) << log.fault.dump(1);
      const auto seen = log.seen_next(node);
      EXPECT_FALSE(seen.empty() || seen.back() != kFlushed) << log.fault.dump(1);
    }
    keeper.release();
    EXPECT_EQ(keeper.status(), 0);
    EXPECT_TRUE(eventually([&] { return !listens(name); }));
  }
}

TEST_F(PerftestBothEnds, programs_asleep_on_their_completion_channels_go_on_when_a_fault_is_healed) {
  for (const char* kind : {"freeze", "blackhole, direction: in", "blackhole, direction: out"}) {
    name += "h";
    const Words words = {"ibv_rc_pingpong", "-e", "-d", "vhca0", "-g", "1", "-n", "3000"};
    // Well within the retries of both ends, half a second.
    const Ends ends = start_pair(words, "- {at: {wr: 500}, target: node1/nic0, for: 50 ms, kind: " +
                                            std::string(kind) + "}\n");
    for (Command* end : {ends.client, ends.server}) {
      EXPECT_EQ(end->status(60), 0) << kind << "\n" << end->output();
      EXPECT_NE(end->output().find("usec/iter"), std::string::npos) << kind << "\n" << end->output();
    }
    const Log log = log_of();
    EXPECT_TRUE(log.fault["took_effect"]) << log.fault.dump(1);
    for (const char* node : {"node0", "node1"}) EXPECT_FALSE(log.has(node, kQpToErr)) << log.fault.dump(1);
  }
}

TEST_F(PerftestBothEnds, a_qp_error_of_the_peer_alone_runs_the_client_into_its_retries) {
  const Program& program = foreign_programs()[0];
  const Ends ends =
      start_pair(program.words, "- {at: {wr: 500}, target: node1/nic0, kind: qp_error, side: remote}\n");
  EXPECT_GT(ends.client->status(kBoundSeconds), 0) << ends.client->output();
  EXPECT_EQ(failed_status(program, ends.client->output()), kRetryExceeded) << ends.client->output();
  const Log log = log_of();
  EXPECT_TRUE(log.has("node0", kQpToErr)) << log.fault.dump(1);
  EXPECT_FALSE(log.has("node1", kQpToErr)) << log.fault.dump(1);
  end_server(*ends.server);
}

TEST_F(PerftestBothEnds, a_throttle_of_a_second_is_seen_and_then_it_runs_to_its_end) {
  const Words write_bw = {"ib_write_bw", "-d", "vhca0", "-x", "1", "-F", "-n", "2000"};
  const Ends ends = start_pair(
      write_bw, "- {at: {wr: 300}, target: node1/nic0, kind: throttle, rate: 100 Mbit/s, for: 1 s}\n");
  EXPECT_EQ(ends.client->status(kBoundSeconds), 0) << ends.client->output();
  EXPECT_EQ(ends.server->status(kBoundSeconds), 0) << ends.server->output();
  const Log log = log_of();
  EXPECT_EQ(log.fault["state"], "healed");
  EXPECT_TRUE(log.has("node1", "WR of 65536 bytes withheld")) << log.fault.dump(1);
  EXPECT_EQ(log.seen_next("node1"), std::vector<int>{0}) << log.fault.dump(1);
}

}  // namespace
}  // namespace r2bench::test
