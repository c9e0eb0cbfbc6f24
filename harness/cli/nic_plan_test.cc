// SPDX-License-Identifier: Apache-2.0
// --nics, --lost and --slow of `sim` and `explain`, and the words on them.
#include <nlohmann/json.hpp>
#include <regex>

#include "harness/cli/exit_codes.h"
#include "harness/cli/nic_plan.h"
#include "harness/cli/testing/program_fixture.h"
#include "r2ccl/collective/host/advise.h"
#include "r2ccl/collective/host/least_size.h"

namespace r2bench {
namespace {

using Program = ProgramTest;

TEST_F(Program, refuses_nics_that_are_not_there) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> wrong = {
      {{"--nodes", "4", "--lost", "1:0"}, "--lost needs --nics"},
      {{"--nodes", "4", "--slow", "1:0=0.5"}, "--slow needs --nics"},
      {{"--nics", "4", "--lost", "1:0"}, "--lost needs --nodes"},
      {{"--nics", "4"}, "--nics needs --nodes"},
      {{"--nodes", "4", "--nics", "9"}, "--nics"},
      {{"--nodes", "4", "--nics", "0"}, "--nics"},
      {{"--nodes", "4", "--nics", "4", "--lost", "4:0"}, "--lost 4:0: there is no node 4, only 0 to 3"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1:4"}, "--lost 1:4: there is no NIC 4, only 0 to 3"},
      {{"--nodes", "4", "--nics", "4", "--lost", "0-4:1"}, "--lost 0-4:1: there is no node 4, only 0 to 3"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1:0,2:3-1"},
       "--lost 2:3-1: write NODE:NIC, such as 1:0 or 0-3:1-2"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1"}, "--lost 1: write NODE:NIC"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1:"}, "--lost 1:: write NODE:NIC"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1:0=0.5"}, "--lost 1:0=0.5: write NODE:NIC"},
      {{"--nodes", "4", "--nics", "4", "--lost", "node1/nic0"}, "--lost node1/nic0: write NODE:NIC"},
      {{"--nodes", "4", "--nics", "4", "--slow", "1:0"}, "--slow 1:0: write NODE:NIC=C"},
      {{"--nodes", "4", "--nics", "4", "--slow", "1:0=0"}, "--slow 1:0=0: write NODE:NIC=C"},
      {{"--nodes", "4", "--nics", "4", "--slow", "1:0=nan"}, "--slow 1:0=nan: write NODE:NIC=C"},
      {{"--nodes", "4", "--nics", "4", "--slow", "1:0=1.5"}, "--slow 1:0=1.5: write NODE:NIC=C"},
      {{"--nodes", "4", "--nics", "4", "--slow", "1:0=0.0009"},
       "--slow 1:0=0.0009: write NODE:NIC=C with the fraction C of its rate that the NIC carries, 0.001 to "
       "below 1"},
      {{"--nodes", "4", "--nics", "4", "--slow", "1:0-3=1e-300"}, "--slow 1:0-3=1e-300: write NODE:NIC=C"},
      {{"--nodes", "4", "--nics", "4", "--slow", "1:9=0.5"}, "--slow 1:9=0.5: there is no NIC 9"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1:0", "--slow", "1:0-1=0.5"},
       "--slow 1:0-1=0.5: another entry names one of these NICs, too"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1:0,2:1,1:0"},
       "--lost 1:0: another entry names one of these NICs, too"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1:0", "--lost", "0-1:0-1"},
       "--lost 0-1:0-1: another entry names one of these NICs, too"},
      {{"--nodes", "4", "--nics", "4", "--lost", "1:0-3"},
       "--lost: node 1 has lost all its NICs; leave out nodes that carry no traffic"},
      {{"--nodes", "4", "--nics", "1", "--lost", "2:0"}, "--lost: node 2 has lost all its NICs"},
      {{"--capacities", "1,1", "--nics", "4"}, "--capacities excludes --nics"},
      {{"--capacities", "1,1", "--lost", "0:0"}, "--capacities excludes --lost"},
      {{"--nodes", "4", "--nics", "4", "--degraded", "0:0.5"}, "excludes"},
      {{"--nodes", "4", "--degraded", "0:0.5", "--slow", "1:0=0.5"}, "excludes"}};
  for (const std::vector<const char*>& command :
       {std::vector<const char*>{"explain"}, std::vector<const char*>{"sim", "allreduce"}})
    for (const auto& [words, told] : wrong) {
      std::vector<const char*> all = command;
      all.insert(all.end(), words.begin(), words.end());
      err.str("");
      EXPECT_EQ(call(all), kExitUsage) << told;
      EXPECT_NE(err.str().find(told), std::string::npos) << told << "\nbut:\n" << err.str();
    }
  EXPECT_EQ(
      call({"sim", "allreduce", "--nodes", "4", "--nics", "4", "--lost", "1:0", "--sharing", "exclusive"}),
      kExitUsage);
  EXPECT_NE(err.str().find("--sharing exclusive: not with --nics"), std::string::npos) << err.str();
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{
           {"explain", "--xml", "x.xml"}, {"explain", "nic_down", "--print", "1"}}) {
    EXPECT_EQ(call(words), kExitUsage);
    EXPECT_NE(err.str().find("needs --nodes or --capacities"), std::string::npos) << err.str();
  }
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"explain", "--nodes", "4", "--margin", "200"},
                                             {"explain", "--capacities", "1,0.5,1", "--margin", "200"},
                                             {"explain", "nic_down", "--margin", "200"}}) {
    err.str("");
    EXPECT_EQ(call(words), kExitUsage);
    EXPECT_NE(err.str().find("--margin requires --nics"), std::string::npos) << err.str();
  }
  EXPECT_EQ(call({"explain", "nic_down", "--lost", "1:0"}), kExitUsage);
  EXPECT_EQ(call({"explain", "nic_down", "--nodes", "4"}), kExitUsage);
}

