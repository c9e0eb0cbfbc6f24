// SPDX-License-Identifier: Apache-2.0
// Plans of `r2bench exec`, and `r2bench inject` on what runs. Every test asserts on witnesses.
#include "harness/exec/testing/exec_fixture.h"

namespace r2bench::test {
namespace {

TEST_F(Exec, a_bad_plan_is_told_before_anything_starts) {
  const std::string plan = file("plan.yaml", "faults:\n  - {at: now, target: node1/nic0, kind: port_dwn}\n");
  Command& misspelt = exec({"--node", "node0", "--plan", plan}, {"touch", folder + "/started"});
  EXPECT_EQ(misspelt.status(), 64);
  EXPECT_NE(misspelt.output().find("plan.yaml:2:"), std::string::npos) << misspelt.output();
  EXPECT_NE(misspelt.output().find("did you mean 'port_down'"), std::string::npos) << misspelt.output();
  const std::string far = file("far.yaml", "\n- {at: now, target: node1/nic7, kind: port_down}\n");
  Command& nowhere = exec({"--node", "node0", "--plan", far}, {"touch", folder + "/started"});
  EXPECT_EQ(nowhere.status(), 64);
  EXPECT_NE(nowhere.output().find("far.yaml:2:"), std::string::npos) << nowhere.output();
  EXPECT_FALSE(fs::exists(folder + "/started"));
}

TEST_F(Exec, a_killed_commands_faults_are_healed) {
  stay({"--node", "node0"});
  const std::string plan = file("plan.yaml", "- {at: now, target: node1/nic0, kind: port_down}\n");
  Command& breaking = stay({"--node", "node1", "--plan", plan});
  ASSERT_EQ(faults(name).size(), 1u);
  EXPECT_EQ(faults(name)[0]["state"], "triggered");
  breaking.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return faults(name)[0]["state"] == "healed"; }));
}

TEST_F(Exec, port_down_makes_ib_write_bw_fail_and_leaves_a_witness) {
  FAIL_UNLESS_INSTALLED("ib_write_bw", "perftest");
  const std::string plan = file("plan.yaml",
                                "faults:\n"
                                "  - {at: {bytes: 4 MiB}, target: node1/nic0, kind: port_down}\n"
                                "  - {at: {time: 1 h}, target: node0/nic1, kind: qp_error}\n");
  const Words write_bw = {"ib_write_bw", "-d", "vhca0", "-x", "1", "-D", "10", "-F"};
  Command& one = server({"--node", "node0", "--rate", "1 Gbit/s"}, write_bw);
  Command& other =
      client({"--node", "node1", "--plan", plan, "--witness", folder + "/witness.json"}, write_bw);
  EXPECT_GT(other.status(), 0) << other.output();
  EXPECT_LT(other.status(), 64) << other.output();
  EXPECT_NE(other.output().find("Failed status 12"), std::string::npos) << other.output();  // RETRY_EXC_ERR
  EXPECT_NE(other.output().find("took effect (t0)"), std::string::npos) << other.output();
  EXPECT_NE(other.output().find("never triggered, never took effect"), std::string::npos) << other.output();
  const auto witness = nlohmann::json::parse(contents(folder + "/witness.json"));
  ASSERT_EQ(witness["faults"].size(), 2u);
  EXPECT_EQ(witness["faults"][0]["took_effect"], true);
  EXPECT_EQ(witness["faults"][1]["took_effect"], false);
  EXPECT_TRUE(witness["faults"][1]["effects"].empty());
  const auto& effects = witness["faults"][0]["effects"];
  const auto shown = std::find_if(effects.begin(), effects.end(), [](const nlohmann::json& effect) {
    return effect["what"] == "WC 12 shown" && effect["node"] == "node1" && effect["rank"] == "ib_write_bw";
  });
  EXPECT_NE(shown, effects.end()) << effects.dump(2);
  one.status();  // it notices, or has its time out: both are its own affair
}

