// SPDX-License-Identifier: Apache-2.0
// `sim`, and `explain` of a plan.
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "harness/cli/exit_codes.h"
#include "harness/cli/testing/program_fixture.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Program = ProgramTest;

TEST_F(Program, simulates_every_algorithm_and_says_what_the_planner_takes) {
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "16", "--degraded", "0:0.5", "--bytes", "1GiB", "--segments",
                  "16"}),
            0)
      << err.str();
  for (const char* word : {"lower bound", "ring", "double_tree", "r2ccl_allreduce", "four_stage", "mix",
                           "direct", "upstream", "The planner takes"}) {
    EXPECT_NE(out.str().find(word), std::string::npos) << word << "\n" << out.str();
  }
  EXPECT_EQ(
      call({"sim", "allreduce", "--capacities", "1,0.5,1,1", "--segments", "32", "--latency", "0", "--json"}),
      0)
      << err.str();
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["evidence"], "simulated");
  const double bound = json["bound_s"];
  EXPECT_NEAR(bound, 2.0 * (1u << 30) / 50e9, 1e-6);
  bool found = false;
  for (const auto& algorithm : json["algorithms"]) {
    EXPECT_GE(algorithm["simulated_s"].get<double>(), bound * 0.995) << algorithm;
    EXPECT_GT(algorithm["formula_s"].get<double>(), 0) << algorithm;
    EXPECT_EQ(algorithm["eligible"], algorithm["name"] != "upstream") << algorithm;
    if (algorithm["name"] != json["chosen"]) continue;
    found = true;
    EXPECT_LE(algorithm["simulated_s"].get<double>(), bound * 1.035);
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "16", "--degraded", "0:0.5", "--bytes", "64KiB"}), 0);
  EXPECT_NE(out.str().find("does not take direct"), std::string::npos) << out.str();
}

TEST_F(Program, simulates_a_stream_of_pieces) {
  const std::vector<const char*> job = {"sim",    "allreduce", "--nodes",    "10",    "--degraded", "1:0.125",
                                        "--rate", "2 Gbit/s",  "--segments", "1",     "--exactly",  "--bytes",
                                        "16MiB",  "--pieces",  "4",          "--json"};
  const auto simulated = [&](std::vector<const char*> words) {
    EXPECT_EQ(call(words), 0) << err.str();
    const auto json = nlohmann::json::parse(out.str());
    EXPECT_NEAR(json["bound_s"].get<double>(), 18 / 9.875 * (16 << 20) / 250e6, 1e-6) << "of all pieces";
    std::map<std::string, double> seconds;
    for (const auto& algorithm : json["algorithms"]) {
      EXPECT_EQ(algorithm["segments"], 1) << algorithm;
      EXPECT_NE(algorithm["name"], "upstream");
      seconds[algorithm["name"]] = algorithm["simulated_s"];
      EXPECT_GT(seconds[algorithm["name"]], 0.99 * json["bound_s"].get<double>()) << algorithm;
    }
    return seconds;
  };
  auto stream = simulated(job);
  auto more_nics = job;
  more_nics.insert(more_nics.end(), {"--rails", "8"});
  auto fewer_slots = simulated(more_nics);
  EXPECT_NE(fewer_slots["mix"], stream["mix"]) << "there are channels for one piece at a time";
  EXPECT_DOUBLE_EQ(fewer_slots["ring"], stream["ring"]);
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--bytes", "16MiB", "--pieces", "4"}), 0);
  EXPECT_NE(out.str().find("AllReduce of 16 MiB in 4 pieces on 4 nodes"), std::string::npos) << out.str();
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--rails", "4"}), kExitUsage);
  EXPECT_NE(err.str().find("--rails: needs --pieces"), std::string::npos) << err.str();
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--nics", "4", "--pieces", "2", "--rails", "8"}),
            kExitUsage);
  EXPECT_NE(err.str().find("--rails: --nics says"), std::string::npos) << err.str();
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--pieces", "0"}), kExitUsage);
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--bytes", "100B", "--pieces", "1000"}), kExitUsage);
  EXPECT_NE(err.str().find("--pieces: 1000 are more than --bytes has"), std::string::npos) << err.str();
}

