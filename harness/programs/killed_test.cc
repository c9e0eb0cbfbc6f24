// SPDX-License-Identifier: Apache-2.0
// kill -9 at random moments, of injected programs, of `r2bench exec`, of `r2bench inject` and of the process
// that owns the board, while faults strike: the others go on and can be healed, and in the end nothing is
// left.
#include <sys/stat.h>

#include <array>
#include <optional>
#include <random>

#include "harness/programs/testing/broken_programs.h"
#include "harness/vhca/testing/free_port.h"

namespace r2bench::test {
namespace {

constexpr int kRounds = 100;

/// A memfd that a round used, by what the kernel calls it.
struct Memory {
  std::string what;
  dev_t device = 0;
  ino_t inode = 0;
};

std::optional<Memory> memory_at(const std::string& what, const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return Memory{what, status.st_dev, status.st_ino};
}

/// Processes that have it open or mapped.
std::vector<std::string> holders_of(const Memory& memory) {
  std::vector<std::string> all;
  std::error_code gone;  // processes end while we look
  for (const auto& process : fs::directory_iterator("/proc", gone)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || atoi(pid.c_str()) == getpid()) continue;
    bool has = false;
    std::error_code refused;
    for (fs::directory_iterator at(process.path().string() + "/fd", refused), end; !refused && at != end;
         at.increment(refused)) {
      struct stat status {};
      has = has || (stat(at->path().c_str(), &status) == 0 && status.st_dev == memory.device &&
                    status.st_ino == memory.inode);
    }
    std::istringstream maps(contents("/proc/" + pid + "/maps"));
    for (std::string line; !has && std::getline(maps, line);)
      has = line.find(" " + std::to_string(memory.inode) + " ") != std::string::npos &&
            line.find("/memfd:") != std::string::npos;
    if (has) all.push_back(pid + " " + contents("/proc/" + pid + "/cmdline"));
  }
  return all;
}

class Killed : public BrokenPrograms {
 protected:
  enum Victim { kProgram, kExec, kInject, kHolder, kKinds };

  std::mt19937 random{1};
  int millis(int most) { return int(random() % unsigned(most)); }
  static void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

  std::string program_port = std::to_string(vhca::test::free_tcp_port());
  std::vector<pid_t> programs() const {
    std::vector<pid_t> found;
    for (const pid_t pid : processes_with(program_port))
      if (contents("/proc/" + std::to_string(pid) + "/comm") == "ib_write_bw\n") found.push_back(pid);
    return found;
  }
  Command& write_bw(const Words& options, const Words& more) {
    Words words = {"ib_write_bw", "-d", "vhca0", "-x", "1", "-F", "-n", "100000", "-p", program_port};
    words.insert(words.end(), more.begin(), more.end());
    return exec(options, words);
  }
  Command& inject_command(Words words) {
    words.insert(words.begin(), "inject");
    words.insert(words.end(), {"--name", name});
    return start(words);
  }

