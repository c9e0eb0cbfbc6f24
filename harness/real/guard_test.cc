// SPDX-License-Identifier: Apache-2.0
// The guard with changes that are files: what it tells, and that it puts back whatever becomes of its owner.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/launch/marked_processes.h"
#include "harness/real/guard.h"
#include "harness/real/guard_link.h"
#include "harness/real/shell.h"
#include "harness/real/testing/guard_fixture.h"
#include "harness/real/undo_list.h"
#include "r2ccl/base/clock.h"

namespace r2bench {
namespace {

TEST_F(GuardTest, tells_when_the_machine_says_so_and_puts_back) {
  GuardLink link(REAL_GUARD, lists(), "");
  const uint64_t before = r2ccl::now_ns();
  link.apply(7, file("a"));
  const GuardAnswer applied = wait_for(link);
  EXPECT_TRUE(applied.ok) << applied.said;
  EXPECT_EQ(applied.id, 7u);
  EXPECT_FALSE(applied.undone);
  EXPECT_GE(applied.time_ns, before);
  EXPECT_LE(applied.time_ns, r2ccl::now_ns());
  EXPECT_NE(applied.said.find("is there"), std::string::npos);
  EXPECT_TRUE(there("a"));
  link.undo(7);
  const GuardAnswer undone = wait_for(link);
  EXPECT_TRUE(undone.ok && undone.undone) << undone.said;
  EXPECT_GT(undone.time_ns, applied.time_ns);
  EXPECT_FALSE(there("a"));
}

TEST_F(GuardTest, what_is_left_is_put_back_at_the_end_in_the_opposite_order) {
  {
    GuardLink link(REAL_GUARD, lists(), "");
    for (uint64_t id : {1, 2, 3}) {
      link.apply(id, file(std::to_string(id)));
      EXPECT_TRUE(wait_for(link).ok);
    }
    link.undo(2);
    wait_for(link);
  }
  EXPECT_FALSE(there("1") || there("2") || there("3"));
  EXPECT_EQ(order(), "2 3 1 ");
}

TEST_F(GuardTest, outlives_an_owner_that_is_killed) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    setpgid(0, 0);
    GuardLink link(REAL_GUARD, lists(), "");
    link.apply(1, file("a"));
    const bool ok = wait_for(link).ok;
    const pid_t guard = link.pid();
    (void)!write(ready[1], ok ? &guard : nullptr, ok ? sizeof(guard) : 0);
    for (;;) pause();
  }
  close(ready[1]);
  pid_t guard = 0;
  ASSERT_EQ(read(ready[0], &guard, sizeof(guard)), ssize_t(sizeof(guard)));
  close(ready[0]);
  EXPECT_TRUE(there("a"));
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) kill(guard, each);
  EXPECT_EQ(kill(guard, 0), 0);
  kill(-owner, SIGKILL);  // the whole group, as a terminal or a test runner would
  waitpid(owner, nullptr, 0);
  EXPECT_TRUE(within(30s, [&] { return !there("a"); })) << "nobody put it back";
  EXPECT_TRUE(within(30s, [&] { return there("order"); })) << "its last command";
  EXPECT_TRUE(within(30s, [&] { return !fs::exists(lists()); })) << "nothing is left to be put back";
}

TEST_F(GuardTest, a_command_that_fails_is_told_and_still_undone) {
  Guard guard(kAmple);
  Change change = file("a");
  change.apply.emplace_back("echo no such NIC >&2; exit 3");
  change.cut = {Probe::Kind::kPathThere, (folder / "never").string(), ""};
  const auto answer = guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change}});
  EXPECT_FALSE(answer["ok"]);
  EXPECT_NE(answer["said"].get<std::string>().find("ended with 3: no such NIC"), std::string::npos) << answer;
  EXPECT_EQ(guard.changed(), 1u);
  EXPECT_TRUE(guard.carry_out({{"do", "undo"}, {"id", 1}})["ok"]);
  EXPECT_FALSE(there("a"));
  EXPECT_EQ(guard.changed(), 0u);
}

TEST_F(GuardTest, what_the_machine_does_not_confirm_is_no_effect) {
  Guard guard(5s);  // it looks so long; a shell must start in that time, too
  Change change = file("a");
  change.cut = {Probe::Kind::kOutputHas, "echo the link is up", "down"};
  const auto answer = guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change}});
  EXPECT_FALSE(answer["ok"]);
  EXPECT_EQ(answer["time_ns"], 0u);
  EXPECT_NE(answer["said"].get<std::string>().find("the link is up"), std::string::npos);
  std::vector<std::string> told;
  guard.put_all_back([&](const std::string& text) { told.push_back(text); });
  EXPECT_FALSE(there("a"));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("a is put back"), std::string::npos);
}

