// SPDX-License-Identifier: Apache-2.0
// `r2bench exec` as people use it: several commands on one fabric, programs that nobody here wrote, and every
// way to end.
#include <random>
#include <set>

#include "harness/exec/testing/exec_fixture.h"
#include "harness/launch/marked_processes.h"
#include "harness/vhca/testing/leftovers.h"

namespace r2bench::test {
namespace {

TEST_F(Exec, the_exit_status_is_the_programs) {
  EXPECT_EQ(exec({"--node", "node0"}, {"sh", "-c", "exit 7"}).status(), 7);
  EXPECT_EQ(exec({"--node", "node0"}, {"sh", "-c", "kill -KILL $$"}).status(), 137);
  EXPECT_EQ(exec({"--node", "node0"}, {"no-such-program"}).status(), 127);
  EXPECT_EQ(exec({"--node", "node0"}, {file("no_program", "text")}).status(), 126);
  Command& words = exec({"--node", "node0"}, {"printf", "%s|", "--name", "--", "run", "a b"});
  EXPECT_EQ(words.status(), 0);
  EXPECT_NE(words.output().find("--name|--|run|a b|"), std::string::npos) << words.output();
}

TEST_F(Exec, signals_go_to_the_program) {
  const char* const script = "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done";
  Command& trapping = exec({"--node", "node0"}, {"sh", "-c", script});
  ASSERT_TRUE(trapping.says("ready"));
  trapping.signal(SIGINT);
  EXPECT_EQ(trapping.status(), 9);
  Command& plain = exec({"--node", "node0"}, {"sh", "-c", "echo ready; exec sleep 100"});
  ASSERT_TRUE(plain.says("ready"));
  plain.signal(SIGTERM);
  EXPECT_EQ(plain.status(), 143);
}

TEST_F(Exec, ctrl_c_ends_the_program_and_not_the_fabric_of_the_others) {
  Command& first = stay({"--node", "node0"});
  Command& second = stay({"--node", "node1"});
  kill(-first.pid(),
       SIGINT);  // as a terminal does: the whole foreground group; the holder was started by this command
  EXPECT_EQ(first.status(), 130);
  Command& third = stay({"--node", "node0"});
  EXPECT_EQ(value_of(third.output(), "fabric"), value_of(second.output(), "fabric"));
}

TEST_F(Exec, commands_started_one_after_the_other_share_one_fabric) {
  Command& first = stay({"--node", "node0", "--rate", "1 Gbit/s"});
  Command& second = stay({"--node", "node1"});
  EXPECT_NE(value_of(first.output(), "fabric"), "");
  EXPECT_EQ(value_of(second.output(), "fabric"), value_of(first.output(), "fabric"));
  EXPECT_EQ(value_of(second.output(), "board"), value_of(first.output(), "board"));
  EXPECT_NE(first.output().find("new fabric"), std::string::npos);
  EXPECT_EQ(second.output().find("new fabric"), std::string::npos);
  first.release();
  EXPECT_EQ(first.status(), 0);
  // Its maker has left; the fabric is there as long as anybody is.
  Command& third = stay({"--node", "node0", "--rate", "1 Gbit/s"});
  EXPECT_EQ(value_of(third.output(), "fabric"), value_of(second.output(), "fabric"));
  for (Command* command : {&second, &third}) {
    command->release();
    EXPECT_EQ(command->status(), 0);
  }
  EXPECT_TRUE(eventually([&] { return !listens(name); }));
}

TEST_F(Exec, commands_started_at_the_same_moment_make_one_fabric) {
  for (int i = 0; i < 8; ++i) exec({"--node", "node" + std::to_string(i % 2)}, {"sh", "-c", kStay});
  std::set<std::string> fabrics;
  for (auto& command : commands) {
    ASSERT_TRUE(command->says("pid=")) << command->output();
    fabrics.insert(value_of(command->output(), "fabric"));
  }
  EXPECT_EQ(fabrics.size(), 1u);
}

// The first command is that of a rank of the engine exec, and ends with its job.
TEST_F(Exec, the_holder_does_not_end_with_a_job_that_the_first_command_belongs_to) {
  const std::string mark = name;
  setenv(kCommandMarkVariable, mark.c_str(), 1);
  Command& first = stay({"--node", "node0"});
  unsetenv(kCommandMarkVariable);
  Command& second = stay({"--node", "node1"});
  EXPECT_GE(kill_marked(mark, kCommandMarkVariable), 1u);
  EXPECT_EQ(first.status(), 137);
  Command& third = stay({"--node", "node0"});
  EXPECT_EQ(value_of(third.output(), "fabric"), value_of(second.output(), "fabric"));
  EXPECT_EQ(second.output().find("has lost its holder"), std::string::npos) << second.output();
}

TEST_F(Exec, another_shape_is_refused_with_what_there_is) {
  stay({"--node", "node0", "--nics", "2", "--rate", "1 Gbit/s"});
  for (const Words& other : {Words{"--nics", "4"}, Words{"--nodes", "3"}, Words{"--rate", "2 Gbit/s"},
                             Words{"--latency", "5 us"}, Words{"--seed", "9"}, Words{"--fabric", "none"}}) {
    Words options = {"--node", "node1"};
    options.insert(options.end(), other.begin(), other.end());
    Command& command = exec(options, {"true"});
    EXPECT_EQ(command.status(), 64);
    EXPECT_NE(command.output().find(other[0] + " " + other[1] + " was asked for"), std::string::npos)
        << command.output();
    EXPECT_NE(command.output().find("vhca, 2 nodes with 2 NICs each, 1 Gbit/s, 0 ns"), std::string::npos)
        << command.output();
  }
  Command& nowhere = exec({"--node", "node2"}, {"true"});
  EXPECT_EQ(nowhere.status(), 64);
  EXPECT_NE(nowhere.output().find("there is node0, node1"), std::string::npos) << nowhere.output();
  EXPECT_EQ(exec({"--node", "node1", "--nics", "2", "--rate", "1 Gbit/s"}, {"true"}).status(), 0);
}

TEST_F(Exec, nothing_is_left_when_all_were_killed_the_first_one_first) {
  // The programs have children of their own, which no parent-death signal reaches.
  const char* const family = "sleep 1000 & echo child=$!; echo fabric=$VHCA_FABRIC; echo pid=$$; wait";
  std::vector<Command*> all;
  for (const char* node : {"node0", "node1", "node0"}) {
    all.push_back(&exec({"--node", node}, {"sh", "-c", family}));
    ASSERT_TRUE(all.back()->says("pid="));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string said = all[i]->output();
    all[i]->signal(SIGKILL);
    EXPECT_EQ(all[i]->status(), 137);
    for (const char* key : {"pid", "child"}) {
      const pid_t pid = atoi(value_of(said, key).c_str());
      ASSERT_GT(pid, 0) << said;
      EXPECT_TRUE(eventually([&] { return !alive(pid); })) << key << " outlives its command";
    }
    EXPECT_EQ(listens(name) && i + 1 < all.size(), i + 1 < all.size()) << "after " << i + 1;
  }
  EXPECT_TRUE(eventually([&] { return !listens(name); }));
}

// Three commands whose programs have the fabric's memory mapped, in every order of leaving, each of them
// killed or ending in peace: 48 ways.
TEST_F(Exec, the_fabric_goes_with_the_last_one_whoever_is_killed_in_whatever_order) {
  FAIL_UNLESS_INSTALLED("ib_write_bw", "perftest");
  int kills = 0;
  std::vector<size_t> order = {0, 1, 2};
  do {
    for (unsigned killed = 0; killed < 8; ++killed) {  // one bit for each
      SCOPED_TRACE("order " + std::to_string(order[0]) + std::to_string(order[1]) + std::to_string(order[2]) +
                   ", killed " + std::to_string(killed));
      std::vector<Command*> all;
      std::vector<std::string> ports;
      for (size_t i = 0; i < 3; ++i) {
        // A server that waits for its client: it has opened its device by then.
        ports.push_back(std::to_string(vhca::test::free_tcp_port()));
        all.push_back(&exec({"--node", i == 1 ? "node1" : "node0"},
                            {"sh", "-c",
                             "echo fabric=$VHCA_FABRIC; ib_write_bw -d vhca0 -x 1 -p " + ports.back() +
                                 " & echo child=$!; read line; kill $!; wait; exit 0"}));
        ASSERT_TRUE(all.back()->says("child=")) << all.back()->output();
      }
      const std::string path = value_of(all[0]->output(), "fabric");
      const auto memory = vhca::test::MemoryIdentity::of(path);
      ASSERT_NE(memory.inode, 0u) << path;
      for (Command* command : all) {
        const pid_t child = atoi(value_of(command->output(), "child").c_str());
        ASSERT_TRUE(eventually([&] {
          const auto users = vhca::test::users_of(memory);
          return std::find(users.begin(), users.end(), child) != users.end();
        })) << command->output();
      }
      for (size_t left = 3; left-- > 0;) {
        const size_t leaving = order[2 - left];
        Command& command = *all[leaving];
        const pid_t child = atoi(value_of(command.output(), "child").c_str());
        if (killed >> leaving & 1) {
          command.signal(SIGKILL);
          EXPECT_EQ(command.status(), 137);
          ++kills;
        } else {
          command.release();
          EXPECT_EQ(command.status(), 0) << command.output();
        }
        EXPECT_TRUE(eventually([&] { return !alive(child); })) << "a program outlives its command";
        if (left > 0) {
          EXPECT_TRUE(listens(name)) << left << " are left";
          EXPECT_EQ(exec({"--node", "node0"}, {"sh", "-c", "test $VHCA_FABRIC = " + path}).status(), 0)
              << "another fabric";
        }
      }
      EXPECT_TRUE(eventually([&] { return !listens(name); }));
      EXPECT_TRUE(eventually([&] { return vhca::test::users_of(memory).empty(); })) << "its memory is left";
      EXPECT_TRUE(eventually([&] { return processes_with(name).empty(); })) << "a process was left behind";
      ASSERT_FALSE(HasFailure());
      commands.clear();
      for (const auto& output : fs::directory_iterator(folder)) fs::remove(output);  // they are appended to
    }
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(kills, 6 * 8 * 3 / 2);
}

TEST_F(Exec, nothing_is_left_after_100_kills_of_anything_at_any_moment) {
  std::mt19937 random(1);
  const std::string program =
      "98765." + std::to_string(getpid());  // a number of seconds that nobody else sleeps
  int fabrics_seen = 0;
  // What the holders of this name have: the fabric and the board.
  const auto memories_of_holders = [&] {
    std::vector<vhca::test::MemoryIdentity> memories;
    for (const pid_t pid : processes_with(name))
      for (int fd = 3; fd < 32; ++fd) {
        const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
        std::error_code none;
        if (!fs::read_symlink(path, none).string().starts_with("/memfd:")) continue;
        const auto memory = vhca::test::MemoryIdentity::of(path);
        if (memory.inode != 0) memories.push_back(memory);  // else it has ended meanwhile
      }
    return memories;
  };
  for (int round = 0; round < 100; ++round) {
    for (const char* node : {"node0", "node1"}) exec({"--node", node}, {"sleep", program});
    if (round % 4 == 0) {
      ASSERT_TRUE(eventually([&] { return processes_with(program).size() >= 2; }));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    const auto memories = memories_of_holders();
    fabrics_seen += !memories.empty();
    // The commands, the holder and the programs, as far as there are any yet.
    std::vector<pid_t> victims = processes_with(name);
    for (const pid_t pid : processes_with(program))
      if (std::find(victims.begin(), victims.end(), pid) == victims.end()) victims.push_back(pid);
    if (!victims.empty()) kill(victims[random() % victims.size()], SIGKILL);
    for (auto& command : commands) {
      command->signal(SIGTERM);
      EXPECT_GE(command->status(), 0) << command->output();
    }
    commands.clear();
    ASSERT_TRUE(eventually([&] { return processes_with(name).empty() && processes_with(program).empty(); }))
        << "round " << round << ": " << processes_with(name).size() << " and "
        << processes_with(program).size();
    ASSERT_FALSE(listens(name)) << "round " << round;
    for (const auto& memory : memories)
      ASSERT_TRUE(eventually([&] { return vhca::test::users_of(memory).empty(); })) << "round " << round;
  }
  EXPECT_GE(fabrics_seen, 25);  // whose programs ran; of the others it depends
}

TEST_F(Exec, a_holder_that_is_killed_ends_no_program) {
  Command& command = stay({"--node", "node0"});
  const std::string board = value_of(command.output(), "board");  // /proc/PID/fd/N
  const pid_t holder = atoi(board.substr(6).c_str());
  ASSERT_GT(holder, 0) << board;
  kill(holder, SIGKILL);
  EXPECT_TRUE(command.says("has lost its holder process"));
  command.release();
  EXPECT_EQ(command.status(), 0);
}

TEST_F(Exec, the_hosts_own_devices_get_the_injector_only) {
  Command& command =
      exec({"--node", "node0", "--fabric", "none", "--nics", "1"},
           {"sh", "-c", "echo fabric=$VHCA_FABRIC.; echo node=$FAULTINJECT_NODE; echo preload=$LD_PRELOAD"});
  EXPECT_EQ(command.status(), 0) << command.output();
  EXPECT_EQ(value_of(command.output(), "fabric"), ".");
  EXPECT_EQ(value_of(command.output(), "node"), "node0");
  EXPECT_NE(value_of(command.output(), "preload").find("libfaultinject.so"), std::string::npos);
}

TEST_F(Exec, pingpong_between_two_commands) {
  FAIL_UNLESS_INSTALLED("ibv_rc_pingpong", "ibverbs-utils");
  for (const char* program : {"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"}) {
    const Words pingpong = {program, "-c", "-d", "vhca0", "-g", "1"};
    Command& one = server({"--node", "node0"}, pingpong);
    Command& other = client({"--node", "node1"}, pingpong);
    EXPECT_EQ(other.status(), 0) << other.output();
    EXPECT_EQ(one.status(), 0) << one.output();
    EXPECT_NE(other.output().find("usec/iter"), std::string::npos) << other.output();
    EXPECT_EQ(other.output().find("invalid data"), std::string::npos) << other.output();
  }
}

}  // namespace
}  // namespace r2bench::test
