// SPDX-License-Identifier: Apache-2.0
// Commands of the guard that fail or cannot be started, and undos that wait for them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/real/guard.h"
#include "harness/real/guard_link.h"
#include "harness/real/shell.h"
#include "harness/real/testing/guard_fixture.h"

namespace r2bench {
namespace {

// A process without a free descriptor can start no command.
TEST_F(GuardTest, a_command_that_cannot_be_started_has_failed) {
  Guard guard(kAmple);
  const std::string go = (folder / "go").string(), back = (folder / "late_is_back").string();
  Change late = file("late");
  late.undo = {"rm " + (folder / "late").string(), "[ -e " + go + " ] && touch " + back};
  EXPECT_TRUE(guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", late}})["ok"]);
  std::vector<nlohmann::json> answers;
  const auto hear = [&](const nlohmann::json& answer) { answers.push_back(answer); };
  guard.begin({{"do", "undo"}, {"id", 1}}, hear);
  std::ofstream(go).flush();
  {
    const NoFreeDescriptor none(0);
    guard.retry(hear);
    guard.retry(hear);
    EXPECT_TRUE(answers.empty() && guard.waits());
    std::string told;
    guard.put_all_back([&](const std::string& text) { told = text; });
    EXPECT_NE(told.find("could NOT be put back: "), std::string::npos) << told;
    EXPECT_NE(told.find("Too many open files"), std::string::npos) << told;
  }
  EXPECT_FALSE(there("late_is_back"));
  EXPECT_EQ(guard.changed(), 1u);
  EXPECT_TRUE(guard.carry_out({{"do", "undo"}, {"id", 1}})["ok"]);
  EXPECT_TRUE(there("late_is_back"));
}

// Nor does a probe that cannot be started say that the change has taken effect.
TEST_F(GuardTest, a_probe_that_cannot_be_started_is_no_witness) {
  Guard guard(100ms);
  Change change = file("a");
  change.apply = {};
  change.cut = {Probe::Kind::kFails, "true", ""};
  const NoFreeDescriptor none(0);
  const auto answer = guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change}});
  EXPECT_FALSE(answer["ok"]) << answer;
}

// A user's check that asks a switch: what ssh, a shell or a kill answers in its stead is not the switch's
// word. It is asked once only, because the commands fail.
TEST_F(GuardTest, a_check_that_could_not_run_says_neither_that_it_is_cut_nor_that_it_is_back) {
  const std::string script = (folder / "check").string();
  std::ofstream(script) << "true\n";
  const auto change_with = [](const std::string& check) {
    Change change;
    change.apply = change.undo = {"false"};
    change.cut = {Probe::Kind::kSucceeds, check, ""};
    change.back = {Probe::Kind::kFails, check, ""};
    return change;
  };
  for (const auto& [check, told] :
       std::vector<std::pair<std::string, std::string>>{{(folder / "none").string(), "ended with 127"},
                                                        {script, "ended with 126"},
                                                        {"exit 255", "ended with 255"},
                                                        {"timeout 0.01 sleep 60", "ended with 124"},
                                                        {"kill -KILL $$", "ended with 137"},
                                                        {"sleep 60", "took longer than "}}) {
    Guard guard(check == "sleep 60" ? 100ms : kAmple);
    const auto applied = guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change_with(check)}});
    const auto undone = guard.carry_out({{"do", "undo"}, {"id", 1}});
    EXPECT_EQ(guard.changed(), 1u) << check;
    for (const nlohmann::json& answer : {applied, undone}) {
      EXPECT_FALSE(answer["ok"]) << answer;
      const std::string said = answer["said"];
      EXPECT_NE(said.find("the check `" + check + "` could not run: it " + told), std::string::npos) << said;
      EXPECT_NE(said.find("; a check ends with 0 if the port is cut, with 1 to 123 if it is not"),
                std::string::npos)
          << said;
    }
  }
  for (const char* check : {"exit 1", "exit 123"}) {  // these are answers
    Guard guard(kAmple);
    EXPECT_FALSE(guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change_with(check)}})["ok"]);
    EXPECT_TRUE(guard.carry_out({{"do", "undo"}, {"id", 1}})["ok"]);
    EXPECT_EQ(guard.changed(), 0u) << check;
  }
}

// A path that cannot be looked at is not gone.
TEST_F(GuardTest, a_path_that_cannot_be_looked_at_is_not_gone) {
  Guard guard(100ms);
  Change change = file("a");
  change.apply = {};
  change.cut = {Probe::Kind::kPathGone, (folder / std::string(300, 'n')).string(), ""};
  const auto answer = guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change}});
  EXPECT_FALSE(answer["ok"]) << answer;
  EXPECT_NE(answer["said"].get<std::string>().find("File name too long"), std::string::npos) << answer;
}