TEST_F(Program, refuses_nodes_that_cannot_be_simulated) {
  EXPECT_EQ(call({"sim", "allreduce"}), kExitUsage);
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--degraded", "4:0.5"}), kExitUsage);
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--degraded", "1:1"}), kExitUsage);
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--degraded", "1"}), kExitUsage);
  EXPECT_EQ(call({"sim", "allreduce", "--capacities", "1,0,1"}), kExitUsage);
  EXPECT_NE(err.str().find("--capacities: each must be above 0"), std::string::npos) << err.str();
  EXPECT_EQ(call({"sim", "allreduce", "--capacities", "1"}), kExitUsage);
  EXPECT_NE(err.str().find("--capacities: 1 given, one for each node; give 2 to 1024"), std::string::npos)
      << err.str();
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--bytes", "7"}), kExitUsage);
  EXPECT_EQ(call({"explain"}), kExitUsage);
  EXPECT_EQ(call({"explain", "--xml", "x.xml"}), kExitUsage);
}

TEST_F(Program, explains_a_plan_and_writes_its_schedule) {
  EXPECT_EQ(call({"explain", "--capacities", "1,1,0.5,1", "--bytes", "1GiB", "--segments", "2", "--print",
                  "2", "--xml", "plan.xml", "--chakra", "plan"}),
            0)
      << err.str();
  EXPECT_NE(out.str().find("node 2 at 50 %"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("rank 2\n"), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("rank 1\n"), std::string::npos) << out.str();
  EXPECT_TRUE(fs::exists("plan.xml"));
  for (const char* file : {"plan.0.et", "plan.3.et"}) EXPECT_GT(fs::file_size(file), 100u) << file;
}

/// A node of half the capacity among healthy ones.
std::string one_degraded_of(int nodes) {
  std::string capacities = "0.5";
  for (int i = 1; i < nodes; ++i) capacities += ",1";
  return capacities;
}

TEST_F(Program, says_why_the_planner_does_without_direct) {
  const auto said = [&](const std::vector<const char*>& arguments) {
    EXPECT_EQ(call(arguments), 0) << err.str();
    return std::regex_replace(out.str(), std::regex("\\s+"), " ");
  };
  const auto says = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  const std::string healthy = said({"explain", "--capacities", "1,1,1,1", "--bytes", "1MiB"});
  EXPECT_TRUE(says(healthy, "does not take direct while no node is degraded")) << healthy;
  EXPECT_TRUE(says(healthy, "no other schedule that may be taken is faster")) << healthy;
  const std::string degraded = said({"explain", "--capacities", "1,1,0.5,1", "--bytes", "1GiB"});
  EXPECT_FALSE(says(degraded, "does not take direct")) << degraded;
  const std::string many = one_degraded_of(129);
  for (const std::vector<const char*>& command :
       {std::vector<const char*>{"explain"}, {"sim", "allreduce", "--only-chosen"}}) {
    std::vector<const char*> all = command;
    for (const char* word : {"--segments", "1", "--capacities"}) all.push_back(word);
    all.push_back(many.c_str());
    const std::string text = said(all);
    EXPECT_TRUE(says(text, "There is no direct among more than 128 nodes")) << text;
  }
}

TEST_F(Program, refuses_an_algorithm_that_has_no_schedule_of_these_nodes) {
  const std::string many = one_degraded_of(129);
  EXPECT_EQ(call({"explain", "--capacities", many.c_str(), "--segments", "1", "--algorithm", "direct",
                  "--xml", "none.xml", "--chakra", "none"}),
            kExitUsage);
  EXPECT_NE(err.str().find("--algorithm direct: there is none among 129 nodes, only among up to 128"),
            std::string::npos)
      << err.str();
  EXPECT_FALSE(fs::exists("none.xml") || fs::exists("none.0.et"));
}

TEST_F(Program, prints_one_rank_of_a_plan_or_all_and_no_other) {
  EXPECT_EQ(call({"explain", "--capacities", "1,1,0.5", "--bytes", "1MiB", "--print", "all"}), 0)
      << err.str();
  for (const char* rank : {"rank 0\n", "rank 1\n", "rank 2\n"})
    EXPECT_NE(out.str().find(rank), std::string::npos) << out.str();
  for (const char* wrong : {"3", "-1", "-2", "1x", "none", "99999999999"}) {
    err.str("");
    EXPECT_EQ(call({"explain", "--capacities", "1,1,0.5", "--bytes", "1MiB", "--print", wrong}), kExitUsage);
    EXPECT_NE(err.str().find("write a rank below 3, or 'all'"), std::string::npos) << wrong << err.str();
  }
}

}  // namespace
}  // namespace r2bench
