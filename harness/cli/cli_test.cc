// SPDX-License-Identifier: Apache-2.0
// The commands that read: list, explain, plot, report, env, exec, inject.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "faultinject/plan/kind.h"
#include "harness/base/testing/eventually.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/subcommands.h"
#include "harness/cli/testing/program_fixture.h"
#include "harness/fabric/guest.h"
#include "harness/judge/metric.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;
using Program = ProgramTest;

TEST_F(Program, env_prints_what_a_shell_needs_to_load_the_plugin) {
  const fs::path library =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" / "libnccl-net-r2ccl.so";
  const bool made = !fs::exists(library);
  if (made) {  // the test of a build without the plugin
    fs::create_directories(library.parent_path());
    std::ofstream(library) << "";
  }
  EXPECT_EQ(call({"env", "--mode", "balance"}), 0) << err.str();
  EXPECT_EQ(out.str(), "export NCCL_NET_PLUGIN='" + library.string() +
                           "'\nexport NCCL_NET=R2CCL\nexport R2CC_MODE=2\nunset NCCL_COLLNET_ENABLE\n");
  EXPECT_EQ(call({"env", "--mode", "allreduce"}), 0);
  EXPECT_NE(out.str().find("export R2CC_MODE=3\nexport NCCL_COLLNET_ENABLE=1\n"), std::string::npos)
      << out.str();
  EXPECT_EQ(call({"env"}), 0);
  EXPECT_NE(out.str().find("export R2CC_MODE=1\n"), std::string::npos);
  if (made) fs::remove(library);
  EXPECT_EQ(call({"env", "--mode", "fast"}), kExitUsage);
}

TEST_F(Program, a_run_becomes_a_page_and_a_trace) {
  const std::string sample = std::string(R2BENCH_SOURCE_DIR) + "/harness/report/testing/run";
  EXPECT_EQ(call({"report", sample.c_str(), sample.c_str(), "-o", "page.html"}), 0) << err.str();
  EXPECT_EQ(out.str(), "page.html\n");
  EXPECT_GT(fs::file_size("page.html"), 50'000u);
  EXPECT_EQ(call({"trace", sample.c_str(), "-o", "trace.json"}), 0) << err.str();
  std::ifstream stream("trace.json");
  EXPECT_GT(nlohmann::json::parse(stream)["traceEvents"].size(), 100u);
  EXPECT_EQ(call({"report", sample.c_str(), "-o", "/nonexistent/page.html"}), 64);
  EXPECT_NE(err.str().find("/nonexistent/page.html: cannot be written"), std::string::npos) << err.str();
}

TEST_F(Program, plot_report_and_trace_name_the_file_that_they_cannot_use) {
  std::ofstream("foreign.json") << R"({"hello": 1})";
  std::ofstream("newer.json") << R"({"schema_version": 99, "runs": []})";
  std::ofstream("cut.json") << R"({"schema_version": 2, "runs": [{"mode": "migr)";
  const std::vector<std::pair<const char*, const char*>> files = {
      {"foreign.json", "no result of r2bench run"},
      {"newer.json", "schema_version 99"},
      {"cut.json", "was cut off"},
      {"none.json", "no such file"}};
  for (const char* command : {"plot", "report", "trace"}) {
    for (const auto& [file, words] : files) {
      EXPECT_EQ(call({command, file}), 64) << command << " " << file;
      EXPECT_NE(err.str().find(std::string(file) + ":"), std::string::npos) << command << ": " << err.str();
      EXPECT_NE(err.str().find(words), std::string::npos) << command << ": " << err.str();
    }
  }
  const std::string bare = std::string(R2BENCH_SOURCE_DIR) + "/results/reference/nic_down";
  EXPECT_EQ(call({"trace", bare.c_str(), "-o", "trace.json"}), 64);
  EXPECT_NE(err.str().find("events.jsonl: no such file"), std::string::npos) << err.str();
  EXPECT_FALSE(fs::exists("trace.json"));
}

TEST_F(Program, plot_does_not_replace_the_figures_of_one_result_with_those_of_another) {
  for (const char* folder : {"a/x", "b/x"}) {
    fs::create_directories(folder);
    fs::copy_file(std::string(R2BENCH_SOURCE_DIR) + "/results/reference/nic_down/result.json",
                  fs::path(folder) / "result.json");
  }
  setenv("R2BENCH_PYTHON", "/bin/true", 1);  // no figure is drawn
  EXPECT_EQ(call({"plot", "a/x", "b/x", "--out", "figures"}), 64);
  EXPECT_EQ(
      err.str(),
      "r2bench: b/x/result.json: its figures would replace those of a/x/result.json in figures/x; draw it "
      "with another --out\n");
  EXPECT_EQ(call({"plot", "a/x", "b/x"}), 0) << err.str();
  EXPECT_EQ(call({"plot", "a/x", "a/x"}), 0) << err.str();  // the same figures, drawn again
  unsetenv("R2BENCH_PYTHON");
}