/// In one line.
std::string words_of(const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), " "); }
bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

// By capacities alone a mix with all three degraded nodes as leaves: NICs of node 0 are idle.
TEST_F(Program, explains_a_plan_that_counts_nics) {
  EXPECT_EQ(call({"explain", "--nodes", "4", "--nics", "4", "--lost", "1:0,2:1", "3:2", "--bytes", "64MiB"}),
            0)
      << err.str();
  const std::string counted = words_of(out.str());
  EXPECT_TRUE(says(counted, "The planner takes direct.")) << counted;
  EXPECT_TRUE(says(counted, "Nodes have lost different NICs: the busiest one needs")) << counted;
  EXPECT_TRUE(says(counted, "By capacities alone it would take mix (K = 32), whose busiest NIC needs 1.2"))
      << counted;
  EXPECT_TRUE(says(counted, " × what the busiest node's NICs need together.")) << counted;
  EXPECT_TRUE(says(counted, "fill NIC formula")) << counted;
  EXPECT_EQ(call({"explain", "--capacities", "1,0.75,0.75,0.75", "--bytes", "64MiB"}), 0) << err.str();
  const std::string by_capacities = words_of(out.str());
  EXPECT_TRUE(says(by_capacities, "The planner takes mix.")) << by_capacities;
  EXPECT_FALSE(says(by_capacities, "NIC")) << by_capacities;
}

TEST_F(Program, says_why_nics_are_not_counted) {
  const auto said = [&](std::vector<const char*> words) {
    words.insert(words.begin(), {"explain", "--bytes", "1MiB", "--segments", "1", "--nics", "4"});
    EXPECT_EQ(call(words), 0) << err.str();
    return words_of(out.str());
  };
  EXPECT_TRUE(says(said({"--nodes", "5", "--lost", "1:0,2:0"}), "No two nodes have lost different NICs"));
  EXPECT_TRUE(says(said({"--nodes", "2", "--lost", "0:0-1,1:2-3"}),
                   "two nodes without a common rail exchange data: this plan is by capacities alone"));
  const std::string many = said({"--nodes", "65", "--lost", "1:0,2:1"});
  EXPECT_TRUE(
      says(many, "The planner does not count NICs among more than 64 nodes: this plan is by capacities"))
      << many;
  EXPECT_FALSE(says(many, "fill NIC formula")) << many;
  EXPECT_TRUE(says(said({"--nodes", "64", "--lost", "1:0,2:1"}), "fill NIC formula"));
  EXPECT_FALSE(says(said({"--nodes", "4"}), "capacities, not NICs"));
}

TEST_F(Program, a_nic_may_carry_a_thousandth) {
  for (const std::vector<const char*>& command :
       {std::vector<const char*>{"explain"}, std::vector<const char*>{"sim", "allreduce", "--only-chosen"}}) {
    std::vector<const char*> all = command;
    for (const char* word : {"--nodes", "4", "--nics", "4", "--bytes", "64MiB", "--segments", "2", "--slow",
                             "1:0-3=0.001,2:0=0.001"})
      all.push_back(word);
    EXPECT_EQ(call(all), 0) << err.str();
  }
}

