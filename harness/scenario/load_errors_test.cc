// SPDX-License-Identifier: Apache-2.0
// How mistakes are told: which of them, in which order, of which file; and what is no scenario at all.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>

#include "harness/scenario/testing/problems_of.h"

namespace r2bench {
namespace {

/// A file with only `body` besides what every file needs; body starts at line 3.

TEST(LoadErrors, modes_must_exist) {
  const auto one = [](const std::string& modes) {
    const std::vector<Problem> problems = problems_of("version: 1\nmodes: " + modes + "\n");
    EXPECT_EQ(problems.size(), 1u);
    return problems.at(0).message;
  };
  EXPECT_EQ(one("[migrat]"), "unknown mode 'migrat'; did you mean 'migrate'?");
  EXPECT_NE(one("[]").find("must be a list"), std::string::npos);
  EXPECT_NE(one("migrate").find("must be a list"), std::string::npos);
  EXPECT_NE(one("[migrate, migrate]").find("given twice"), std::string::npos);
  EXPECT_NE(one("[{label: a}]").find("a mode needs 'mode'"), std::string::npos);
  EXPECT_NE(one("[{mode: migrate, lable: a}]").find("did you mean 'label'?"), std::string::npos);
}

TEST(LoadErrors, the_reference_of_pairs_has_no_overhead) {
  const auto refused = [](const std::string& modes, const std::string& expected_of) {
    const std::vector<Problem> problems =
        problems_of("version: 1\nmodes: " + modes + "\npairs: 4\nexpect: {" + expected_of +
                    ": {overhead_pct: \"<= 3 %\"}}\n");
    EXPECT_EQ(problems.size(), 1u);
    return problems.empty() ? std::string() : problems[0].message;
  };
  EXPECT_EQ(refused("[migrate, baseline]", "baseline"),
            "'overhead_pct' is measured against 'baseline'; expect it of another mode");
  EXPECT_EQ(refused("[migrate, balance]", "migrate"),
            "'overhead_pct' is measured against 'migrate'; expect it of another mode");
}

TEST(LoadErrors, several_problems_are_told_together_and_in_order) {
  const std::vector<Problem> problems = problems_of(R"(version: 1
modes: [baseline, migrat]
fabric: {nics_per_nod: 4, nic_rate: 10}
faults:
  - {at: {iter: 60}, target: node7/nic0, kind: port_down}
expect:
  all: {corectness: exact}
)");
  ASSERT_EQ(problems.size(), 5u) << ScenarioError(problems).what();
  EXPECT_EQ(problems[0].line, 2);
  EXPECT_EQ(problems[1].line, 3);
  EXPECT_EQ(problems[2].line, 3);
  EXPECT_EQ(problems[3].line, 5);
  EXPECT_EQ(problems[4].line, 7);
}

// Results quote the scenario, and are JSON.
TEST(LoadErrors, text_that_is_not_utf8_is_refused_where_it_stands) {
  const std::vector<Problem> problems =
      problems_of(file("seed: 2\ndescription: gr\xF6\xDF"
                       "e"));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(to_string(problems[0]).rfind("x.yaml:4:16: this character is not in UTF-8", 0), 0u)
      << to_string(problems[0]);
  LoadOptions options;
  options.set = {{"description",
                  "gr\xF6\xDF"
                  "e"}};
  ASSERT_EQ(problems_of(file(""), options).size(), 1u);
  EXPECT_EQ(parse_scenarios("x.yaml", file("description: größe"), {})[0].description, "größe");
}

TEST(LoadErrors, a_byte_order_mark_tells_the_encoding) {
  const std::string scenario = file("description: plain");  // ASCII
  for (const size_t width : {2, 4})
    for (const bool big_endian : {false, true}) {
      std::string encoded;
      const auto add = [&](uint32_t unit) {
        for (size_t i = 0; i < width; ++i)
          encoded += char(unit >> 8 * (big_endian ? width - 1 - i : i) & 0xff);
      };
      add(0xfeff);
      for (const char c : scenario) add(uint32_t(c));
      EXPECT_EQ(parse_scenarios("x.yaml", encoded, {})[0].description, "plain")
          << 8 * width << (big_endian ? " BE" : " LE");
    }
}

TEST(LoadErrors, keys_of_a_matrix_and_of_set_are_told_with_their_place) {
  std::vector<Problem> problems =
      problems_of(file("matrix:\n  workload.bites: [1 MiB]\n  fabrik.nodes: [2]"));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].message.find("'fabrik.nodes' cannot vary"), std::string::npos);
  problems = problems_of(file("seed: 2\nmatrix:\n  workload.bites: [1 MiB, 2 MiB]"));
  ASSERT_EQ(problems.size(), 2u) << ScenarioError(problems).what();
  EXPECT_EQ(problems[0].line, 5);
  EXPECT_NE(problems[0].message.find("unknown key 'bites'"), std::string::npos) << problems[0].message;
  LoadOptions options;
  options.set = {{"workload.bites", "1 MiB"}, {"fabrik.nodes", "2"}};
  problems = problems_of(file(""), options);
  ASSERT_EQ(problems.size(), 2u) << ScenarioError(problems).what();
  EXPECT_EQ(problems[0].file, "--set fabrik.nodes=2");
  EXPECT_EQ(problems[1].file, "--set workload.bites=1 MiB");
  options.set = {{"workload", "{op: allreduce}"}};
  problems = problems_of(file("matrix:\n  workload.bytes: [1 MiB]"), options);
  ASSERT_EQ(problems.size(), 1u) << ScenarioError(problems).what();
  EXPECT_EQ(problems[0].file, "--set workload={op: allreduce}");
  EXPECT_NE(problems[0].message.find("varies 'workload.bytes'"), std::string::npos) << problems[0].message;
}