TEST_F(Program, first_day_names_a_folder_that_it_cannot_make) {
  for (const char* out_folder : {"nic_down.yaml", "nic_down.yaml/below"})
    for (const std::vector<const char*>& what :
         {std::vector<const char*>{"--skip", "preflight"}, {"--run"}}) {
      std::vector<const char*> words{"doctor", "--first-day", "--out", out_folder};
      words.insert(words.end(), what.begin(), what.end());
      EXPECT_EQ(call(words), kExitUsage) << out_folder << " " << what[0];
      EXPECT_NE(err.str().find(out_folder), std::string::npos) << err.str();
      EXPECT_TRUE(err.str().ends_with(": Not a directory; choose another folder with --out\n")) << err.str();
      EXPECT_EQ(err.str().find("internal"), std::string::npos) << err.str();
    }
}

TEST_F(Program, first_day_names_a_line_that_is_none_of_its_record) {
  fs::create_directories("days");
  for (const char* line : {"{\"step\": 3, \"state\": \"done\"}", "{\"step\": \"x\", \"state\": 4}", "cut"}) {
    std::ofstream("days/steps.jsonl") << line << "\n";
    EXPECT_EQ(call({"doctor", "--first-day", "--out", "days"}), 64) << line;
    EXPECT_NE(err.str().find("days/steps.jsonl:1: is no line of this command"), std::string::npos)
        << err.str();
  }
}

// The first guest's kernel is fetched, which can take half an hour.
TEST_F(Program, a_signal_ends_the_making_of_a_guest) {
  if (find_qemu().empty()) GTEST_SKIP() << "QEMU is missing";
  std::ofstream("python") << "#!/bin/sh\n"
                             "[ \"$2\" != --check ] || exit 3\n"
                             "touch making\n"
                             "exec sleep 20\n";
  fs::permissions("python", fs::perms::owner_all);
  setenv("R2BENCH_PYTHON", fs::absolute("python").c_str(), 1);
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{"run", "nic_down.yaml", "--fabric", "rxe"},
        {"conformance", "--fabric", "rxe"},
        {"guest", "--", "true"}}) {
    fs::remove("making");
    std::thread user([] {
      const bool makes = eventually([] { return fs::exists("making"); });
      EXPECT_TRUE(makes);
      if (makes) ::kill(::getpid(), SIGINT);  // else it would end this program
    });
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(call(words), kExitSignal + SIGINT) << words[0] << ": " << err.str();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << words[0];
    user.join();
  }
  unsetenv("R2BENCH_PYTHON");
  EXPECT_FALSE(fs::exists("results"));
}

TEST_F(Program, plot_wants_a_result_or_all) {
  EXPECT_EQ(call({"plot"}), 64);
  EXPECT_NE(err.str().find("plot needs a result, or --all"), std::string::npos) << err.str();
  EXPECT_EQ(call({"plot", "--all", "--results", "nowhere"}), 64);
  EXPECT_NE(err.str().find("nowhere: no such folder"), std::string::npos) << err.str();
  EXPECT_EQ(call({"plot", "--strict"}), 64);
}

