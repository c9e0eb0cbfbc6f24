// SPDX-License-Identifier: Apache-2.0
#include "faultinject/tests/testing/nodes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "faultinject/control/board.h"

extern char** environ;

namespace faultinject::testing {

std::string build_folder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  std::string self(path, length > 0 ? size_t(length) : 0);
  return self.substr(0, self.rfind("/bin/"));
}

Agent::Agent(const std::string& program, const std::vector<std::string>& environment) {
  signal(SIGPIPE, SIG_IGN);
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::vector<char*> variables;
  for (const std::string& variable : environment) variables.push_back(const_cast<char*>(variable.c_str()));
  for (char** variable = environ; *variable != nullptr; variable++)
    if (strncmp(*variable, "LD_PRELOAD=", 11) != 0 && strncmp(*variable, "LD_LIBRARY_PATH=", 16) != 0)
      variables.push_back(*variable);
  variables.push_back(nullptr);
  char* arguments[] = {const_cast<char*>(program.c_str()), nullptr};
  const int rc = posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, variables.data());
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (rc != 0) throw std::runtime_error("cannot start " + program);
}

Agent::~Agent() {
  close(to_);
  close(from_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void Agent::kill_it() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int Agent::wait_for_exit(bool tell_it) {
  if (tell_it) tell("quit");
  int status = 0;
  for (int i = 0; i < 3000; i++) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    ::poll(nullptr, 0, 10);
  }
  return -2;
}

void Agent::tell(const std::string& line) {
  const std::string text = line + "\n";
  if (write(to_, text.data(), text.size()) != ssize_t(text.size()))
    ADD_FAILURE() << "agent is gone: " << line;
}

std::string Agent::hear() {
  for (;;) {
    const size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    pollfd p{from_, POLLIN, 0};
    char piece[4096];
    const ssize_t got = ::poll(&p, 1, 30000) > 0 ? read(from_, piece, sizeof piece) : -1;
    if (got <= 0) {
      ADD_FAILURE() << "the agent does not answer" << (got == 0 ? " (it has ended)" : " within 30 s");
      return "dead";
    }
    pending_.append(piece, size_t(got));
  }
}

bool Agent::is_silent(int ms) {
  pollfd p{from_, POLLIN, 0};
  return pending_.find('\n') == std::string::npos && ::poll(&p, 1, ms) == 0;
}

std::string Agent::ask(const std::string& line) {
  tell(line);
  return hear();
}

void Agent::open(int nic) {
  std::istringstream answer(ask("open " + std::to_string(nic)));
  std::string ok;
  answer >> ok >> gid >> address >> key;
  ASSERT_EQ(ok, "ok") << answer.str();
}

int Agent::make_qp(int timeout, int retries, int depth, const std::string& queues, const std::string& more) {
  std::ostringstream line;
  line << "qp " << timeout << " " << retries << " " << depth << " " << queues << " " << more;
  std::istringstream answer(ask(line.str()));
  std::string ok;
  int id = -1;
  uint32_t number = 0;
  answer >> ok >> id >> number;
  EXPECT_EQ(ok, "ok") << answer.str();
  numbers.push_back(number);
  return id;
}

std::vector<Completion> Agent::completions(const std::string& line) {
  std::istringstream answer(ask(line));
  std::string word;
  answer >> word;
  EXPECT_EQ(word, "ok") << answer.str();
  std::vector<Completion> all;
  while (answer >> word) {
    Completion wc;
    char colon;
    std::istringstream fields(word);
    fields >> wc.wr_id >> colon >> wc.status >> colon >> wc.at_ns;
    all.push_back(wc);
  }
  return all;
}

std::vector<Completion> Agent::poll(int qp, int count, int ms, const std::string& queue) {
  return completions("poll " + std::to_string(qp) + " " + queue + " " + std::to_string(count) + " " +
                     std::to_string(ms));
}

std::vector<Completion> Agent::sleep(int qp, int count, int ms, const std::string& queue) {
  return completions("sleep " + std::to_string(qp) + " " + queue + " " + std::to_string(count) + " " +
                     std::to_string(ms));
}

int Agent::port_state() {
  const std::string answer = ask("port");
  return answer.substr(0, 3) == "ok " ? std::stoi(answer.substr(3)) : -1;
}

int Agent::qp_state(int qp) {
  const std::string answer = ask("state " + std::to_string(qp));
  return answer.substr(0, 3) == "ok " ? std::stoi(answer.substr(3)) : -1;
}

uint64_t Agent::get(uint64_t offset) {
  const std::string answer = ask("get " + std::to_string(offset));
  return answer.substr(0, 3) == "ok " ? std::stoull(answer.substr(3)) : 0;
}

void Agent::expect_no_err_gazed() {
  std::istringstream answer(ask("gazed 1000"));
  std::string ok;
  uint64_t gazes = 0, errs = 0;
  answer >> ok >> gazes >> errs;
  EXPECT_EQ(ok, "ok") << answer.str();
  EXPECT_GE(gazes, 1000u);
  EXPECT_EQ(errs, 0u) << "of " << gazes;
}

void connect(Agent& a, int qp_a, Agent& b, int qp_b) {
  const auto line = [](int qp, const Agent& peer, int peer_qp) {
    return "connect " + std::to_string(qp) + " " + std::to_string(peer.numbers.at(size_t(peer_qp))) + " " +
           peer.gid + " " + peer.address + " " + peer.key;
  };
  ASSERT_EQ(a.ask(line(qp_a, b, qp_b)), "ok");
  ASSERT_EQ(b.ask(line(qp_b, a, qp_a)), "ok");
}

Nodes::Nodes(vhca::PortSpec port, int nics, size_t ports)
    : fabric(vhca::FabricHost::create({.nodes = {{"node0", std::vector<vhca::PortSpec>(size_t(nics), port)},
                                                 {"node1", std::vector<vhca::PortSpec>(size_t(nics), port)}},
                                       .ports_per_nic = ports})),
      board(BoardHost::create({{"node0", uint32_t(nics)}, {"node1", uint32_t(nics)}}, 42)),
      program(build_folder() + "/bin/faultinject_agent") {}

std::vector<std::string> Nodes::environment(const std::string& node, const std::string& rank,
                                            bool injected) const {
  std::vector<std::string> variables = {"VHCA_FABRIC=" + fabric.path(), "VHCA_NODE=" + node,
                                        "LD_LIBRARY_PATH=" + build_folder() + "/lib/vhca"};
  // A sanitizer's runtime must come first of all: of this build, or of the programs that it is to drive.
  const char* runtime = getenv("FAULTINJECT_SANITIZER_RUNTIME");
  std::string preload = runtime != nullptr ? runtime : FAULTINJECT_SANITIZER_RUNTIME;
  if (injected) {
    preload += (preload.empty() ? "" : ":") + build_folder() + "/lib/libfaultinject.so";
    variables.push_back("FAULTINJECT_BOARD=" + board.path());
    variables.push_back("FAULTINJECT_NODE=" + node);
    variables.push_back("FAULTINJECT_RANK=" + rank);
  }
  if (!preload.empty()) variables.push_back("LD_PRELOAD=" + preload);
  // One agent forks with threads running and opens a device in the child.
  const char* options = getenv("TSAN_OPTIONS");
  variables.push_back("TSAN_OPTIONS=die_after_fork=0" +
                      (options != nullptr ? ":" + std::string(options) : ""));
  return variables;
}

Agent& Nodes::agent(const std::string& node, const std::string& rank, bool injected) {
  agents.push_back(std::make_unique<Agent>(program, environment(node, rank, injected)));
  return *agents.back();
}

void Nodes::start(int timeout, int retries, int depth, const std::string& queues, const std::string& more) {
  a = &agent("node0", "0");
  b = &agent("node1", "1");
  ASSERT_NO_FATAL_FAILURE(a->open());
  ASSERT_NO_FATAL_FAILURE(b->open());
  const int qp_a = a->make_qp(timeout, retries, depth, queues, more),
            qp_b = b->make_qp(timeout, retries, depth, queues, more);
  ASSERT_NO_FATAL_FAILURE(connect(*a, qp_a, *b, qp_b));
}

uint32_t Nodes::arm(const std::string& yaml) { return board.arm(parse_fault(YAML::Load(yaml), "test")); }

bool Nodes::took_effect_within(uint32_t id, int ms) const {
  return eventually([&] { return board.state(id).t0_ns != 0; }, ms);
}

bool Nodes::witnessed(uint32_t id, Effect effect, const std::string& node) const {
  for (const Witness& witness : board.witnesses(id))
    if (witness.effect == effect && (node.empty() || witness.node == node)) return true;
  return false;
}

namespace {

// The board as another process maps it.
class Mapped {
 public:
  explicit Mapped(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap of the board");
    board_ = static_cast<Board*>(memory);
  }
  Mapped(const Mapped&) = delete;
  ~Mapped() { munmap(board_, sizeof(Board)); }
  Board& operator*() const { return *board_; }
  FaultEntry& fault(uint32_t id) const { return board_->faults[id - 1]; }

 private:
  Board* board_;
};

}  // namespace

void Nodes::claim_first_strike(uint32_t id) const {
  const Mapped mapped(board.path());
  EXPECT_TRUE(claim(*mapped, strike_key(id, 0, 0, 0)));
}

void Nodes::fill_claims() const {
  const Mapped mapped(board.path());
  for (auto& key : (*mapped).claims) key.store(1);
}

void Nodes::take_first_strike(uint32_t id) const {
  const Mapped mapped(board.path());
  bool last = false;
  EXPECT_TRUE(take_strike(mapped.fault(id), 0, last));
  EXPECT_TRUE(last);
}

bool Nodes::second_round_fires_within(uint32_t id, int ms) const {
  const Mapped mapped(board.path());
  return eventually([&] { return mapped.fault(id).times_fired.load() == 2; }, ms);
}

uint64_t Nodes::value(uint32_t id, Effect effect) const {
  for (const Witness& witness : board.witnesses(id))
    if (witness.effect == effect) return witness.value;
  return UINT64_MAX;
}

size_t Nodes::count(uint32_t id, Effect effect) const {
  size_t n = 0;
  for (const Witness& witness : board.witnesses(id)) n += witness.effect == effect;
  return n;
}

}  // namespace faultinject::testing