TEST(LoadErrors, what_no_process_could_be_given_is_refused) {
  for (const char* body :
       {"env: {A: \"b\\0c\"}", "env: {\"A\\0B\": c}", "workload: {engine: exec, command: \"true\\0 x\"}",
        "workload: {engine: exec, command: [\"true\\0x\"]}"}) {
    const std::vector<Problem> problems = problems_of(file(body));
    ASSERT_FALSE(problems.empty()) << body;
    EXPECT_NE(problems[0].message.find("NUL"), std::string::npos) << problems[0].message;
  }
}

TEST(LoadErrors, lists_in_lists_have_a_limit) {
  const std::vector<Problem> problems =
      problems_of(file("fabric: " + std::string(20'000, '[') + std::string(20'000, ']')));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].message, "nested too deeply");
}

TEST(LoadErrors, a_job_has_room_for_so_many_faults) {
  const auto faults = [](size_t count) {
    std::string text = "faults:\n";
    for (size_t i = 0; i < count; ++i) text += "  - {at: {iter: 3}, target: node1/nic0, kind: qp_error}\n";
    return text;
  };
  EXPECT_EQ(parse_scenarios("x.yaml", file(faults(4) + "repeats: 1024"), {})[0].repeats, 1024);
  std::vector<Problem> problems = problems_of(file(faults(4) + "repeats: 1025"));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].line, 8);
  EXPECT_EQ(problems[0].message, "4 faults, repeated 1025 times, are 4100; a job has room for 4096");
  problems = problems_of(file(faults(kMostFaults + 1)));
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].line, 4);
  EXPECT_NE(problems[0].message.find("4097 faults; a job has room for 4096"), std::string::npos)
      << problems[0].message;
}

TEST(LoadErrors, what_is_no_scenario_file_is_said) {
  const auto told = [](const std::string& path) {
    try {
      load_scenarios(path, {});
    } catch (const ScenarioError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(told("/dev/zero"), "/dev/zero: is larger than 4 MiB, the limit\n");
  std::string pattern = testing::TempDir() + "scenario_XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  std::filesystem::create_symlink("nowhere", pattern + "/dangling.yaml");
  EXPECT_EQ(told(pattern + "/dangling.yaml"),
            pattern + "/dangling.yaml: cannot be read: No such file or directory\n");
  std::filesystem::remove_all(pattern);
}

TEST(LoadErrors, the_offending_line_is_shown_with_a_caret) {
  const ScenarioError error(problems_of(file("fabric:\n  nics_per_nod: 4")));
  EXPECT_STREQ(error.what(),
               "x.yaml:4:3: unknown key 'nics_per_nod' in 'fabric'; did you mean 'nics_per_node'?\n"
               "  4 |   nics_per_nod: 4\n"
               "    |   ^\n");
}

TEST(LoadErrors, what_is_no_scenario_at_all) {
  EXPECT_NE(problems_of("")[0].message.find("the file is empty"), std::string::npos);
  EXPECT_NE(problems_of("[1, 2]")[0].message.find("but this is a list"), std::string::npos);
  EXPECT_NE(problems_of("a: [1, 2\nb: 3")[0].message.find("not YAML"), std::string::npos);
  EXPECT_GT(problems_of("a: [1, 2\nb: 3")[0].line, 0);
  EXPECT_NE(problems_of("modes: [migrate]")[0].message.find("'version' is missing"), std::string::npos);
  EXPECT_NE(problems_of("version: 2\nmodes: [migrate]")[0].message.find("version 2 is not known"),
            std::string::npos);
  EXPECT_NE(problems_of("version: 1")[0].message.find("'modes' is missing"), std::string::npos);
}

TEST(LoadErrors, mistakes_of_the_command_line_are_told_as_such) {
  LoadOptions options;
  options.set = {{"workload.bytes", "7"}};
  std::vector<Problem> problems = problems_of(file(""), options);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].file, "--set workload.bytes=7");
  EXPECT_EQ(problems[0].line, 0);

  options.set = {{"workload.byts", "7 MiB"}};
  problems = problems_of(file(""), options);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].message.find("did you mean 'bytes'?"), std::string::npos);

  options = {};
  options.modes = {"migrat"};
  problems = problems_of(file(""), options);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(to_string(problems[0]), "--modes: unknown mode 'migrat'; did you mean 'migrate'?\n");
}