TEST_F(Program, plot_all_names_what_has_no_data_and_what_cannot_be_used) {
  fs::create_directories("results/tables");
  const int none = call({"plot", "--all"});
  if (err.str().find("has no matplotlib") != std::string::npos) GTEST_SKIP() << err.str();
  EXPECT_EQ(none, 0) << err.str();
  EXPECT_NE(out.str().find("busbw: no data: run r2bench run busbw_sizes"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("0 of 12 figures made, 12 without data"), std::string::npos) << out.str();
  EXPECT_EQ(call({"plot", "--all", "--strict"}), 1);
  std::ofstream("results/tables/matrix.csv") << "set,fault\n";
  EXPECT_EQ(call({"plot", "--all"}), 64);
  EXPECT_NE(out.str().find("results/tables/matrix.csv: is no table of matrix"), std::string::npos)
      << out.str();
}

TEST_F(Program, exec_and_inject_say_what_is_wrong_before_anything_starts) {
  EXPECT_EQ(call({"exec", "--node", "node0"}), 64);
  EXPECT_NE(err.str().find("write the program after '--'"), std::string::npos) << err.str();
  EXPECT_EQ(call({"exec", "--", "true"}), 64);  // on which node?
  EXPECT_EQ(call({"exec", "--node", "node0", "--nics", "0", "--", "true"}), 64);
  EXPECT_EQ(call({"exec", "--node", "node0", "--rate", "5", "--", "true"}), 64);
  EXPECT_EQ(call({"exec", "--node", "node0", "--latency", "5 parsec", "--", "true"}), 64);
  EXPECT_EQ(call({"exec", "--node", "node0", "--link", "token_ring", "--", "true"}), 64);
  EXPECT_EQ(call({"exec", "--node", "node0", "--ports", "5", "--", "true"}), 64);
  EXPECT_EQ(call({"exec", "--node", "node0", "--mtu", "1500", "--", "true"}), 64);
  EXPECT_EQ(call({"exec", "--node", "node0", "--witness", "w.json", "--", "true"}), 64);
  EXPECT_EQ(call({"inject"}), 64);
  EXPECT_EQ(call({"inject", "add"}), 64);
  EXPECT_EQ(call({"inject", "remove", "x"}), 64);
  EXPECT_EQ(call({"inject", "list", "--name", "not/a/name"}), 64);
  EXPECT_EQ(call({"heal", "--name", "cli-test-nobody"}), 64);
  EXPECT_EQ(call({"inject", "add", "@missing.yaml"}), 64);
  std::ofstream("plan.yaml") << "- {at: now, target: node1/nic0, kind: port_dwn}\n";
  EXPECT_EQ(call({"inject", "add", "@plan.yaml"}), 64);
  EXPECT_EQ(err.str().rfind("plan.yaml:1:", 0), 0u) << err.str();
  EXPECT_EQ(call({"exec", "--help"}), 0);
  EXPECT_EQ(call({"inject", "add", "--help"}), 0);
}

TEST(Words, what_follows_execs_dashes_is_the_programs) {
  const std::vector<const char*> words = {"r2bench", "exec", "--node", "node0", "--", "sh", "--", "run"};
  const auto [own, foreign] = split_at_program(int(words.size()), words.data());
  EXPECT_EQ(own.size(), 4u);
  EXPECT_EQ(foreign, (std::vector<std::string>{"sh", "--", "run"}));
  const std::vector<const char*> other = {"r2bench", "run", "--", "nic_down"};
  EXPECT_EQ(split_at_program(int(other.size()), other.data()).first.size(), 4u);
}

TEST_F(Program, lists_and_explains_its_own_scenarios) {
  EXPECT_EQ(call({"list"}), 0) << out.str();
  EXPECT_NE(out.str().find("nic_down"), std::string::npos);
  EXPECT_EQ(out.str().find("cannot be used"), std::string::npos) << out.str();
  EXPECT_EQ(call({"explain", "nic_down"}), 0) << err.str();
  EXPECT_NE(out.str().find("recover_ms.max must be at most floor + wakeup + 50 ms"), std::string::npos)
      << out.str();
  EXPECT_NE(out.str().find("during iteration 60: node1/nic0"), std::string::npos) << out.str();
  out.str("");
  EXPECT_EQ(call({"explain", "nccl_flap"}), 0) << err.str();
  EXPECT_NE(out.str().find("when iteration 20 starts, delayed at random by up to 8 ms"), std::string::npos)
      << out.str();
  EXPECT_EQ(out.str().find("times count from"), std::string::npos) << out.str();
  EXPECT_EQ(call({"explain", "gray_slope"}), 0) << err.str();
  EXPECT_NE(out.str().find("after 2 s: node1/nic0"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("times count from the end of the warm-up"), std::string::npos) << out.str();
}

TEST_F(Program, explains_what_is_special_about_a_job_of_nccl) {
  const auto said = [&](const char* scenario) {
    out.str("");
    EXPECT_EQ(call({"explain", scenario}), 0) << err.str();
    return std::regex_replace(out.str(), std::regex("\\s+"), " ");
  };
  EXPECT_NE(said("nccl_graph")
                .find("There are 2 communicators over the same ranks, which work at the same time. "
                      "Each operation is a replay of a CUDA graph."),
            std::string::npos);
  EXPECT_NE(
      said("nccl_registered").find("The buffers are registered with NCCL. Communicators are nonblocking."),
      std::string::npos);
  EXPECT_NE(said("nccl_shrink").find("the communicators are shrunk by a rank"), std::string::npos);
  EXPECT_NE(said("nccl_no_resilience").find("; transport ib"), std::string::npos);
}

TEST_F(Program, explains_what_takes_turns_within_one_job) {
  std::ofstream("beside.yaml") << "version: 1\nworkload: {iters: 64, copies: 2}\n"
                                  "modes: [{mode: balance, beside: {mode: migrate, env: {R2CC_A: 5}}}]\n"
                                  "faults: [{at: {iter: 16}, target: node1/nic0, kind: port_down}]\n";
  EXPECT_EQ(call({"explain", "beside.yaml"}), 0) << err.str();
  const std::string said = std::regex_replace(out.str(), std::regex("\\s+"), " ");
  EXPECT_NE(
      said.find("Beside it each rank has a copy of the plugin in mode migrate; R2CC_A=5, with 2 "
                "communicators of its own. Operations of the two sides take turns, and beside_ratio "
                "compares their times; a fault strikes both. Trace and event log are of the mode itself "
                "only"),
      std::string::npos)
      << said;
  out.str("");
  EXPECT_EQ(call({"run", "beside.yaml", "--dry-run"}), 0) << err.str();
  EXPECT_NE(out.str().find("  balance, the other side: R2CC_A=5 R2CC_MODE=1\n"), std::string::npos)
      << out.str();
}

TEST_F(Program, explains_who_checks_the_data_of_a_command) {
  EXPECT_EQ(call({"explain", "exec_command"}), 0) << err.str();
  EXPECT_NE(std::regex_replace(out.str(), std::regex("\\s+"), " ")
                .find("r2bench does not compare the command's data. A command that compares its data itself "
                      "has to end with a status other than 0 if the data is wrong."),
            std::string::npos)
      << out.str();
}

TEST_F(Program, lists_every_fault_as_the_scripts_read_it) {
  EXPECT_EQ(call({"list", "--json"}), kExitUsage);
  out.str("");
  EXPECT_EQ(call({"list", "--faults"}), 0);
  EXPECT_NE(out.str().find("port_flap "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("down (200 ms), up (800 ms)"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("  receiver_sleep "), std::string::npos) << out.str();
  out.str("");
  EXPECT_EQ(call({"list", "--faults", "--json"}), 0);
  std::ifstream kept(fs::path(R2BENCH_SOURCE_DIR) / "faultinject/fault_kinds.json");
  std::stringstream text;
  text << kept.rdbuf();
  EXPECT_EQ(text.str(), out.str())
      << "make it anew: r2bench list --faults --json > faultinject/fault_kinds.json";
}

TEST_F(Program, every_fault_is_in_the_table_of_the_page) {
  std::ifstream page(fs::path(R2BENCH_SOURCE_DIR) / "faultinject/README.md");
  std::string line, first_cells;
  bool in_section = false;
  while (std::getline(page, line)) {
    if (line.starts_with("## ")) in_section = line == "## What each fault does";
    if (in_section && line.starts_with("| `")) first_cells += line.substr(0, line.find(" | ", 2));
  }
  for (const std::string& name : faultinject::fault_kind_names())
    EXPECT_NE(first_cells.find("`" + name + "`"), std::string::npos)
        << name << ": add a row to the table 'What each fault does' of faultinject/README.md";
}

TEST_F(Program, lists_every_metric_with_its_unit_and_needs) {
  EXPECT_EQ(call({"list", "--metrics", "--faults"}), kExitUsage);
  out.str("");
  EXPECT_EQ(call({"list", "--metrics"}), 0);
  EXPECT_NE(out.str().find("  recover_ms "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find(".p50 .p95 .p99 .max"), std::string::npos) << out.str();
  EXPECT_EQ(out.str().find("  recover_ms.p95"), std::string::npos) << out.str();
  out.str("");
  EXPECT_EQ(call({"list", "--metrics", "--json"}), 0);
  const nlohmann::json all = nlohmann::json::parse(out.str());
  ASSERT_EQ(all.size(), all_metrics().size());
  const auto found = std::find_if(
      all.begin(), all.end(), [](const nlohmann::json& metric) { return metric["name"] == "overhead_pct"; });
  ASSERT_NE(found, all.end());
  EXPECT_EQ((*found)["unit"], "%");
  EXPECT_EQ((*found)["needs"], nlohmann::json::array({"pairs"}));
  EXPECT_EQ((*found)["better"], "lower");
}

TEST_F(Program, every_scenario_of_the_house_is_valid_and_expects_something) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(R2BENCH_SOURCE_DIR) / "scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    for (const Scenario& scenario : load_scenarios(entry.path().string())) {
      EXPECT_FALSE(scenario.description.empty()) << entry.path();
      EXPECT_FALSE(scenario.expectations.empty()) << entry.path();
      const std::string stem = entry.path().stem();  // a matrix adds to it what varies
      EXPECT_EQ(scenario.name.substr(0, stem.size() + (scenario.matrix.empty() ? scenario.name.size() : 0)),
                stem)
          << entry.path();
      ++count;
    }
  }
  EXPECT_GE(count, 9u);
}

}  // namespace
}  // namespace r2bench
