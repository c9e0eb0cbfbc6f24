// SPDX-License-Identifier: Apache-2.0
// Work that foreign programs post by ibv_wr_*: faults strike the WR that they were told to, and only
// operations that they name. A spy beside the injector tells which interface the program uses.
#include "harness/programs/testing/broken_programs.h"

namespace r2bench::test {
namespace {

const char* const kSpySays = "spy: ibv_qp_to_qp_ex called by";

struct Way {
  Words words;
  bool extended;
};

class ExtendedReach : public BrokenPrograms {
 protected:
  static const std::vector<Way>& ways() {
    // One completion per WR (-Q 1), so that perftest's ccnt is the number of WRs that were done.
    static const Words write_bw = {"ib_write_bw", "-d", "vhca0", "-x", "1", "-F", "-Q", "1", "-s", "4096"};
    static const std::vector<Way> all = {{write_bw, true}, {with(write_bw, "--use_old_post_send"), false}};
    return all;
  }
  static Words with(Words words, const std::string& more) {
    words.push_back(more);
    return words;
  }
  static Words with_length(Words words, int exchanges) {
    words.insert(words.end(), {"-n", std::to_string(exchanges)});
    return words;
  }
  /// The program, with the spy preloaded, so that it can be told what it used.
  static Words spied(const Words& words) {
    char self[PATH_MAX] = {};
    EXPECT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
    const std::string spy = (fs::path(self).parent_path().parent_path() / "lib/libextended_spy.so").string();
    EXPECT_TRUE(fs::exists(spy)) << spy;
    // The shell keeps what the command preloads already; the spy comes before the injector, which has
    // ibv_query_device, too.
    std::string line = "EXTENDED_SPY_DEVICE=4119 LD_PRELOAD=\"" + spy + ":$LD_PRELOAD\" exec";  // ConnectX-5
    for (const std::string& word : words) line += " " + word;
    return {"sh", "-c", line + " \"$@\"", "sh"};
  }
  void expect_interface(const Way& way, const Command& command) {
    EXPECT_EQ(command.output().find(kSpySays) != std::string::npos, way.extended) << command.output();
  }
};

TEST_F(ExtendedReach, the_nth_wr_fails_by_either_interface) {
  for (const Way& way : ways()) {
    const Ends ends =
        start_pair(spied(with_length(way.words, 5000)),
                   "- {at: {wr: 1234}, target: node1/nic0, kind: completion_error, status: REM_OP_ERR}\n");
    EXPECT_GT(ends.client->status(kBoundSeconds), 0) << ends.client->output();
    const std::string output = ends.client->output();
    expect_interface(way, *ends.client);
    EXPECT_NE(output.find("Failed status 11: wr_id 0"), std::string::npos) << output;  // REM_OP_ERR
    EXPECT_NE(output.find("ccnt=1233\n"), std::string::npos) << "1233 were done before it\n" << output;
    const Log log = log_of();
    EXPECT_EQ(log.count("WR made to fail with REM_OP_ERR"), 1u) << log.fault.dump(1);
    EXPECT_EQ(log.count("WC rewritten to 11"), 1u) << log.fault.dump(1);
    end_server(*ends.server);
  }
}

TEST_F(ExtendedReach, the_nth_wr_is_refused_by_either_interface) {
  for (const Way& way : ways()) {
    const Ends ends =
        start_pair(spied(with_length(way.words, 5000)),
                   "- {at: {wr: 777}, target: node1/nic0, kind: post_fail, errno: ENOMEM, opcode: write}\n");
    EXPECT_GT(ends.client->status(kBoundSeconds), 0) << ends.client->output();
    const std::string output = ends.client->output();
    expect_interface(way, *ends.client);
    EXPECT_NE(output.find("Couldn't post send: qp 0 scnt=776 "), std::string::npos) << output;
    EXPECT_EQ(log_of().count("post refused with ENOMEM"), 1u) << log_of().fault.dump(1);
    end_server(*ends.server);
  }
}

TEST_F(ExtendedReach, a_fault_of_other_operations_lets_writes_pass) {
  for (const Way& way : ways()) {
    const Ends ends = start_pair(
        spied(with_length(way.words, 2000)),
        "- {at: {wr: 10}, target: node1/nic0, kind: completion_error, status: REM_OP_ERR, opcode: read}\n"
        "- {at: {wr: 10}, target: node1/nic0, kind: noop, opcode: write}\n");
    EXPECT_EQ(ends.client->status(kBoundSeconds), 0) << ends.client->output();
    EXPECT_EQ(ends.server->status(kBoundSeconds), 0) << ends.server->output();
    expect_interface(way, *ends.client);
    EXPECT_EQ(log_of(0).fault["took_effect"], false) << log_of(0).fault.dump(1);
    EXPECT_EQ(log_of(1).count("WR of 4096 bytes seen"), 1u) << log_of(1).fault.dump(1);
  }
}

TEST_F(ExtendedReach, sends_reads_and_atomics_are_struck_by_their_opcode) {
  struct Operation {
    const char *program, *opcode;
  };
  for (const auto& [program, opcode] : {Operation{"ib_send_bw", "send"},
                                        {"ib_read_bw", "read"},
                                        {"ib_atomic_bw", "atomic_fetch_add"},
                                        {"ib_write_lat", "write"}}) {
    const Words words = {program, "-d", "vhca0", "-x", "1", "-F", "-n", "3000"};
    const Ends ends = start_pair(spied(words),
                                 "- {at: {wr: 600}, target: node1/nic0, kind: completion_error, status: "
                                 "REM_ACCESS_ERR, opcode: " +
                                     std::string(opcode) + "}\n");
    EXPECT_GT(ends.client->status(kBoundSeconds), 0) << ends.client->output();
    EXPECT_NE(ends.client->output().find(kSpySays), std::string::npos) << ends.client->output();
    EXPECT_NE(ends.client->output().find("Failed status 10: wr_id 0"), std::string::npos)
        << ends.client->output();
    EXPECT_EQ(log_of().count("WR made to fail with REM_ACCESS_ERR"), 1u) << log_of().fault.dump(1);
    end_server(*ends.server);
  }
}

TEST_F(ExtendedReach, pingpong_by_ibv_wr_is_reached_too) {
  const Program& pingpong = foreign_programs().back();
  const Ends ends = start_pair(with(pingpong.words, "-N"),
                               "- {at: {wr: 300}, target: node1/nic0, kind: completion_error, status: "
                               "REM_ACCESS_ERR, opcode: send}\n");
  EXPECT_GT(ends.client->status(kBoundSeconds), 0) << ends.client->output();
  EXPECT_EQ(failed_status(pingpong, ends.client->output()), 10) << ends.client->output();
  EXPECT_EQ(log_of().count("WC rewritten to 10"), 1u) << log_of().fault.dump(1);
  end_server(*ends.server);
}

}  // namespace
}  // namespace r2bench::test
