// SPDX-License-Identifier: Apache-2.0
// Programs that have nothing to do with verbs, under the preload: they print what they print without it, end
// as they end without it, and never appear on the board.
#include "harness/programs/testing/broken_programs.h"

namespace r2bench::test {
namespace {

class Untouched : public Exec {
 protected:
  struct Outcome {
    int status;
    std::string output;
    bool operator==(const Outcome&) const = default;
  };
  Outcome alone(const Words& words) {
    const std::string output = folder + "/alone";
    const pid_t pid = fork();
    if (pid == 0) {
      const int in = open("/dev/null", O_RDONLY),
                out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(in, 0);
      dup2(out, 1);
      dup2(out, 2);
      std::vector<char*> argv;
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(output)};
  }
  Outcome under_the_preload(const Words& words) {
    Command& command = exec({"--node", "node1", "--quiet"}, words);
    command.release();
    const int status = command.status(kBoundSeconds);
    return {status, command.output()};
  }
};

TEST_F(Untouched, programs_without_verbs_say_and_return_the_same) {
  // Somebody else's fault lies in wait for everything on every node.
  const std::string plan = file("plan.yaml", "- {at: now, target: '*/nic*', kind: port_down}\n");
  stay({"--node", "node0", "--plan", plan});
  const std::string numbers = "seq 1 20000 | sort -rn | awk \"{s += \\$1} END {print s}\"";
  const std::vector<Words> all = {
      {"/bin/true"},
      {"/bin/false"},
      {"sh", "-c", "exit 41"},
      {"sh", "-c", numbers},
      {"sh", "-c", "for i in 1 2 3; do (echo child $i; exec echo exec $i) & wait; done"},
      {"sh", "-c", "kill -SEGV $$"},
      {"cat", "/no/such/file"},
      {"/usr/bin/python3", "-c",
       "import os, sys, ctypes, subprocess, threading\n"
       "t = [threading.Thread(target=lambda: None) for _ in range(8)]\n"
       "[x.start() for x in t]; [x.join() for x in t]\n"
       "pid = os.fork()\n"
       "if pid == 0: os._exit(3)\n"
       "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
       "print(subprocess.run(['sh', '-c', 'echo from a shell; exit 5']).returncode, flush=True)\n"
       "print(ctypes.CDLL('libm.so.6').abs(-7), ctypes.CDLL(None).getpid() == os.getpid())\n"
       "try: ctypes.CDLL('no-such-library.so')\n"
       "except OSError as error: print(error)\n"
       "try: ctypes.CDLL(None).no_such_symbol\n"
       "except AttributeError as error: print(error)\n"
       "sys.exit(9)"},
  };
  for (const Words& words : all) {
    const Outcome plain = alone(words), injected = under_the_preload(words);
    EXPECT_EQ(injected.status, plain.status) << words.back() << "\n" << injected.output;
    EXPECT_EQ(injected.output, plain.output) << words.back();
  }
  const auto listed = faults(name);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["effects"], 0) << "no program opened a device, so nothing was touched";
}

TEST_F(Untouched, a_program_that_is_not_told_of_a_board_is_not_touched_either) {
  FAIL_UNLESS_INSTALLED("ibv_devinfo", "ibverbs-utils");
  stay({"--node", "node0", "--plan", file("plan.yaml", "- {at: now, target: '*/nic*', kind: port_down}\n")});
  Command& with = exec({"--node", "node1", "--quiet"}, {"ibv_devinfo", "-d", "vhca0"});
  EXPECT_EQ(with.status(kBoundSeconds), 0) << with.output();
  EXPECT_NE(with.output().find("PORT_DOWN"), std::string::npos) << with.output();
  Command& without =
      exec({"--node", "node1", "--quiet"}, {"env", "-u", "FAULTINJECT_BOARD", "ibv_devinfo", "-d", "vhca0"});
  EXPECT_EQ(without.status(kBoundSeconds), 0) << without.output();
  EXPECT_NE(without.output().find("PORT_ACTIVE"), std::string::npos) << without.output();
}

TEST_F(Untouched, what_forks_and_execs_a_verbs_program_hands_the_faults_on) {
  FAIL_UNLESS_INSTALLED("ibv_devinfo", "ibverbs-utils");
  stay(
      {"--node", "node0", "--plan", file("plan.yaml", "- {at: now, target: node1/nic1, kind: port_down}\n")});
  Command& shell =
      exec({"--node", "node1", "--quiet"},
           {"/usr/bin/python3", "-c",
            "import subprocess\n"
            "for nic in range(2):\n"
            "  print(subprocess.run(['sh', '-c', f'ibv_devinfo -d vhca{nic} | grep state:'],\n"
            "                       capture_output=True, text=True).stdout.strip(), flush=True)"});
  EXPECT_EQ(shell.status(kBoundSeconds), 0) << shell.output();
  EXPECT_LT(shell.output().find("PORT_ACTIVE"), shell.output().find("PORT_DOWN")) << shell.output();
  EXPECT_NE(shell.output().find("PORT_DOWN"), std::string::npos) << shell.output();
}

}  // namespace
}  // namespace r2bench::test
