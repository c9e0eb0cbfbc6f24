// SPDX-License-Identifier: Apache-2.0
// Two virtual nodes with a program of ours on each, and a fault board over them.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include <string>
#include <utility>
#include <vector>

#include "faultinject/control/board_host.h"
#include "harness/vhca/fabric/fabric_host.h"

namespace faultinject::testing {

// <build>, from where this program lies.
std::string build_folder();

struct Completion {
  uint64_t wr_id = 0;
  int status = 0;
  uint64_t at_ns = 0;
};

// One agent process (testing/agent/). Killed at the latest when this object goes.
class Agent {
 public:
  Agent(const std::string& program, const std::vector<std::string>& environment);
  Agent(const Agent&) = delete;
  ~Agent();

  // One line to it, one line from it; a failure of the test when it does not answer within 30 s.
  std::string ask(const std::string& line);
  void must(const std::string& line) { EXPECT_EQ(ask(line).substr(0, 2), "ok") << line; }
  void tell(const std::string& line);  // the two halves of ask()
  std::string hear();
  bool is_silent(int ms);  // it says nothing for so long

  void open(int nic = 0);
  // Makes a queue pair; its index. timeout and retries are the attributes of modify_qp.
  int make_qp(int timeout = 14, int retries = 1, int depth = 16, const std::string& queues = "shared",
              const std::string& more = "");
  std::vector<Completion> poll(int qp, int count, int ms, const std::string& queue = "send");
  std::vector<Completion> sleep(int qp, int count, int ms, const std::string& queue = "send");
  int port_state();
  int qp_state(int qp);
  uint64_t get(uint64_t offset);
  void expect_no_err_gazed();  // by its thread that has read ibv_qp::state since "gaze"

  int pid() const { return pid_; }
  void kill_it();
  int wait_for_exit(bool tell_it = true);  // its exit status; -1 when a signal ended it

  std::string gid, address, key;
  std::vector<uint32_t> numbers;

 private:
  std::vector<Completion> completions(const std::string& line);
  int pid_ = -1, to_ = -1, from_ = -1;
  std::string pending_;
};

void connect(Agent& a, int qp_a, Agent& b, int qp_b);

// ibv_wc_status and friends, by number, so that this header needs no verbs.
constexpr int kSuccess = 0, kQpOperation = 2, kFlushed = 5, kRemoteAccess = 10, kRetryExceeded = 12;
constexpr int kPortActive = 4, kPortDown = 1, kReset = 0, kInit = 1, kRts = 3, kErr = 6;
constexpr int kEventCqErr = 0, kEventQpFatal = 1, kEventCommEst = 4, kEventDeviceFatal = 8,
              kEventPortActive = 9, kEventPortErr = 10, kEventSmChange = 13, kEventGidChange = 18;
constexpr uint64_t kMs = 1000000;

// (retry + 1) · 4.096 us · 2^timeout
constexpr uint64_t retry_window_ns(int timeout, int retries) {
  return uint64_t(retries + 1) * (4096ull << timeout);
}

class Nodes : public ::testing::Test {
 protected:
  explicit Nodes(vhca::PortSpec port = {}, int nics = 2, size_t ports = 1);
  std::vector<std::string> environment(const std::string& node, const std::string& rank,
                                       bool injected = true) const;
  Agent& agent(const std::string& node, const std::string& rank, bool injected = true);

  // The usual: one agent and one device on each node, one connected pair.
  void start(int timeout = 14, int retries = 1, int depth = 16, const std::string& queues = "shared",
             const std::string& more = "");
  uint32_t arm(const std::string& yaml);
  bool took_effect_within(uint32_t id, int ms) const;
  bool witnessed(uint32_t id, Effect effect, const std::string& node = "") const;
  size_t count(uint32_t id, Effect effect) const;
  // As by a process that is killed after it has claimed the strike at node0/nic0 in the first round.
  void claim_first_strike(uint32_t id) const;
  void fill_claims() const;  // there is no room for another one
  // As claim_first_strike() for a fault with a `count` of 1: no process hears of it.
  void take_first_strike(uint32_t id) const;
  // The next round has fired: as the board stands, without letting time act on it as board.state() does.
  bool second_round_fires_within(uint32_t id, int ms) const;
  // The value of its first record of that effect; UINT64_MAX where there is none.
  uint64_t value(uint32_t id, Effect effect) const;

  vhca::FabricHost fabric;
  BoardHost board;
  std::string program;
  std::vector<std::unique_ptr<Agent>> agents;
  Agent *a = nullptr, *b = nullptr;
};

// Waits until `condition` holds; false after `ms`. For what another process does when it is told to.
template <typename Condition>
bool eventually(Condition condition, int ms = 10000);

}  // namespace faultinject::testing

#include <chrono>
#include <thread>

namespace faultinject::testing {
template <typename Condition>
bool eventually(Condition condition, int ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}
}  // namespace faultinject::testing
