// SPDX-License-Identifier: Apache-2.0
// The same seed and the same single-threaded program: the same faults at the same WRs. The program is
// perftest, and it says itself which WR failed; another seed strikes elsewhere.
#include <set>

#include "harness/programs/testing/broken_programs.h"

namespace r2bench::test {
namespace {

class SameSeed : public BrokenPrograms {
 protected:
  struct History {
    std::string failed;             // the program's own words, with the number of WRs that were done
    std::vector<std::string> seen;  // the log, without times, process ids and queue pair numbers
    bool operator==(const History&) const = default;
  };

  History run(const Words& words, int seed, const std::string& plan) {
    name += "s";  // each run makes a fabric of its own, with a seed of its own
    const Ends ends = start_pair(words, plan, {"--seed", std::to_string(seed)});
    EXPECT_GE(ends.client->status(kBoundSeconds), 0) << ends.client->output();
    History history;
    std::istringstream lines(ends.client->output());
    for (std::string line; std::getline(lines, line);) {
      if (line.find("Failed status") != std::string::npos) history.failed += line;
      if (const size_t at = line.find("ccnt="); at != std::string::npos) history.failed += line.substr(at);
    }
    const auto story = nlohmann::json::parse(contents(folder + "/witness.json"));
    for (const auto& fault : story["faults"])
      for (const auto& effect : fault["effects"])
        history.seen.push_back(fault["kind"].get<std::string>() + " " + effect["node"].get<std::string>() +
                               ": " + effect["what"].get<std::string>());
    if (ends.client->status() != 0) end_server(*ends.server);
    EXPECT_TRUE(eventually([&] { return !listens(name); })) << "the fabric outlives its commands";
    return history;
  }
};

TEST_F(SameSeed, a_probability_strikes_the_same_wr_of_perftest) {
  // -Q 1: a completion for each WR, so that ccnt is exact.
  const Words words = {"ib_write_bw", "-d", "vhca0", "-x", "1", "-F", "-Q", "1", "-s", "4096", "-n", "20000"};
  const std::string plan =
      "- {at: {probability: 0.002}, target: node1/nic0, kind: completion_error, status: REM_OP_ERR}\n";
  std::set<std::string> different;
  for (const int seed : {1, 2, 3, 4}) {
    const History first = run(words, seed, plan), second = run(words, seed, plan);
    EXPECT_NE(first.failed.find("ccnt="), std::string::npos) << "seed " << seed << ": nothing was struck";
    EXPECT_EQ(first, second) << "seed " << seed << ": " << first.failed << " and " << second.failed;
    different.insert(first.failed);
  }
  EXPECT_GE(different.size(), 3u) << "other seeds draw other WRs";
}

TEST_F(SameSeed, every_draw_of_a_whole_run_is_the_same) {
  // Sizes 2 B to 8 MiB, ten WRs each, one after the other: the size that the log gives tells which WR it was.
  const Words words = {"ib_read_bw", "-d", "vhca0", "-x", "1", "-F", "-a", "-n", "10", "-t", "1"};
  std::string plan;  // forty draws of their own
  for (int i = 0; i < 40; ++i) plan += "- {at: {probability: 0.01}, target: node1/nic0, kind: noop}\n";
  const History first = run(words, 7, plan), second = run(words, 7, plan), other = run(words, 8, plan);
  EXPECT_GT(first.seen.size(), 10u) << "enough happened to tell";
  EXPECT_EQ(first.seen, second.seen);
  EXPECT_NE(first.seen, other.seen) << "another seed draws other WRs";
}

}  // namespace
}  // namespace r2bench::test
