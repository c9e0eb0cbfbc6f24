// SPDX-License-Identifier: Apache-2.0
// `validate`, files that are damaged, and pipes as inputs, from the command line to the exit status.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/cli/testing/program_fixture.h"

namespace r2bench {
namespace {

using Validate = ProgramTest;
using Inputs = ProgramTest;

TEST_F(Validate, accepts_the_stored_run) {
  const std::string stored = std::string(R2BENCH_SOURCE_DIR) + "/results/reference/nic_down/result.json";
  EXPECT_EQ(call({"validate", stored.c_str()}), 0) << err.str();
}

TEST_F(Validate, finds_a_verdict_that_does_not_follow) {
  ASSERT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "result"}), 0);
  std::ifstream file("result/result.json");
  nlohmann::json edited = nlohmann::json::parse(file);
  for (nlohmann::json& expectation : edited["expectations"]) expectation["ok"] = false;
  std::ofstream("edited.json") << edited;
  EXPECT_EQ(call({"validate", "edited.json"}), 64);
  EXPECT_NE(err.str().find("edited.json: verdict: 'pass', but 'fail' follows"), std::string::npos)
      << err.str();
}

TEST_F(Validate, finds_a_misspelt_metric_with_its_line) {
  ASSERT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "result"}), 0);
  std::ifstream file("result/result.json");
  std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t at = text.find("\"recover_ms.max\"", text.find("\"values\""));
  ASSERT_NE(at, std::string::npos);
  const auto line = std::to_string(1 + std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n'));
  text.replace(at, 16, "\"recvoer_ms.max\"");
  std::ofstream("edited.json") << text;
  EXPECT_EQ(call({"validate", "edited.json"}), 64);
  EXPECT_EQ(err.str(), "edited.json:" + line +
                           ": /runs/0/metrics/values/recvoer_ms.max is no metric; did you mean "
                           "'recover_ms.max'?\n");
  text.replace(at, 16, "\"colour\"");
  std::ofstream("edited.json") << text;
  err.str("");
  EXPECT_EQ(call({"validate", "edited.json"}), 64);
  EXPECT_NE(err.str().find("/colour is no metric; r2bench list --metrics names all\n"), std::string::npos)
      << err.str();
}

TEST_F(Validate, finds_a_count_that_does_not_fit_the_list_of_faults) {
  ASSERT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "result"}), 0);
  std::ifstream file("result/result.json");
  nlohmann::json edited = nlohmann::json::parse(file);
  edited["runs"].back()["metrics"]["faults"]["sampled"] = 7;
  std::ofstream("edited.json") << edited;
  EXPECT_EQ(call({"validate", "edited.json"}), 64);
  EXPECT_NE(err.str().find("faults.sampled is 7, but "), std::string::npos) << err.str();
}

TEST_F(Validate, finds_an_event_log_beside_it_that_was_cut_off) {
  ASSERT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "result"}), 0);
  ASSERT_EQ(call({"validate", "result/result.json"}), 0);
  std::ofstream("result/events.jsonl").flush();
  EXPECT_EQ(call({"validate", "result/result.json"}), 64);
  EXPECT_NE(err.str().find("events.jsonl: was cut off, it holds 0 of "), std::string::npos) << err.str();
}