TEST_F(Exec, an_older_witness_stays_until_the_program_has_ended) {
  const std::string plan = file("plan.yaml", "- {at: {time: 1 h}, target: node0/nic0, kind: port_down}\n");
  const std::string witness = file("witness.json", "older\n");
  Command& refused = exec({"--node", "node9", "--plan", plan, "--witness", witness}, {"true"});
  EXPECT_EQ(refused.status(), 64) << refused.output();
  EXPECT_EQ(contents(witness), "older\n");
  const Words options = {"--node", "node0", "--plan", plan, "--witness", witness};
  Command& reads = exec(options, {"grep", "-q", "older", witness});
  EXPECT_EQ(reads.status(), 0) << reads.output();
  EXPECT_EQ(nlohmann::json::parse(contents(witness))["faults"].size(), 1u) << contents(witness);
}

TEST_F(Exec, inject_adds_lists_and_heals_under_a_running_program) {
  FAIL_UNLESS_INSTALLED("ib_write_bw", "perftest");
  const Words write_bw = {"ib_write_bw", "-d", "vhca0", "-x", "1", "-D", "4", "-F"};
  Command& one = server({"--node", "node0", "--rate", "1 Gbit/s"}, write_bw);
  Command& other = client({"--node", "node1"}, write_bw);
  EXPECT_EQ(inject({"add", "{at: now, target: node1/nic0, kind: throttle, rate: 200 Mbit/s}"}, name), "1\n");
  EXPECT_TRUE(eventually([&] { return faults(name)[0]["state"] == "at work"; }));
  EXPECT_GE(faults(name)[0]["effects"], 1);
  EXPECT_EQ(inject({"add", "{at: {time: 1 h}, target: 'node*/nic1', kind: blackhole}"}, name), "2\n");
  const std::string table = inject({"list"}, name);
  for (const char* text : {"throttle", "at work", "blackhole", "armed", "ib_write_bw on node1"})
    EXPECT_NE(table.find(text), std::string::npos) << table;
  EXPECT_EQ(inject({"remove", "2"}, name), "fault 2 was armed\n");
  EXPECT_NE(inject({"heal"}, name).find("1 healed"), std::string::npos);
  EXPECT_EQ(faults(name)[0]["state"], "healed");
  EXPECT_EQ(faults(name)[1]["state"], "removed");
  EXPECT_EQ(other.status(), 0) << other.output();
  EXPECT_EQ(one.status(), 0) << one.output();
}

TEST_F(Exec, inject_refuses_what_it_cannot_do) {
  const std::string second = name + "-b";
  stay({"--node", "node0"});
  Command& another = start({"exec", "--name", second, "--node", "node0", "--", "sh", "-c", kStay});
  ASSERT_TRUE(another.says("pid="));
  const auto refused = [&](const Words& words) {
    Command& command = start(words);
    EXPECT_EQ(command.status(), 64) << command.output();
    return command.output();
  };
  const std::string several = refused({"inject", "list"});
  for (const std::string& each : {name, second}) EXPECT_NE(several.find(each), std::string::npos) << several;
  EXPECT_NE(refused({"inject", "list", "--name", name + "-c"}).find("nothing runs under the name"),
            std::string::npos);
  EXPECT_NE(refused({"inject", "remove", "3", "--name", name}).find("there is no fault 3"),
            std::string::npos);
  EXPECT_NE(refused({"inject", "add", "{at: now, target: node7/nic0, kind: port_down}", "--name", name})
                .find("node7"),
            std::string::npos);
  EXPECT_NE(refused({"inject", "add", "{at: now, target: node0/nic0, kind: prot_down}", "--name", name})
                .find("did you mean 'port_down'"),
            std::string::npos);
  EXPECT_NE(refused({"inject", "add", "{target: node0/nic0, kind: port_down}", "--name", name})
                .find("nothing triggers"),
            std::string::npos);
}