TEST(LoadErrors, files_that_cannot_be_read) {
  try {
    load_scenarios("/nonexistent/folder/x.yaml");
    FAIL();
  } catch (const ScenarioError& error) {
    EXPECT_STREQ(error.what(), "/nonexistent/folder/x.yaml: cannot be read: No such file or directory\n");
  }
  EXPECT_THROW(load_scenarios("/"), ScenarioError);
}

TEST(LoadErrors, a_mistake_outside_the_matrix_is_told_once) {
  EXPECT_EQ(problems_of(file("nam: a\nmatrix: {workload.op: [allreduce, sendrecv]}")).size(), 1u);
}

TEST(RefusedModes, on_nccls_own_transport_are_baseline_and_expect_nothing_of_the_plugins_trace) {
  const auto messages = [](const std::string& rest) {
    std::string all;
    for (const Problem& problem : problems_of("version: 1\nworkload: {engine: nccl}\n" + rest))
      all += to_string(problem);
    return all;
  };
  EXPECT_NE(messages("modes: [{mode: migrate, transport: ib}]\n")
                .find("3:8: mode 'migrate' runs on NCCL's IB transport"),
            std::string::npos);
  const std::string fault = "faults: [{at: {iter: 1}, target: node1/nic0, kind: port_down}]\n";
  EXPECT_NE(messages("modes: [{mode: baseline, label: ib, transport: ib}]\n" + fault +
                     "expect: {ib: {recover_ms.max: '<= 1 s'}}\n")
                .find("'recover_ms.max' is read from the plugin's trace"),
            std::string::npos);
}

TEST(LoadErrors, what_follows_the_first_document_is_refused) {
  const std::string one = file("fabric: {nodes: 2}");
  const std::vector<Problem> problems = problems_of(one + "---\nversion: 1\nfabrik: {nodes: 9}\n");
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].line, 4);
  EXPECT_EQ(
      problems[0].message,
      "the scenario ends before this, and the rest of the file would be ignored; write a second document "
      "into a file of its own");
  for (const char* rest : {"---\n---\nversion: 1\n", "]\n", "}\n", "...\nversion: 1\n"})
    EXPECT_EQ(problems_of(one + rest).size(), 1u) << rest;
  EXPECT_EQ(parse_scenarios("x.yaml", "---\n" + one + "...\n").size(), 1u);
  EXPECT_EQ(parse_scenarios("x.yaml", one + "---\n").size(), 1u) << "an empty one says nothing";
}

TEST(LoadErrors, a_label_is_a_name) {
  for (const char* label : {"\"a\\nb\"", "\"a\\x01\"", "..", "\"<b>x|&y`\"", "all", "\"\"", "a/b", "ä"}) {
    const std::vector<Problem> problems =
        problems_of(std::string("version: 1\nmodes: [{mode: migrate, label: ") + label + "}]\n");
    ASSERT_EQ(problems.size(), 1u) << label;
    EXPECT_NE(problems[0].message.find("is no good label; use one word of letters, digits"),
              std::string::npos)
        << problems[0].message;
  }
  EXPECT_EQ(parse_scenarios("x.yaml", "version: 1\nmodes: [{mode: migrate, label: v1.2_no-ack}]\n")[0]
                .modes[0]
                .label,
            "v1.2_no-ack");
}

TEST(LoadErrors, the_scenarios_of_a_matrix_have_different_names) {
  const auto why = [](const std::string& matrix) {
    const std::vector<Problem> problems = problems_of(file("matrix: {" + matrix + "}"));
    EXPECT_EQ(problems.size(), 1u) << ScenarioError(problems).what();
    return to_string(problems.at(0));
  };
  EXPECT_NE(why("workload.bytes: [1 MiB], workload.bytes: [2 MiB, 3 MiB]")
                .find("x.yaml:3:35: 'workload.bytes' is given twice in 'matrix'"),
            std::string::npos)
      << why("workload.bytes: [1 MiB], workload.bytes: [2 MiB, 3 MiB]");
  EXPECT_NE(
      why("workload.bytes: [1 MiB, 1MiB]")
          .find("x.yaml:3:34: '1MiB' of 'workload.bytes' gives its scenario the name that '1 MiB' gives"),
      std::string::npos);
  EXPECT_NE(why("workload.plugin: ['a*', 'a']").find("'a' of 'workload.plugin' gives"), std::string::npos);
  // Across keys: 1-2 and 3 as 1 and 2-3.
  EXPECT_NE(why("env.A: [1, 1-2], env.B: [3, 2-3]").find("have the name 'x-1-2-3'"), std::string::npos);
}