TEST_F(GuardTest, it_goes_on_where_no_command_can_be_started) {
  GuardLink link(REAL_GUARD, lists(), "");
  Change late = file("late");
  late.undo = {"rm " + (folder / "late").string(),
               "[ -e " + (folder / "go").string() + " ] && touch " + (folder / "late_is_back").string()};
  link.apply(1, late);
  ASSERT_TRUE(wait_for(link).ok);
  link.undo(1);
  ASSERT_TRUE(within(30s, [&] { return !there("late"); }));
  {
    const NoFreeDescriptor none(link.pid());
    const GuardAnswer undone = wait_for(link);  // when it has tried for 10 s
    EXPECT_TRUE(undone.undone && !undone.ok) << undone.said;
    EXPECT_NE(undone.said.find("Too many open files"), std::string::npos) << undone.said;
  }
  EXPECT_EQ(link.takeovers(), 0);
  std::ofstream(folder / "go").flush();
  std::ofstream(folder / "late").flush();
  link.undo(1);
  const GuardAnswer undone = wait_for(link);
  EXPECT_TRUE(undone.ok) << undone.said;
  EXPECT_TRUE(there("late_is_back"));
}

TEST_F(GuardTest, heals_wait_together_and_a_change_waits_for_them) {
  GuardLink link(REAL_GUARD, lists(), "");
  std::vector<GuardAnswer> answers;
  const auto answered = [&](size_t count) {
    return within(60s, [&] {
      for (GuardAnswer& answer : link.answers()) answers.push_back(std::move(answer));
      return answers.size() >= count;
    });
  };
  const auto path = [&](const char* name) { return (folder / name).string(); };
  Change late = file("late"), next = file("next");
  late.undo = {"rm " + path("late"), "[ -e " + path("go") + " ] && touch " + path("late_is_back")};
  next.apply.insert(next.apply.begin(), "[ -e " + path("late_is_back") + " ]");
  link.apply(1, late);
  link.apply(2, file("other"));
  ASSERT_TRUE(answered(2));
  link.undo(1);
  link.undo(2);
  ASSERT_TRUE(answered(3));
  EXPECT_TRUE(answers[2].id == 2 && answers[2].undone && answers[2].ok) << answers[2].said;
  std::ofstream(path("go")) << "";
  link.apply(3, next);
  ASSERT_TRUE(answered(5));
  EXPECT_TRUE(answers[3].id == 1 && answers[3].undone && answers[3].ok) << answers[3].said;
  EXPECT_TRUE(answers[4].id == 3 && answers[4].ok) << answers[4].said;
}

TEST_F(GuardTest, an_answer_does_not_wait_for_the_change_that_follows) {
  GuardLink link(REAL_GUARD, lists(), "");
  const std::string tries = (folder / "tries").string(), heard = (folder / "heard").string();
  Change late = file("late"), next = file("next");
  late.undo = {"rm " + (folder / "late").string(),
               "echo >>" + tries + "; [ $(wc -l <" + tries + ") -ge 10 ]"};
  next.apply.insert(next.apply.begin(),
                    "for i in $(seq 1000); do [ -e " + heard + " ] && exit 0; sleep 0.01; done; exit 1");
  link.apply(1, late);
  ASSERT_TRUE(wait_for(link).ok);
  link.undo(1);
  link.apply(2, next);  // it is there long before the tenth try
  std::vector<GuardAnswer> answers;
  const auto answered = [&](size_t count) {
    return within(60s, [&] {
      for (GuardAnswer& answer : link.answers()) answers.push_back(std::move(answer));
      return answers.size() >= count;
    });
  };
  ASSERT_TRUE(answered(1));
  std::ofstream(heard).flush();
  ASSERT_TRUE(answered(2));
  EXPECT_TRUE(answers[0].id == 1 && answers[0].undone && answers[0].ok) << answers[0].said;
  EXPECT_TRUE(answers[1].id == 2 && answers[1].ok) << answers[1].said;
}

// As a route whose gateway is reached over a NIC that is put back later.
TEST_F(GuardTest, what_waits_at_the_end_does_not_keep_the_others_waiting) {
  Guard guard(kAmple);
  Change needs_b = file("a");
  needs_b.undo = {"rm " + (folder / "a").string(), "[ ! -e " + (folder / "b").string() + " ]"};
  EXPECT_TRUE(guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", file("b")}})["ok"]);
  EXPECT_TRUE(guard.carry_out({{"do", "apply"}, {"id", 2}, {"change", needs_b}})["ok"]);
  std::vector<std::string> told;
  guard.put_all_back([&](const std::string& text) { told.push_back(text.substr(0, text.find(':'))); });
  EXPECT_EQ(told, (std::vector<std::string>{"b is put back", "a is put back"}));
  EXPECT_EQ(guard.changed(), 0u);
}

TEST_F(GuardTest, the_shell_lets_its_caller_look_as_long_as_it_runs) {
  const std::string end = (folder / "end").string();
  int looks = 0;
  const auto result = run_shell("until [ -e " + end + " ]; do sleep 0.01; done", kAmple, [&] {
    if (++looks == 3) std::ofstream(end).flush();
  });
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_GE(looks, 3);
}

}  // namespace
}  // namespace r2bench