TEST_F(Validate, damaged_files_are_64_and_named) {
  const auto json_of = [](const std::string& file) {
    std::ifstream stream(file);
    return nlohmann::json::parse(stream);
  };
  ASSERT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "result"}), 0);
  const nlohmann::json result = json_of("result/result.json"), timeline = json_of("result/timeline.json");
  nlohmann::json edited = result;
  edited["workload"]["op"] = nullptr;  // only a command has none
  std::ofstream("edited.json") << edited;
  EXPECT_EQ(call({"validate", "edited.json"}), 64);
  EXPECT_NE(err.str().find("edited.json: is damaged ("), std::string::npos) << err.str();

  ASSERT_EQ(call({"trace", "result"}), 0) << err.str();
  for (const char* place : {"/modes/1/total", "/modes/1/total/time_ms", "/modes/1/mode"}) {
    nlohmann::json wrong = timeline;
    wrong[nlohmann::json::json_pointer(place)] =
        place == std::string("/modes/1/total/time_ms") ? nlohmann::json{"", "", ""} : nlohmann::json(7);
    std::ofstream("result/timeline.json") << wrong;
    EXPECT_EQ(call({"trace", "result"}), 64) << place;
    EXPECT_NE(err.str().find("result: is damaged ("), std::string::npos) << err.str();
  }
  std::ofstream("result/timeline.json") << timeline;
  std::ifstream stream("result/events.jsonl");
  std::string first, rest, line;
  std::getline(stream, first);
  while (std::getline(stream, line)) rest += line + "\n";
  for (const char* key : {"nic", "channel"}) {
    nlohmann::json event = nlohmann::json::parse(first);
    event[key] = true;
    std::ofstream("result/events.jsonl") << event << "\n" << rest;
    EXPECT_EQ(call({"trace", "result"}), 64) << key;
    EXPECT_NE(err.str().find("result: is damaged ("), std::string::npos) << err.str();
  }
}

TEST_F(Validate, finds_an_expectation_that_was_deleted) {
  ASSERT_EQ(call({"run", "nic_down.yaml", "--no-plot", "--out", "result"}), 0);
  std::ifstream file("result/result.json");
  nlohmann::json edited = nlohmann::json::parse(file);
  nlohmann::json& expectations = edited["expectations"];
  const auto correctness = std::find_if(expectations.begin(), expectations.end(),
                                        [](const auto& e) { return e["name"] == "migrate.correctness"; });
  ASSERT_NE(correctness, expectations.end());
  expectations.erase(correctness);
  std::ofstream("result/result.json") << edited;
  EXPECT_EQ(call({"validate", "result/result.json"}), 64);
  EXPECT_NE(err.str().find("migrate.correctness: the scenario expects 'exact'"), std::string::npos)
      << err.str();
}

TEST_F(Validate, finds_what_does_not_fit) {
  std::ofstream("result.json") << R"({"schema_version": 2})";
  EXPECT_EQ(call({"validate", "result.json"}), 64);
  EXPECT_NE(err.str().find("result.json:1: / lacks \"verdict\""), std::string::npos) << err.str();
  EXPECT_EQ(call({"validate", "nic_down.yaml"}), 0);
  std::ofstream("old.json") << R"({"schema_version": 1})";
  EXPECT_EQ(call({"validate", "old.json"}), 64);
  EXPECT_NE(err.str().find("old.json: schema_version 1, and this r2bench knows 2 only: in version 1"),
            std::string::npos)
      << err.str();
}

// What is read once from a pipe is gone: plot's script waited for a second writer for minutes.
TEST_F(Inputs, are_no_pipes_for_what_reads_them_more_than_once) {
  for (const char* pipe : {"pipe", "pipe.json"}) ASSERT_EQ(::mkfifo(pipe, 0600), 0);
  for (const std::vector<const char*>& words : {std::vector<const char*>{"plot", "pipe", "--out", "figures"},
                                                {"validate", "pipe.json"},
                                                {"gate", "pipe", "--reference", "seed=1"}}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(call(words), 64) << words[0];
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << words[0];
    EXPECT_NE(err.str().find(": is no regular file, and " + std::string(words[0])), std::string::npos)
        << err.str();
  }
  std::thread writer([] { std::ofstream("pipe") << sample_scenario().source_text; });
  EXPECT_EQ(call({"run", "--fabric", "rxe", "pipe", "--no-plot"}), 64);
  writer.join();
  EXPECT_NE(err.str().find("pipe: is no regular file, and a run on soft RoCE reads it more than once"),
            std::string::npos)
      << err.str();
  std::thread again([] { std::ofstream("pipe") << sample_scenario().source_text; });
  EXPECT_EQ(call({"run", "pipe", "--no-plot", "--out", "result"}), 0) << err.str();
  again.join();
}

}  // namespace
}  // namespace r2bench