TEST_F(Exec, inject_breaks_and_heals_a_running_job) {
  const std::string scenario = file(
      "job.yaml",
      "version: 1\n"
      "name: job_" +
          std::to_string(getpid()) +
          "\n"
          "fabric: {kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 2, nic_rate: 1 Gbit/s}\n"
          "workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 4 MiB, iters: 120, verify: true}\n"
          "modes: [migrate]\n"
          "env: {NCCL_IB_TIMEOUT: 13}\n"
          "timeouts: {setup: 120 s, stall: 60 s, job: 240 s}\n"
          "expect: {migrate: {outcome: ok, correctness: exact, migrations: '>= 1'}}\n");
  const std::string out = folder + "/out";
  Command& run = start({"run", scenario, "--quiet", "--no-plot", "--out", out});
  const std::string job = "run-" + std::to_string(run.pid());
  ASSERT_TRUE(eventually([&] { return listens(job); })) << run.output();
  EXPECT_NE(inject({"list"}, job).find("of r2bench run, mode migrate"), std::string::npos);
  // Counted in bytes, so that it strikes while operations are under way however long the set-up took.
  EXPECT_EQ(inject({"add", "{at: {bytes: 8 MiB}, target: node1/nic0, kind: port_down}"}, job), "1\n");
  EXPECT_TRUE(eventually([&] { return faults(job)[0]["state"] == "at work"; }));
  EXPECT_NE(inject({"heal"}, job).find("1 healed"), std::string::npos);
  // The figures are not those of the scenario: unknown, for that reason alone.
  EXPECT_EQ(run.status(250), 2) << run.output();
  EXPECT_FALSE(listens(job));
  const std::string events = contents(out + "/events.jsonl");
  for (const char* text : {"added by inject", "\"event\":\"inject\"", "1 healed by inject"})
    EXPECT_NE(events.find(text), std::string::npos) << text;
  const auto result = nlohmann::json::parse(contents(out + "/result.json"));
  EXPECT_EQ(result["verdict"], "unknown");
  EXPECT_EQ(result["doubt_kinds"], nlohmann::json({"faults_added"})) << result["doubts"].dump();
  for (const auto& expectation : result["expectations"])
    EXPECT_EQ(expectation["ok"], true) << expectation.dump();
  // It is nobody's planned fault, and is not measured as one.
  EXPECT_EQ(result["runs"][0]["metrics"]["faults"]["planned"], 0) << result["runs"][0]["metrics"].dump();
}

// Its result is not that of the scenario, whatever it meets.
TEST_F(Exec, a_fault_of_a_job_that_inject_heals_leaves_no_verdict) {
  const std::string scenario =
      file("healed.yaml",
           "version: 1\n"
           "name: healed\n"
           "fabric: {kind: vhca, nodes: 2, ranks_per_node: 1, nics_per_node: 2, nic_rate: 1 Gbit/s}\n"
           "workload: {engine: cpu, op: allreduce, dtype: float32, bytes: 4 MiB, iters: 120, verify: true}\n"
           "modes: [migrate]\n"
           "env: {NCCL_IB_TIMEOUT: 13}\n"
           "timeouts: {setup: 120 s, stall: 60 s, job: 240 s}\n"
           "faults: [{at: {iter: 10}, target: node1/nic0, kind: port_down}]\n"
           "expect: {migrate: {outcome: ok, correctness: exact, migrations: '>= 1'}}\n");
  const std::string out = folder + "/healed";
  Command& run = start({"run", scenario, "--quiet", "--no-plot", "--out", out});
  const std::string job = "run-" + std::to_string(run.pid());
  ASSERT_TRUE(eventually([&] { return listens(job); })) << run.output();
  ASSERT_TRUE(eventually([&] {
    const auto all = faults(job);
    return !all.empty() && all[0]["state"] == "at work";
  }));
  EXPECT_NE(inject({"heal"}, job).find("1 healed"), std::string::npos);
  EXPECT_EQ(run.status(250), 2) << run.output();
  const auto result = nlohmann::json::parse(contents(out + "/result.json"));
  EXPECT_EQ(result["doubt_kinds"], nlohmann::json({"faults_added"})) << result["doubts"].dump();
  EXPECT_NE(result["doubts"].dump().find("1 fault was ended by r2bench inject"), std::string::npos);
}

}  // namespace
}  // namespace r2bench::test
