// SPDX-License-Identifier: Apache-2.0
// A run read back, and everything that is refused: foreign, of another version, cut off.
#include "harness/report/stored_run.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "harness/report/html.h"

namespace r2bench {
namespace {

namespace fs = std::filesystem;

class Stored : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "stored_run_test_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    for (const char* file : {"result.json", "timeline.json", "events.jsonl"})
      fs::copy_file(fs::path(R2BENCH_SAMPLE_RUN) / file, folder / file);
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string contents(const char* file) const {
    std::ifstream stream(folder / file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void write(const char* file, const std::string& text) const { std::ofstream(folder / file) << text; }
  /// What load_stored_run() refuses it with; "loaded" when it does not.
  std::string refusal() const {
    try {
      load_stored_run(folder, schema);
      return "loaded";
    } catch (const InputError& error) {
      return error.what();
    }
  }
  void expect_refusal(const char* file, const std::string& words) const {
    const std::string said = refusal();
    EXPECT_EQ(said.rfind((folder / file).string(), 0), 0u) << said;
    EXPECT_NE(said.find(words), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }

  fs::path folder;
  nlohmann::json schema = read_json_file(R2BENCH_SCHEMA);
};

TEST_F(Stored, a_run_is_read_from_its_folder_and_from_its_result) {
  const StoredRun run = load_stored_run(folder, schema);
  EXPECT_EQ(run.result["scenario"], "ack_lost");
  EXPECT_TRUE(run.has_events);
  EXPECT_EQ(run.events.size(), 173u);
  EXPECT_TRUE(run.timeline.is_object());
  EXPECT_EQ(load_stored_run(folder / "result.json", schema).events.size(), 173u);
}

TEST_F(Stored, a_result_without_its_companions_is_read) {
  fs::remove(folder / "timeline.json");
  fs::remove(folder / "events.jsonl");
  const StoredRun run = load_stored_run(folder, schema);
  EXPECT_FALSE(run.has_events);
  EXPECT_TRUE(run.timeline.is_null());
}

TEST_F(Stored, what_is_no_result_is_named_with_what_to_do) {
  write("result.json", R"({"hello": 1})");
  expect_refusal("result.json", "no result of r2bench run (it has no schema_version); give the result.json");
  write("result.json", R"([1, 2])");
  expect_refusal("result.json", "no result of r2bench run");
  write("result.json", "hello");
  expect_refusal("result.json", ":1:1: is not JSON");
  write("result.json", "");
  expect_refusal("result.json", "is empty; copy it again");
  fs::remove(folder / "result.json");
  expect_refusal("result.json", "no such file; give a result.json or the folder of a run");
}

TEST_F(Stored, a_result_that_was_cut_off_anywhere_is_told_from_a_foreign_one) {
  const std::string whole = contents("result.json");
  for (const size_t length : {size_t{1}, whole.size() / 3, whole.size() / 2, whole.size() - 3}) {
    write("result.json", whole.substr(0, length));
    expect_refusal("result.json", "was cut off, its JSON does not end; copy it again");
  }
}

TEST_F(Stored, another_schema_version_says_which_and_what_to_do) {
  auto result = nlohmann::json::parse(contents("result.json"));
  result["schema_version"] = 1;
  write("result.json", result.dump());
  expect_refusal("result.json", "run the scenario again");
  result["schema_version"] = 99;
  write("result.json", result.dump());
  expect_refusal("result.json",
                 "schema_version 99, and this r2bench knows 2 only: take the r2bench that wrote it");
}

TEST_F(Stored, a_result_that_does_not_fit_the_schema_is_refused) {
  auto result = nlohmann::json::parse(contents("result.json"));
  result["runs"][0].erase("metrics");
  write("result.json", result.dump());
  expect_refusal("result.json", "r2bench validate says all");
}

TEST_F(Stored, an_event_log_that_was_cut_off_is_refused_within_a_line_and_between_lines) {
  const std::string whole = contents("events.jsonl");
  write("events.jsonl", whole.substr(0, whole.size() - 20));
  const std::string said = refusal();
  EXPECT_NE(said.find("events.jsonl:173:"), std::string::npos) << said;
  EXPECT_NE(said.find("was cut off"), std::string::npos) << said;
  write("events.jsonl", whole.substr(0, whole.rfind('\n', whole.size() - 2) + 1));
  expect_refusal("events.jsonl", "was cut off, it holds 172 of 173 events");
  write("events.jsonl", "{\"a\": 1}\n");
  EXPECT_NE(refusal().find("events.jsonl:1: is not an event that r2bench writes"), std::string::npos)
      << refusal();
}

TEST_F(Stored, an_event_log_of_more_than_its_run_is_refused) {
  const std::string whole = contents("events.jsonl");
  write("events.jsonl", whole + whole);
  expect_refusal("events.jsonl", "holds 346 events, but its run wrote 173");
}

TEST_F(Stored, a_foreign_timeline_is_refused) {
  write("timeline.json", "{}");
  expect_refusal("timeline.json", "is no timeline of schema version 2");
}

TEST_F(Stored, a_page_holds_no_markup_of_a_run) {
  StoredRun run = load_stored_run(folder, schema);
  const std::string evil = "</script><script>window.broken = 1</script><!-- {{script}} &amp; \xe2\x80\xa8";
  run.result["scenario"] = evil;
  run.result["runs"][0]["error"] = evil;
  run.events[0]["text"] = evil;
  const std::string page = to_html({run});
  EXPECT_EQ(page.find(evil), std::string::npos);
  EXPECT_EQ(page.find("<script>window.broken"), std::string::npos);
  size_t scripts = 0;
  for (size_t at = page.find("</script"); at != std::string::npos; at = page.find("</script", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2u);  // the data and the program
  EXPECT_NE(page.find("\\u003c/script\\u003e"), std::string::npos);
  EXPECT_EQ(page.find("http://www.w3.org/2000/svg"),
            page.find("http:"));  // a name, not an address that is loaded
  EXPECT_EQ(page.find("https:"), std::string::npos);
}

TEST_F(Stored, a_page_says_how_many_events_it_leaves_out) {
  const std::string page = to_html({load_stored_run(folder, schema)}, 10);
  EXPECT_NE(page.find("\"events_total\":173"), std::string::npos);
  EXPECT_EQ(page.find("migration_done\",\""), std::string::npos);
}

}  // namespace
}  // namespace r2bench