TEST_F(Program, explains_what_a_job_in_mode_3_does) {
  const auto said = [&](std::vector<const char*> words) {
    words.insert(words.begin(), {"explain", "--nodes", "4", "--nics", "4", "--rate", "10 Gbit/s"});
    EXPECT_EQ(call(words), 0) << err.str();
    return words_of(out.str());
  };
  const std::string taken = said({"--lost", "1:0-1,2:2-3"});
  EXPECT_TRUE(says(taken,
                   "In a job with R2CC_MODE=3, AllReduces of 8 MiB and more go over CollNet. This one does: "
                   "four_stage on the host would take"))
      << taken;
  EXPECT_TRUE(says(taken,
                   "NCCL makes 256 pieces of it, up to 8 in flight, and the engine's plan for 4 MiB is "
                   "four_stage (K = 4)."))
      << taken;
  const std::string small = said({"--lost", "1:0-1,2:2-3", "--bytes", "4MiB"});
  EXPECT_TRUE(
      says(small, "8 MiB and more go over CollNet. This one stays with NCCL's own choice, on Balance"))
      << small;
  EXPECT_EQ(call({"explain", "--nodes", "4", "--nics", "8", "--rate", "20 Gbit/s", "--lost", "1:0"}), 0);
  const std::string eighth = words_of(out.str());
  EXPECT_TRUE(says(
      eighth, "In a job with R2CC_MODE=3, AllReduces of 128 MiB and more go over CollNet. This one does"))
      << eighth;
  const std::string strict = said({"--lost", "1:0-1,2:2-3", "--margin", "200"});
  EXPECT_TRUE(says(strict, "R2CC_COLLNET_MARGIN=200, no AllReduce goes over CollNet")) << strict;
  EXPECT_TRUE(says(strict, "If CollNet is forced, NCCL makes 256 pieces")) << strict;
  EXPECT_TRUE(says(said({}), "all nodes have their full capacity: NCCL's ring"));
  const std::string slow = said({"--slow", "1:0=0.25"});
  EXPECT_TRUE(says(slow, "if the NIC's port reports the lower rate, or with R2CC_PLAN_LINKS=1.")) << slow;
}

// Links are compared with those of other nodes and rails (AGREEMENT.md).
TEST_F(Program, names_the_links_only_where_they_are_compared) {
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{
           {"explain", "--nodes", "2", "--nics", "4", "--slow", "1:0=0.25"},
           {"explain", "--nodes", "4", "--nics", "1", "--slow", "1:0=0.25"}}) {
    EXPECT_EQ(call(words), 0) << err.str();
    const std::string text = words_of(out.str());
    EXPECT_TRUE(says(text, "It knows of a slow NIC if the NIC's port reports the lower rate.")) << text;
    EXPECT_FALSE(says(text, "R2CC_PLAN_LINKS")) << text;
  }
}

TEST_F(Program, says_what_the_words_on_mode_3_assume) {
  const auto said = [&](std::vector<const char*> words) {
    words.insert(words.begin(), {"explain", "--nodes", "4", "--nics", "4", "--lost", "1:0-1,2:2-3"});
    EXPECT_EQ(call(words), 0) << err.str();
    return words_of(out.str());
  };
  const std::string group =
      "and one CollNet group over all NICs of a node (a job with several GPUs a node divides the NICs among "
      "them).";
  for (const char* bytes : {"4KiB", "64MiB"}) {
    const std::string free = said({"--bytes", bytes});
    EXPECT_TRUE(says(free,
                     "All this assumes additions that take no time (--reduction-rate; a job measures "
                     "its own), " +
                         group))
        << free;
    const std::string given = said({"--bytes", bytes, "--reduction-rate", "25 GB/s"});
    EXPECT_TRUE(says(given,
                     "All this assumes additions as fast as --reduction-rate (a job measures its "
                     "own), " +
                         group))
        << given;
  }
}

// From 64 KiB to 4 GiB the tuner is asked for powers of two, from the largest one on down.
TEST_F(Program, says_why_a_size_that_is_worth_it_stays_with_nccl) {
  EXPECT_EQ(call({"explain", "--nodes", "4", "--nics", "8", "--lost", "1:7,3:3", "--bytes", "256KiB"}), 0)
      << err.str();
  const std::string none = words_of(out.str());
  EXPECT_TRUE(says(none,
                   "no AllReduce goes over CollNet on these nodes. This one stays with NCCL's own "
                   "choice, on Balance: four_stage on the host would take"))
      << none;
  EXPECT_TRUE(says(none,
                   "That is less, but the tuner takes CollNet only from a power of two on from which "
                   "all up to 4 GiB are worth it, and 4 GiB are not: ring on the host would take"))
      << none;
  EXPECT_TRUE(says(none, "If CollNet is forced")) << none;
  EXPECT_EQ(call({"explain", "--nodes", "4", "--nics", "4", "--lost", "1:0-1,2:2-3", "--bytes", "256KiB"}), 0)
      << err.str();
  const std::string larger = words_of(out.str());
  EXPECT_TRUE(says(larger, "AllReduces of 256 MiB and more go over CollNet. This one stays")) << larger;
  EXPECT_TRUE(says(larger, "from which all up to 4 GiB are worth it. If CollNet is forced")) << larger;
}

