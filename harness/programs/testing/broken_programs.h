// SPDX-License-Identifier: Apache-2.0
// Two programs that nobody here wrote, each started by `r2bench exec` on a node of a shared fabric, a fault
// between them, and what they and the injector's log said about it.
#pragma once

#include <map>
#include <optional>
#include <regex>

#include "harness/exec/testing/exec_fixture.h"

namespace r2bench::test {

// A program that this machine may pause for minutes still ends within this; a hang does not.
inline constexpr int kBoundSeconds = 700;

struct Program {
  const char* name;
  Words words;
  /// Its own words for a completion that failed; group 1 is the status' number.
  const char* failure;
  bool receives;  ///< its client is sent messages, too
};

inline const std::vector<Program>& foreign_programs() {
  static const char* const perftest = "Failed status ([0-9]+): wr_id [0-9]+ syndrom 0x";
  static const char* const pingpong = "Failed status .* \\(([0-9]+)\\) for wr_id [0-9]+";
  // So many exchanges that none ends by itself before it is broken.
  static const std::vector<Program> all = {
      {"ib_write_bw", {"ib_write_bw", "-d", "vhca0", "-x", "1", "-F", "-n", "100000"}, perftest, false},
      {"ib_send_bw", {"ib_send_bw", "-d", "vhca0", "-x", "1", "-F", "-n", "100000"}, perftest, false},
      {"ib_read_bw", {"ib_read_bw", "-d", "vhca0", "-x", "1", "-F", "-n", "100000"}, perftest, false},
      {"ib_send_lat", {"ib_send_lat", "-d", "vhca0", "-x", "1", "-F", "-n", "1000000"}, perftest, true},
      {"ibv_rc_pingpong", {"ibv_rc_pingpong", "-d", "vhca0", "-g", "1", "-n", "1000000"}, pingpong, true},
  };
  return all;
}

/// The number of the status that the program says its completion failed with.
inline std::optional<int> failed_status(const Program& program, const std::string& output) {
  std::smatch match;
  if (!std::regex_search(output, match, std::regex(program.failure))) return std::nullopt;
  return std::stoi(match[1]);
}

inline int status_number(const std::string& name) {
  static const std::map<std::string, int> numbers = {
      {"SUCCESS", 0},     {"LOC_PROT_ERR", 4},   {"WR_FLUSH_ERR", 5},      {"REM_ACCESS_ERR", 10},
      {"REM_OP_ERR", 11}, {"RETRY_EXC_ERR", 12}, {"RNR_RETRY_EXC_ERR", 13}};
  const auto found = numbers.find(name);
  return found != numbers.end() ? found->second : -1;
}

/// What a fault's record says of one node.
struct Log {
  nlohmann::json fault;

  bool has(const std::string& node, const std::string& what) const {
    return std::any_of(effects().begin(), effects().end(), [&](const nlohmann::json& effect) {
      return effect["node"] == node && effect["what"] == what;
    });
  }
  size_t count(const std::string& what) const {
    return size_t(std::count_if(effects().begin(), effects().end(),
                                [&](const nlohmann::json& effect) { return effect["what"] == what; }));
  }
  /// The statuses that the program on `node` was seen to poll after the fault had struck, in their order.
  std::vector<int> seen_next(const std::string& node) const {
    static const std::string words = "the program's next completion there: ";
    std::vector<int> all;
    for (const nlohmann::json& effect : effects()) {
      const auto what = effect["what"].get<std::string>();
      if (effect["node"] == node && what.starts_with(words))
        all.push_back(status_number(what.substr(words.size())));
    }
    return all;
  }
  /// From t0 to the first such record; 0 when there is none.
  uint64_t after_t0_ns(const std::string& node, const std::string& what) const {
    for (const nlohmann::json& effect : effects())
      if (effect["node"] == node && effect["what"] == what)
        return effect["time_ns"].get<uint64_t>() - fault["t0_ns"].get<uint64_t>();
    return 0;
  }
  const nlohmann::json& effects() const { return fault["effects"]; }
};

class BrokenPrograms : public Exec {
 protected:
  void SetUp() override {
    Exec::SetUp();
    if (IsSkipped()) return;
    for (const auto& [program, package] :
         {std::pair{"ib_write_bw", "perftest"}, {"ibv_rc_pingpong", "ibverbs-utils"}})
      FAIL_UNLESS_INSTALLED(program, package);
  }

  /// The program as a server on node0 and as its client on node1, where `plan` is armed before it starts.
  struct Ends {
    Command* server;
    Command* client;
  };
  Ends start_pair(const Words& words, const std::string& plan,
                  const Words& of_fabric = {"--rate", "1 Gbit/s"}) {
    Words first = {"--node", "node0"};
    first.insert(first.end(), of_fabric.begin(), of_fabric.end());
    Ends ends{};
    ends.server = &server(first, words);
    Words second = {"--node", "node1"};
    if (!plan.empty())
      second.insert(second.end(), {"--plan", file("plan.yaml", plan), "--witness", folder + "/witness.json"});
    ends.client = &client(second, words);
    return ends;
  }

  /// The record of the plan's n-th fault; the client must have ended.
  Log log_of(size_t n = 0) {
    const auto story = nlohmann::json::parse(contents(folder + "/witness.json"), nullptr, false);
    if (story.is_discarded() || story["faults"].size() <= n) {
      ADD_FAILURE() << "there is no record of fault " << n + 1;
      return {{{"effects", nlohmann::json::array()}, {"t0_ns", 0}, {"took_effect", false}}};
    }
    return {story["faults"][n]};
  }

  /// Whoever only waits for messages that no longer come notices nothing, as on hardware: it is ended as its
  /// user would. Any other end must be a failure that it noticed itself.
  void end_server(Command& command) {
    if (command.status(3) < 0) command.signal(SIGTERM);
    const int status = command.status(kBoundSeconds);
    EXPECT_GT(status, 0) << command.output();
  }
};

}  // namespace r2bench::test