TEST_F(GuardTest, what_cannot_be_put_back_names_the_commands) {
  Guard guard(kAmple);
  Change change = file("a");
  change.undo = {"exit 5"};
  guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change}});
  std::string told;
  guard.put_all_back([&](const std::string& text) { told = text; });
  EXPECT_NE(told.find("could NOT be put back"), std::string::npos) << told;
  EXPECT_NE(told.find("put back with `exit 5`"), std::string::npos) << told;
}

// The link is up again, but an address or a route that it lost is not.
TEST_F(GuardTest, what_is_put_back_in_part_is_told_and_stays_on_the_list) {
  UndoList list(lists(), "1", 0ms);
  Guard guard(1s, &list);
  Change change = file("a");
  change.undo = {"rm -f " + (folder / "a").string(), "echo no route to it >&2; exit 2",
                 "touch " + (folder / "last").string()};
  EXPECT_TRUE(guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change}})["ok"]);
  const auto undone = guard.carry_out({{"do", "undo"}, {"id", 1}});
  EXPECT_FALSE(undone["ok"]) << undone;
  EXPECT_NE(undone["said"].get<std::string>().find("exit 2` ended with 2: no route to it"), std::string::npos)
      << undone;
  EXPECT_FALSE(there("a"));
  EXPECT_TRUE(there("last")) << "the commands behind it are carried out";
  EXPECT_EQ(guard.changed(), 1u);
  EXPECT_EQ(list.changes().size(), 1u);
}

// As a route by way of an address that the interface has a moment later.
TEST_F(GuardTest, a_command_that_fails_at_first_is_tried_again) {
  Guard guard(kAmple);
  Change change = file("a");
  const std::string second = (folder / "second").string();
  change.undo = {"rm -f " + (folder / "a").string(),
                 "[ -e " + second + " ] || { touch " + second + "; exit 2; }"};
  EXPECT_TRUE(guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change}})["ok"]);
  const auto undone = guard.carry_out({{"do", "undo"}, {"id", 1}});
  EXPECT_TRUE(undone["ok"]) << undone;
  EXPECT_EQ(guard.changed(), 0u);
}

TEST_F(GuardTest, another_takes_over_from_one_that_is_killed) {
  GuardLink link(REAL_GUARD, lists(), "");
  link.apply(1, file("a"));
  ASSERT_TRUE(wait_for(link).ok);
  const pid_t first = link.pid();
  ASSERT_EQ(kill(first, SIGKILL), 0);
  link.undo(1);
  const GuardAnswer undone = wait_for(link);
  EXPECT_TRUE(undone.ok && undone.undone) << undone.said;
  EXPECT_FALSE(there("a"));
  EXPECT_EQ(link.takeovers(), 1);
  EXPECT_NE(link.pid(), first);
  EXPECT_FALSE(link.lost());
}

TEST_F(GuardTest, a_kill_within_a_change_is_made_good) {
  GuardLink link(REAL_GUARD, lists(), "");
  Change slow = file("a");
  slow.apply.insert(slow.apply.begin(), "touch " + (folder / "begun").string() + "; sleep 0.5");
  link.apply(1, slow);
  ASSERT_TRUE(within(30s, [&] { return there("begun"); }));
  ASSERT_EQ(kill(link.pid(), SIGKILL), 0);
  const GuardAnswer applied = wait_for(link);  // the second one has made it
  EXPECT_TRUE(applied.ok && !applied.undone) << applied.said;
  EXPECT_TRUE(there("a"));
}

TEST_F(GuardTest, one_killed_at_the_end_is_followed_by_another) {
  {
    GuardLink link(REAL_GUARD, lists(), "");
    for (uint64_t id : {1, 2}) {
      link.apply(id, file(std::to_string(id)));
      ASSERT_TRUE(wait_for(link).ok);
    }
    ASSERT_EQ(kill(link.pid(), SIGKILL), 0);
  }
  EXPECT_FALSE(there("1") || there("2"));
  EXPECT_EQ(order(), "2 1 ");
  EXPECT_FALSE(fs::exists(lists())) << "nothing is left to be put back";
}

TEST_F(GuardTest, what_is_left_by_owner_and_guard_is_put_back_by_the_next_program) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    GuardLink link(REAL_GUARD, lists(), "");
    link.apply(1, file("a"));
    const pid_t guard = wait_for(link).ok ? link.pid() : 0;
    (void)!write(ready[1], &guard, sizeof(guard));
    for (;;) pause();
  }
  pid_t guard = 0;
  ASSERT_EQ(read(ready[0], &guard, sizeof(guard)), ssize_t(sizeof(guard)));
  ASSERT_GT(guard, 0);
  std::vector<std::string> told;
  const auto tell = [&](const std::string& text) { told.push_back(text); };
  EXPECT_EQ(put_back_what_is_left(tell, lists()), 0u);
  EXPECT_TRUE(there("a") && told.empty()) << "its guard lives";
  // As a job step that is killed with all that is in it. If the owner were killed first, the guard might put
  // the change back before it is killed itself.
  kill(guard, SIGKILL);
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  ASSERT_TRUE(there("a")) << "the test's own condition: nobody has put it back";
  const fs::path file = [&] {
    for (const auto& entry : fs::directory_iterator(lists()))
      if (entry.path().extension() == ".json") return entry.path();
    return fs::path();
  }();
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write) << file;
  EXPECT_TRUE(within(30s, [&] {
    put_back_what_is_left(tell, lists());
    return !there("a");
  }));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("left by a guard that was killed: a is put back"), std::string::npos) << told[0];
  EXPECT_FALSE(fs::exists(lists()));
}