  static const char* fault(int i) {
    static const std::array<const char*, 6> all = {
        "{at: {wr: 40}, target: node1/nic0, kind: port_down}",
        "{at: now, target: node1/nic0, kind: throttle, rate: 50 Mbit/s}",
        "{at: {wr: 30}, target: node1/nic0, kind: freeze}",
        "{at: {probability: 0.01}, target: node1/nic0, kind: qp_error}",
        "{at: now, target: node1/nic0, kind: delay, delay: 3 ms, jitter: 2 ms}",
        "{at: {wr: 20}, target: node1/nic0, kind: blackhole, direction: in}"};
    return all[size_t(i) % all.size()];
  }
  static bool whole_or_empty(const std::string& path) {
    const std::string text = contents(path);
    return text.empty() || nlohmann::json::accept(text);
  }
};

TEST_F(Killed, nothing_is_left_after_100_kills_of_whatever_is_injected_or_injects) {
  const std::string base = name;
  std::array<int, kKinds> killed{};
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    name = base + "-" + std::to_string(round);
    // A member that stays, so that the fabric outlives whoever is killed, and so that we learn its memory.
    Command& keeper = stay({"--node", "node0", "--rate", "1 Gbit/s", "--seed", std::to_string(round)});
    const std::string board_path = value_of(keeper.output(), "board");
    std::vector<Memory> memories;
    for (const char* what : {"board", "fabric"})
      if (const auto memory = memory_at(what, value_of(keeper.output(), what))) memories.push_back(*memory);
    ASSERT_EQ(memories.size(), 2u) << keeper.output();
    const pid_t holder = atoi(board_path.substr(6).c_str());  // /proc/PID/fd/N

    const std::string witness = folder + "/witness.json";
    Command& one = write_bw({"--node", "node0"}, {});
    ASSERT_TRUE(eventually([&] { return somebody_listens_on_tcp(atoi(program_port.c_str())); },
                           std::chrono::seconds(kBoundSeconds)))
        << one.output();
    const std::string plan = file("plan.yaml", "- " + std::string(fault(round)) + "\n");
    Command& other = write_bw({"--node", "node1", "--plan", plan, "--witness", witness}, {"localhost"});

    const auto victim = Victim(round % kKinds);
    switch (victim) {
      case kProgram: {
        ASSERT_TRUE(eventually([&] { return programs().size() == 2; }, std::chrono::seconds(kBoundSeconds)))
            << other.output();
        wait_ms(millis(400));
        const auto all = programs();
        if (all.empty()) break;
        kill(all[random() % all.size()], SIGKILL);
        killed[victim]++;
        break;
      }
      case kExec: {
        wait_ms(millis(300));
        Command& chosen = random() % 2 == 0 ? one : other;
        chosen.signal(SIGKILL);
        killed[victim] += chosen.status(kBoundSeconds) == 137;
        break;
      }
      case kInject: {
        wait_ms(millis(300));
        // What a command takes on this machine and just now: in the first half of that it is alive.
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_EQ(inject_command({"list"}).status(kBoundSeconds), 0);
        const auto takes = std::chrono::steady_clock::now() - begin;
        const int what = round / kKinds % 3;
        Command& command = what == 0   ? inject_command({"add", fault(round + 1)})
                           : what == 1 ? inject_command({"list", "--json", "--effects"})
                                       : inject_command({"heal"});
        std::this_thread::sleep_for(takes * int(random() % 1000) / 2000);
        command.signal(SIGKILL);
        killed[victim] += command.status(kBoundSeconds) == 137;
        break;
      }
      default:
        wait_ms(millis(300));
        ASSERT_GT(holder, 0);
        kill(holder, SIGKILL);
        killed[victim]++;
    }

    if (victim != kHolder) {
      // The board holds no lock that a dead process could keep: whoever asks is answered, and all heals.
      Command& list = inject_command({"list", "--json", "--effects"});
      EXPECT_EQ(list.status(kBoundSeconds), 0) << list.output();
      Command& heal = inject_command({"heal"});
      EXPECT_EQ(heal.status(kBoundSeconds), 0) << heal.output();
      for (const auto& each : faults(name))
        EXPECT_TRUE(each["state"] == "healed" || each["state"] == "removed") << each.dump();
    }
    for (Command* command : {&one, &other, &keeper}) command->signal(SIGTERM);
    for (Command* command : {&one, &other, &keeper})
      EXPECT_GE(command->status(kBoundSeconds), 0) << "it does not end\n" << command->output();
    EXPECT_TRUE(whole_or_empty(witness)) << "half a record";
    commands.clear();
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder)) fs::remove(entry.path(), none);

    ASSERT_TRUE(eventually([&] { return processes_with(name).empty() && programs().empty(); },
                           std::chrono::seconds(kBoundSeconds)))
        << processes_with(name).size() << " commands and " << programs().size() << " programs are left";
    ASSERT_FALSE(listens(name)) << "the name is still taken";
    for (const Memory& memory : memories)
      ASSERT_TRUE(eventually([&] { return holders_of(memory).empty(); }))
          << "the " << memory.what << " is still with " << holders_of(memory)[0];
    for (const auto& entry : fs::directory_iterator("/dev/shm"))
      EXPECT_EQ(entry.path().filename().string().find("faultinject"), std::string::npos) << entry.path();
  }
  for (int kind = 0; kind < kKinds; ++kind)
    EXPECT_GE(killed[size_t(kind)], kRounds / kKinds / 3) << "of kind " << kind << ", too few were hit alive";
}

}  // namespace
}  // namespace r2bench::test