TEST_F(Program, says_why_a_size_that_is_not_worth_it_goes_over_collnet) {
  EXPECT_EQ(call({"explain", "--nodes", "4", "--nics", "4", "--lost", "1:0-1,2:2-3", "--rate", "10 Gbit/s",
                  "--bytes", "8448KiB"}),
            0)
      << err.str();
  const std::string text = words_of(out.str());
  EXPECT_TRUE(says(text,
                   "AllReduces of 8 MiB and more go over CollNet. This one does: four_stage on the "
                   "host would take"))
      << text;
  EXPECT_TRUE(says(text,
                   "too little is gained. The tuner takes CollNet all the same: of the sizes from there "
                   "on it looks at the powers of two up to 4 GiB only, and these are worth it. NCCL "
                   "makes"))
      << text;
}

// The tuner's decision and the engine's plan are other ones where NICs are known.
TEST(Mode3, is_what_a_job_with_these_nics_does) {
  r2ccl::collective::Job job;
  job.bytes = 1 << 30;
  job.bytes_per_second = 1.25e9;
  job.capacities = {1, 0.5, 0.75, 0.75};
  job.nics.assign(16, 1.0);
  job.nics[4] = job.nics[5] = job.nics[9] = job.nics[14] = 0;
  const r2ccl::collective::Speeds speeds{.bytes_per_second = 1.25e9, .margin = 1.08, .rails = 4};
  const auto advice = r2ccl::collective::advise(job.capacities, job.bytes, speeds, job.nics);
  const Mode3 known = mode3_of(job, 108);
  EXPECT_TRUE(known.collnet);
  EXPECT_EQ(known.collnet, advice.engine);
  EXPECT_EQ(known.worth_it, advice.engine);
  EXPECT_EQ(known.tuner, advice.why);
  EXPECT_EQ(known.piece_bytes, 4u << 20);
  EXPECT_EQ(known.pieces, 256u);
  EXPECT_EQ(known.in_flight, 8u);
  EXPECT_GT(known.plan.choice().rails, 0);
  r2ccl::collective::Job unknown = job;
  unknown.nics.clear();
  const Mode3 by_capacities = mode3_of(unknown, 108);
  EXPECT_FALSE(by_capacities.worth_it);
  EXPECT_FALSE(by_capacities.collnet);
  EXPECT_EQ(by_capacities.least_bytes, r2ccl::collective::kNever);
  EXPECT_EQ(by_capacities.plan.choice().rails, 0);
}

TEST_F(Program, warns_of_long_simulations) {
  call({"sim", "--help"});
  const std::string help = words_of(out.str());
  EXPECT_TRUE(says(help,
                   "With --nics a simulation takes far longer, above all among many nodes: "
                   "--only-chosen helps"))
      << help;
}

TEST_F(Program, simulates_nics) {
  EXPECT_EQ(call({"sim", "allreduce", "--nodes", "4", "--nics", "4", "--lost", "1:0,2:1,3:2", "--bytes",
                  "64MiB", "--json"}),
            0)
      << err.str();
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["chosen"], "direct");
  EXPECT_EQ(json["by_capacities"]["name"], "mix");
  const auto simulated = [&](const char* name) {
    for (const auto& algorithm : json["algorithms"])
      if (algorithm["name"] == name) return algorithm["simulated_s"].get<double>();
    return 0.0;
  };
  // Any two of the degraded nodes have two of four rails in common, and each ring has two of them beside each
  // other.
  EXPECT_NEAR(simulated("ring"), 1.5 / 0.5 * (64 << 20) / 50e9, 2e-5);
  EXPECT_GT(json["by_capacities"]["simulated_s"].get<double>(), 1.2 * simulated("direct"));
  EXPECT_EQ(
      call({"sim", "allreduce", "--nodes", "4", "--nics", "4", "--lost", "1-2:0", "3:0", "--bytes", "64MiB"}),
      0);
  const std::string alike = words_of(out.str());
  EXPECT_TRUE(says(alike, "No two nodes have lost different NICs, so the planner counts capacities"))
      << alike;
  EXPECT_FALSE(says(alike, " * ")) << alike;
  EXPECT_EQ(
      call({"sim", "allreduce", "--nodes", "4", "--nics", "4", "--lost", "1:0-1,2:2-3", "--bytes", "1MiB"}),
      0);
  const std::string apart = words_of(out.str());
  EXPECT_TRUE(says(apart,
                   "–: two nodes without a common rail exchange data; the path that Balance finds is not "
                   "simulated"))
      << apart;
  EXPECT_TRUE(std::regex_search(apart, std::regex("double_tree \\d+ – – – –"))) << apart;
}

}  // namespace
}  // namespace r2bench