TEST_F(GuardTest, what_could_not_be_put_back_stays_on_the_list) {
  {
    UndoList list(lists(), "1", 0ms);
    Guard guard(kAmple, &list);
    Change change = file("a");
    change.undo = {"[ -e " + (folder / "now").string() + " ] && rm " + (folder / "a").string()};
    EXPECT_TRUE(guard.carry_out({{"do", "apply"}, {"id", 1}, {"change", change}})["ok"]);
    EXPECT_FALSE(guard.carry_out({{"do", "undo"}, {"id", 1}})["ok"]);
    EXPECT_EQ(guard.changed(), 1u);
    guard.put_all_back([](const std::string&) {});
    EXPECT_EQ(guard.changed(), 1u);
  }
  const auto ignore = [](const std::string&) {};
  EXPECT_EQ(put_back_what_is_left(ignore, lists(), kAmple), 1u);
  EXPECT_TRUE(there("a"));
  std::ofstream(folder / "now").flush();
  EXPECT_EQ(put_back_what_is_left(ignore, lists(), kAmple), 0u);
  EXPECT_FALSE(there("a") || fs::exists(lists()));
}

TEST_F(GuardTest, a_list_that_others_could_write_is_not_carried_out) {
  fs::create_directories(lists());
  fs::permissions(lists(), fs::perms::owner_all | fs::perms::others_all);
  try {
    GuardLink link(REAL_GUARD, lists(), "");
    FAIL() << "a guard without a list";
  } catch (const RealFaultError& error) {
    EXPECT_NE(std::string(error.what()).find("it is not this user's alone"), std::string::npos)
        << error.what();
  }
  std::ofstream(lists() + "/1.json") << R"({"network": "", "changes": []})";
  EXPECT_EQ(put_back_what_is_left([](const std::string&) {}, lists()), 0u);
  EXPECT_TRUE(fs::exists(lists() + "/1.json"));
}

// As below a command of the engine exec or of `r2bench exec`.
TEST_F(GuardTest, it_does_not_end_with_a_command_that_its_owner_runs_below) {
  const std::string mark = folder.string(), tool = (folder / "adds_the_marks").string();
  std::ofstream(tool) << "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift\nexport " << kMarkVariable
                      << "=" << mark << " " << kCommandMarkVariable << "=" << mark << "\nexec \"$@\"\n";
  fs::permissions(tool, fs::perms::owner_all);
  for (const std::string& started_by : {std::string(), tool}) {
    SCOPED_TRACE(started_by);
    for (const char* variable : {kMarkVariable, kCommandMarkVariable}) setenv(variable, mark.c_str(), 1);
    GuardLink link(REAL_GUARD, lists(), started_by);
    for (const char* variable : {kMarkVariable, kCommandMarkVariable}) unsetenv(variable);
    link.apply(1, file("a"));
    ASSERT_TRUE(wait_for(link).ok);
    for (const char* variable : {kMarkVariable, kCommandMarkVariable})
      EXPECT_EQ(kill_marked(mark, variable), 0u);
    link.undo(1);
    EXPECT_TRUE(wait_for(link).ok);
    EXPECT_EQ(link.takeovers(), 0);
  }
}

TEST_F(GuardTest, it_has_a_scope_of_its_own_where_systemd_is) {
  const std::string tool = (folder / "systemd-run").string();
  std::ofstream(tool) << "#!/bin/sh\necho \"$@\" >" << (folder / "said").string()
                      << "\nwhile [ \"$1\" != -- ]; do shift; done; shift\nexec \"$@\"\n";
  fs::permissions(tool, fs::perms::owner_all);
  GuardLink link(REAL_GUARD, lists(), tool);
  link.apply(1, file("a"));
  EXPECT_TRUE(wait_for(link).ok);
  std::string said;
  std::getline(std::ifstream(folder / "said"), said);
  EXPECT_EQ(said.find("--scope --quiet --collect --unit=r2bench-real-guard-"), 0u) << said;
}

TEST_F(GuardTest, it_does_without_a_scope_that_cannot_be_made) {
  GuardLink link(REAL_GUARD, lists(), "/bin/false");
  link.apply(1, file("a"));
  EXPECT_TRUE(wait_for(link).ok);
}

}  // namespace
}  // namespace r2bench
