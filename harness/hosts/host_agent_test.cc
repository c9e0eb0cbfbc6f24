// SPDX-License-Identifier: Apache-2.0
// A runner's end and an agent over a real TCP connection, with ranks that are shell scripts.
#include "harness/hosts/host_agent.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "harness/base/testing/eventually.h"
#include "harness/hosts/fault_fields.h"
#include "harness/hosts/json_fields.h"
#include "harness/hosts/remote_host.h"
#include "harness/hosts/testing/fake_agent.h"
#include "harness/launch/rendezvous.h"
#include "r2ccl/base/clock.h"
#include "r2ccl/trace/ring.h"

namespace r2bench {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
namespace fs = std::filesystem;

const std::string kSecret = "0123456789abcdef";

/// A zombie has ended; its agent keeps its number until the job is over.
bool alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  return !text.empty() && text.find(") Z") == std::string::npos;
}

class AgentTest : public testing::Test {
 protected:
  AgentTest() {
    folder = fs::temp_directory_path() / ("r2bench-agent-" + std::to_string(getpid()));
    fs::create_directories(folder);
    agent = std::thread([this] {
      std::string why;
      SecureLink link =
          call_runner("127.0.0.1:" + std::to_string(rendezvous.port()), kSecret, agent_hello(0, 1), 10s, why);
      ended = serve_runner(std::move(link), folder.string(), folder.string());
      over = true;
    });
    auto caller = rendezvous.accept(10s);
    if (!caller) ADD_FAILURE() << "the agent has not called";
    host = std::make_unique<RemoteHost>(std::move(caller->link), caller->hello);
    host->log_into(folder.string());
  }
  ~AgentTest() override {
    host.reset();
    agent.join();
    fs::remove_all(folder);
  }
  /// One rank, a script; its descriptor 3 is the connection to the runner.
  void prepare(const std::string& script) {
    std::ofstream(folder / "rank.sh") << "#!/bin/sh\n" << script;
    fs::permissions(folder / "rank.sh", fs::perms::owner_all);
    HostPlan plan;
    plan.fabric = "none";
    plan.shape.nodes = 2;
    plan.shape.nics_per_node = 2;
    plan.nodes = {1, 1, {}};
    plan.inherited = {{"NCCL_DEBUG", "WARN"}};
    plan.ranks.push_back({1,
                          1,
                          "node1/rank0",
                          "rank.sh",
                          {{"OF_THE_RANK", "yes"}},
                          {},
                          {{"type", "config"}},
                          "logs/rank1.log"});
    host->prepare(plan);
  }
  RankPort& rank() { return host->rank(1); }
  std::string log() {
    std::ifstream file(folder / "logs/rank1.log");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  fs::path folder;
  Rendezvous rendezvous{kSecret};
  std::thread agent;
  std::string ended;
  std::atomic<bool> over{false};
  std::unique_ptr<RemoteHost> host;
};

TEST_F(AgentTest, a_rank_speaks_prints_and_ends) {
  prepare(R"(printf '\020\000\000\000{"type":"ready"}' >&3
echo "I am $OF_THE_RANK in $NCCL_DEBUG on $NCCL_SOCKET_IFNAME"
exit 7
)");
  EXPECT_EQ(host->evidence(), "emulated");
  EXPECT_EQ(host->environment().at("OF_THE_RANK"), "yes");
  host->start();
  EXPECT_GT(rank().pid(), 0);
  std::optional<json> said;
  ASSERT_TRUE(eventually([&] { return (said = rank().receive()).has_value(); }));
  EXPECT_EQ((*said)["type"], "ready");
  ASSERT_TRUE(eventually([&] { return rank().ended().has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*rank().ended()), 7);
  host->release();
  EXPECT_EQ(log(), "I am yes in WARN on =lo\n");
}

TEST_F(AgentTest, a_rank_hears_its_configuration_first) {
  prepare("echo \"heard $(head -c 21 <&3 | tail -c 17)\"\n");
  host->start();
  ASSERT_TRUE(eventually([&] { return rank().ended().has_value(); }));
  host->release();
  EXPECT_EQ(log(), "heard {\"type\":\"config\"}\n");
}

TEST_F(AgentTest, a_rank_is_signalled) {
  prepare("exec sleep 1000\n");
  host->start();
  const pid_t pid = rank().pid();
  const uint64_t before = r2ccl::now_ns(), at = rank().signal(SIGKILL), after = r2ccl::now_ns();
  const double bound_ns = host->facts().clock_bound_ms * 1e6;
  EXPECT_GE(double(at), double(before) - bound_ns);
  EXPECT_LE(double(at), double(after) + bound_ns);
  ASSERT_TRUE(eventually([&] { return rank().ended().has_value(); }));
  EXPECT_EQ(WTERMSIG(*rank().ended()), SIGKILL);
  EXPECT_TRUE(eventually([&] { return !alive(pid); }));
}

TEST_F(AgentTest, trace_events_come_with_the_runners_time) {
  prepare("exec sleep 1000\n");
  host->start();
  // The rank's ring, as it finds it in its environment.
  std::string ring;
  ASSERT_TRUE(eventually([&] {
    std::ifstream file("/proc/" + std::to_string(rank().pid()) + "/environ", std::ios::binary);
    for (std::string entry; std::getline(file, entry, '\0');)
      if (entry.rfind("R2CC_TRACE=", 0) == 0) ring = entry.substr(11);
    return !ring.empty();
  }));
  const uint64_t before = r2ccl::now_ns();
  r2ccl::trace::Writer writer(ring);
  for (uint64_t i = 0; i < 100; ++i) writer.emit(r2ccl::trace::EventType::kIteration, 0xffff, 0, i);
  const uint64_t after = r2ccl::now_ns();
  std::vector<r2ccl::trace::Event> events;
  uint64_t lost = 0;
  ASSERT_TRUE(eventually([&] {
    lost += host->drain(1, events);
    return events.size() >= 100;
  }));
  EXPECT_EQ(lost, 0u);
  const double bound_ns = host->facts().clock_bound_ms * 1e6;
  EXPECT_GT(bound_ns, 0);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(events[i].a, i);
    EXPECT_GE(double(events[i].time_ns), double(before) - bound_ns);
    EXPECT_LE(double(events[i].time_ns), double(after) + bound_ns);
  }
}

TEST_F(AgentTest, a_fault_is_armed_fired_and_healed_there) {
  prepare("exec sleep 1000\n");
  faultinject::FaultSpec spec;
  spec.name = "it";
  spec.kind = &faultinject::fault_kind("port_down");
  spec.target = faultinject::parse_target("node1/nic0");
  ASSERT_EQ(host->board().arm(spec), 1u);
  host->start();
  host->board().fire(1);
  ASSERT_TRUE(eventually([&] { return host->board().state(1).triggered_ns != 0; }));
  EXPECT_EQ(host->board().state(1).phase, faultinject::FaultState::Phase::kFired);
  EXPECT_EQ(host->board().spec(1).name, "it");
  host->board().heal(1);
  ASSERT_TRUE(eventually([&] { return host->board().state(1).healed_ns != 0; }));
  EXPECT_TRUE(host->board().witnesses().empty()) << "nobody was there to be struck";
}

TEST_F(AgentTest, what_the_host_cannot_do_is_said_by_its_name) {
  HostPlan plan;
  plan.fabric = "nonsense";
  plan.ranks.push_back({});
  plan.ranks[0].log = "logs/x.log";
  try {
    host->prepare(plan);
    FAIL() << "there is no such fabric";
  } catch (const FabricError& error) {
    EXPECT_NE(
        std::string(error.what()).find("host " + host->facts().name + ": there is no fabric 'nonsense'"),
        std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(host->failure()) << "the next job may be another one";
}

TEST_F(AgentTest, threads_are_looked_at_from_afar) {
  prepare("exec sleep 1000\n");
  host->start();
  const ThreadReport report = host->threads();
  EXPECT_NE(report.full.find("node1/rank0, pid " + std::to_string(rank().pid())), std::string::npos);
  EXPECT_FALSE(report.brief.at(1).empty());
}

TEST_F(AgentTest, a_released_job_leaves_no_rank) {
  prepare("exec sleep 1000\n");
  host->start();
  const pid_t pid = rank().pid();
  EXPECT_TRUE(alive(pid));
  host->release();
  EXPECT_TRUE(eventually([&] { return !alive(pid); }));
  prepare("exit 0\n");  // and the host takes another
  host->start();
  EXPECT_TRUE(eventually([&] { return rank().ended().has_value(); }));
}

TEST_F(AgentTest, when_the_runner_is_gone_so_are_the_agent_and_its_ranks) {
  prepare("exec sleep 1000\n");
  host->start();
  const pid_t pid = rank().pid();
  host.reset();
  EXPECT_TRUE(eventually([&] { return over.load(); }));
  EXPECT_EQ(ended, "") << "the runner took its leave";
  EXPECT_TRUE(eventually([&] { return !alive(pid); }));
}

TEST(LostAgent, a_host_that_dies_at_its_first_question_is_an_error_of_the_runner) {
  Rendezvous rendezvous(kSecret);
  const FakeAgent agent(rendezvous.port(), kSecret, agent_hello(0, 1),
                        [](SecureLink&, const json&) { return false; });
  auto caller = rendezvous.accept(10s);
  ASSERT_TRUE(caller);
  try {
    RemoteHost(std::move(caller->link), caller->hello);
    FAIL() << "nobody was there to answer";
  } catch (const FabricError& error) {
    EXPECT_NE(std::string(error.what()).find("did not answer 'ping'"), std::string::npos) << error.what();
  }
}

/// An agent whose clock is 1000 ppm faster than the runner's, with a fault that struck a minute before it
/// called.
class FastClock : public testing::Test {
 protected:
  FastClock() {
    auto caller = rendezvous_.accept(10s);
    if (!caller) ADD_FAILURE() << "the agent has not called";
    host = std::make_unique<RemoteHost>(std::move(caller->link), caller->hello);
    HostPlan plan;
    plan.nodes = {0, 1, {}};
    host->prepare(plan);
    faultinject::FaultSpec spec;
    spec.kind = &faultinject::fault_kind("port_down");
    host->board().arm(spec);
  }
  ~FastClock() override { host.reset(); }
  uint64_t host_clock(uint64_t now) const {
    return 1'000'000'000'000'000 + now + int64_t(now - start_ns_) / 1000;
  }
  double bound_ns() const { return host->facts().clock_bound_ms * 1e6; }
  bool has_struck() {
    return eventually([&] { return host->board().state(1).t0_ns != 0; });
  }

  const uint64_t start_ns_ = r2ccl::now_ns();
  const uint64_t struck_ns = start_ns_ - 60'000'000'000;
  std::unique_ptr<RemoteHost> host;

 private:
  bool take(SecureLink& link, const json& message) {
    const std::string type = message.value("type", "");
    if (type == "quit") return false;
    faultinject::FaultState state;
    state.phase = faultinject::FaultState::Phase::kFired;
    state.t0_ns = host_clock(struck_ns);
    if (type == "heal") state.healed_ns = host_clock(r2ccl::now_ns());
    faultinject::Witness witness;
    witness.fault_id = 1;
    witness.time_ns = state.t0_ns;
    if (type == "arm" || type == "heal")
      link.send({{"type", "fault"}, {"id", 1}, {"state", fields_to_json(state)}});
    else
      FakeAgent::answer(link, message, host_clock(r2ccl::now_ns()),
                        {{"evidence", "emulated"},
                         {"devices", json::array()},
                         {"environment", json::object()},
                         {"lost", 0},
                         {"witnesses", {fields_to_json(witness)}}});
    return true;
  }

  Rendezvous rendezvous_{kSecret};
  FakeAgent agent_{rendezvous_.port(), kSecret, agent_hello(0, 1),
                   [this](SecureLink& link, const json& message) { return take(link, message); }};
};

TEST_F(FastClock, the_bound_covers_a_time_of_a_minute_ago) {
  ASSERT_TRUE(has_struck());
  EXPECT_GE(bound_ns(), std::abs(double(host->board().state(1).t0_ns) - double(struck_ns)));
}

TEST_F(FastClock, the_bound_covers_a_witness_of_a_minute_ago) {
  const auto witnesses = host->board().witnesses();
  ASSERT_EQ(witnesses.size(), 1u);
  EXPECT_GE(bound_ns(), std::abs(double(witnesses[0].time_ns) - double(struck_ns)));
}

TEST_F(FastClock, a_time_is_converted_once) {
  ASSERT_TRUE(has_struck());
  const uint64_t t0 = host->board().state(1).t0_ns;
  for (const uint64_t end = r2ccl::now_ns() + 500'000'000; r2ccl::now_ns() < end;
       std::this_thread::sleep_for(10ms))
    host->tick();  // the clocks are compared again
  host->board().heal(1);
  ASSERT_TRUE(eventually([&] { return host->board().state(1).healed_ns != 0; }));
  EXPECT_EQ(host->board().state(1).t0_ns, t0);
  EXPECT_EQ(host->board().witnesses().at(0).time_ns, t0);
}

/// An agent whose CLOCK_MONOTONIC is `ahead` of this process's, in a time namespace. -1: there can be none.
pid_t agent_with_another_clock(const Rendezvous& rendezvous, std::chrono::seconds ahead,
                               const fs::path& folder) {
  const pid_t outer = fork();
  if (outer != 0) return outer;
  std::ofstream offsets;
  if (unshare(CLONE_NEWTIME) != 0) _exit(77);
  offsets.open("/proc/self/timens_offsets");
  offsets << "monotonic " << ahead.count() << " 0\n";
  offsets.close();
  if (!offsets) _exit(77);
  const pid_t inner = fork();  // the first process that lives in it
  if (inner == 0) {
    std::string why;
    SecureLink link =
        call_runner("127.0.0.1:" + std::to_string(rendezvous.port()), kSecret, agent_hello(0, 1), 10s, why);
    serve_runner(std::move(link), folder.string(), folder.string());
    _exit(0);
  }
  int status = 0;
  waitpid(inner, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

TEST(AnotherClock, is_found_and_its_times_become_the_runners) {
  const fs::path folder = fs::temp_directory_path() / ("r2bench-clock-" + std::to_string(getpid()));
  fs::create_directories(folder / "logs");
  Rendezvous rendezvous(kSecret);
  const pid_t agent = agent_with_another_clock(rendezvous, 5000s, folder);
  ASSERT_GT(agent, 0);
  std::optional<Rendezvous::Caller> caller;
  int status = 0;
  bool skipped = false;
  eventually([&] {
    caller = rendezvous.accept(50ms);
    skipped = !caller && waitpid(agent, &status, WNOHANG) == agent;
    return caller || skipped;
  });
  if (skipped) {
    fs::remove_all(folder);
    GTEST_SKIP() << "no time namespace can be made here (root, Linux 5.6)";
  }
  ASSERT_TRUE(caller);
  {
    RemoteHost host(std::move(caller->link), caller->hello);
    host.log_into(folder.string());
    const HostFacts facts = host.facts();
    EXPECT_GT(facts.clock_bound_ms, 0);
    EXPECT_LE(std::abs(facts.clock_offset_ms - 5'000'000), facts.clock_bound_ms);
    std::ofstream(folder / "rank.sh") << "#!/bin/sh\nexec sleep 1000\n";
    fs::permissions(folder / "rank.sh", fs::perms::owner_all);
    HostPlan plan;
    plan.fabric = "none";
    plan.nodes = {0, 1, {}};
    plan.ranks.push_back({0, 0, "node0/rank0", "rank.sh", {}, {}, nullptr, "logs/rank0.log"});
    host.prepare(plan);
    host.start();
    const uint64_t before = r2ccl::now_ns(), at = host.rank(0).signal(SIGKILL), after = r2ccl::now_ns();
    const double bound_ns = host.facts().clock_bound_ms * 1e6;
    EXPECT_GE(double(at), double(before) - bound_ns);
    EXPECT_LE(double(at), double(after) + bound_ns);
  }
  EXPECT_EQ(waitpid(agent, &status, 0), agent);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace r2bench