std::string overlap(const std::string& faults) {
  const std::string text =
      file("fabric: {nodes: 2, nics_per_node: 4}\nworkload: {iters: 100}\nfaults: [" + faults + "]");
  try {
    parse_scenarios("x.yaml", text);
  } catch (const ScenarioError& error) {
    return error.problems().at(0).message;
  }
  return "";
}

TEST(Overlap, a_fault_whose_nics_are_taken_for_good_is_refused) {
  EXPECT_EQ(overlap("{at: {iter: 20}, target: node1/nic0, kind: port_down}, "
                    "{at: {iter: 30}, target: node1/nic0, kind: port_down}"),
            "'port_down node1/nic0 #2' takes nothing that 'port_down node1/nic0' has not taken already, and "
            "that one is never healed; say how long it lasts, such as 'for: 200 ms'");
  for (const char* faults : {"{at: {iter: 20}, target: node1/nic0, kind: port_down}, "
                             "{at: {iter: 20}, target: node1/nic0, kind: port_down}",
                             "{at: {iter: 20}, target: 'node*/nic[0-1]', kind: port_down}, "
                             "{at: {iter: 20}, target: node1/nic1, kind: port_down, for: 1 s}",
                             "{at: {iter: 30}, target: node1/nic0, kind: port_down}, "
                             "{at: {iter: 20}, target: node1/nic0, kind: port_down}",
                             "{at: {wr: 30}, target: node1/nic0, kind: blackhole}, "
                             "{on: migration_started, target: node1/nic0, kind: blackhole}",
                             "{at: {time: 1 s}, target: node1/nic0, kind: port_down}, "
                             "{at: {time: 2 s}, target: node1/nic0, kind: port_down, for: 1 s}",
                             "{name: first, at: {iter: 20}, target: node1/nic0, kind: port_down}, "
                             "{after: first, target: node1/nic0, kind: port_down, for: 1 s}"})
    EXPECT_NE(overlap(faults).find("takes nothing that '"), std::string::npos) << faults;
}

TEST(Overlap, faults_that_change_something_beside_others_are_not) {
  for (const char* faults :
       {"{at: {iter: 20}, target: node1/nic0, kind: port_down, for: 100 ms}, "  // healed
        "{at: {iter: 30}, target: node1/nic0, kind: port_down}",
        "{at: {iter: 30}, target: node1/nic0, kind: port_down}, "  // before it
        "{at: {iter: 20}, target: node1/nic0, kind: port_down, for: 100 ms}",
        "{at: {iter: 20}, target: node1/nic0, kind: port_down}, "  // another NIC
        "{on: migration_started, target: node1/nic1, kind: port_down}",
        "{at: {iter: 20}, target: node1/nic0, kind: port_down}, "  // one NIC more
        "{at: {iter: 30}, target: 'node1/nic*', kind: port_down}",
        "{at: {iter: 20}, target: node1/nic0, kind: throttle, rate: 1 Mbit/s}, "  // another kind
        "{at: {iter: 30}, target: node1/nic0, kind: port_down}",
        "{at: {iter: 20}, target: node1/nic0, kind: blackhole}, "  // is also told
        "{at: {iter: 30}, target: node1/nic0, kind: port_down}",
        "{at: {iter: 20}, target: node1/nic0, kind: port_down, events: false}, "  // is also told
        "{at: {iter: 30}, target: node1/nic0, kind: port_down}",
        "{at: {iter: 20}, target: node1/nic0, kind: throttle, rate: 100 Mbit/s}, "  // slower still
        "{at: {iter: 30}, target: node1/nic0, kind: throttle, rate: 50 Mbit/s}",
        "{at: {iter: 20}, target: node1/nic0, kind: qp_error}, "  // another queue pair
        "{at: {iter: 20}, target: node1/nic0, kind: qp_error}",
        "{at: {iter: 20}, target: node1/nic0, kind: port_flap, down: 10 ms, up: 10 ms, count: 2}, "  // ends
        "{at: {iter: 30}, target: node1/nic0, kind: port_flap, down: 10 ms, up: 10 ms, count: 2}"})
    EXPECT_EQ(overlap(faults), "") << faults;
}

}  // namespace
}  // namespace r2bench
