// SPDX-License-Identifier: Apache-2.0
// Ports carry what they are said to carry, whoever uses them; and share it fairly. Measured by the counters
// of the ports over windows of half a second or more, against the clock of the same run.
#include <gtest/gtest.h>

#include <dirent.h>
#include <sys/uio.h>

#include <atomic>
#include <cmath>
#include <fstream>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr std::uint64_t kGbit = 1'000'000'000;

struct Load {
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  std::size_t bytes = 65536;
  int outstanding =
      64;  // 34 ms of a 1 Gbit/s port: a program that is not scheduled for longer would lose on hardware, too
  int qps = 1;
  bool polls = true;  // else it sleeps on a completion channel
};

// Initiates on node0/nic0 towards node1/nic0 until told to stop; sends back what each QP completed, in bytes.
struct Totals {
  std::uint64_t bytes[16];
};

void initiate(const Wire& wire, const Load& load) {
  Device device(0);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int q = 0; q < load.qps; ++q) {
    endpoints.push_back(std::make_unique<Endpoint>(Options{.context = device.get()}));
    endpoints.back()->connect_over(wire);
  }
  wire.send('r');
  wire.receive<char>();
  std::vector<int> posted(endpoints.size());
  std::vector<std::uint64_t> done(endpoints.size());
  for (bool stop = false; !stop;) {
    for (std::size_t q = 0; q < endpoints.size(); ++q) {
      for (; posted[q] < load.outstanding; ++posted[q])
        endpoints[q]->post({.opcode = load.opcode, .id = q, .bytes = load.bytes});
      ibv_wc wc[16];
      const int got = ibv_poll_cq(endpoints[q]->cq(), 16, wc);
      for (int i = 0; i < got; ++i) VHCA_REQUIRE_EQ(wc[i].status, IBV_WC_SUCCESS);
      posted[q] -= got;
      done[q] += static_cast<std::uint64_t>(got) * load.bytes;
    }
    pollfd fd{wire.fd(), POLLIN, 0};
    stop = ::poll(&fd, 1, load.polls ? 0 : 1) == 1;
  }
  Totals totals{};
  for (std::size_t q = 0; q < done.size(); ++q) totals.bytes[q] = done[q];
  wire.send(totals);
}

void accept_all(const Wire& wire, int qps) {
  Device device(0);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int q = 0; q < qps; ++q) {
    endpoints.push_back(std::make_unique<Endpoint>(Options{.context = device.get()}));
    endpoints.back()->connect_over(wire);
  }
  wire.send('r');
  for (;;) ::pause();
}

class Pair {
 public:
  Pair(const FabricHost& fabric, const Load& load)
      : target_(fabric, "node1", [qps = load.qps](const Wire& w) { accept_all(w, qps); }),
        initiator_(fabric, "node0", [load](const Wire& w) { initiate(w, load); }) {
    for (int q = 0; q < load.qps; ++q) introduce(target_, initiator_);
    target_.wire().receive<char>();
    initiator_.wire().receive<char>();
  }
  void start() { initiator_.wire().send('g'); }
  Totals stop() {
    initiator_.wire().send('x');
    return initiator_.wire().receive<Totals>();
  }

 private:
  Process target_, initiator_;
};

void pass(std::uint64_t ms) {
  const timespec t{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  ::nanosleep(&t, nullptr);
}

constexpr double kSlack = 0.02;  // Gbit/s

// The node's first port carries so many Gbit/s in a window; the median of three, because bytes are counted
// when they are copied: on a machine full of other work a window can begin or end while the copying process
// waits for a core. The median lies between any two of them, so the third is needed only where these
// disagree.
void expect_rate(const FabricHost& fabric, std::size_t node, double expected, double slack = kSlack,
                 bool rx = false, std::uint64_t window_ms = 500) {
  const auto read = [&] {
    return rx ? fabric.counters(node, 0).rx_bytes : fabric.counters(node, 0).tx_bytes;
  };
  std::vector<double> rates;
  while (rates.size() < 3) {
    const std::uint64_t t0 = now_ns(), b0 = read();
    pass(window_ms);
    const std::uint64_t b1 = read(), t1 = now_ns();
    rates.push_back(static_cast<double>(b1 - b0) * 8 / static_cast<double>(t1 - t0));
    if (rates.size() == 2 && std::abs(rates[0] - expected) <= slack && std::abs(rates[1] - expected) <= slack)
      return;
  }
  std::sort(rates.begin(), rates.end());
  EXPECT_NEAR(rates[1], expected, slack);
}

// Of this process's engine thread so far: processor time, and how often it was given a core.
struct EngineUse {
  double seconds = 0;
  double turns = 0;
};
EngineUse engine_use() {
  EngineUse use;
  DIR* tasks = ::opendir("/proc/self/task");
  VHCA_REQUIRE(tasks != nullptr);
  while (const dirent* task = ::readdir(tasks)) {
    const std::string path = std::string("/proc/self/task/") + task->d_name;
    std::string name;
    std::getline(std::ifstream(path + "/comm"), name);
    if (name != "vhca-engine") continue;
    std::uint64_t ran_ns = 0, waited_ns = 0, turns = 0;
    std::ifstream(path + "/schedstat") >> ran_ns >> waited_ns >> turns;
    use.seconds += static_cast<double>(ran_ns) / 1e9;
    use.turns += static_cast<double>(turns);
  }
  ::closedir(tasks);
  return use;
}
double engine_seconds() { return engine_use().seconds; }

TEST(Rate, one_qp_gets_the_whole_port) {
  const auto fabric = make_fabric(2, 1, kGbit);
  Pair pair(fabric, {});
  pair.start();
  pass(50);
  expect_rate(fabric, 0, 1.0);
}

TEST(Rate, four_qps_of_two_processes_get_the_port_together_and_a_quarter_each) {
  const auto fabric = make_fabric(2, 1, kGbit);
  Pair one(fabric, {.bytes = 1 << 20, .outstanding = 4, .qps = 2}),
      two(fabric, {.bytes = 16384, .outstanding = 64, .qps = 2});
  one.start();
  two.start();
  pass(100);
  expect_rate(fabric, 0, 1.0);
  pass(1000);
  const Totals a = one.stop(), b = two.stop();
  const double total = static_cast<double>(a.bytes[0] + a.bytes[1] + b.bytes[0] + b.bytes[1]);
  for (const std::uint64_t share : {a.bytes[0], a.bytes[1], b.bytes[0], b.bytes[1]})
    EXPECT_NEAR(static_cast<double>(share) / total, 0.25, 0.02);
}

TEST(Rate, both_directions_carry_the_whole_rate_at_once) {
  const auto fabric = make_fabric(2, 1, kGbit);
  Pair write(fabric, {.opcode = IBV_WR_RDMA_WRITE}), read(fabric, {.opcode = IBV_WR_RDMA_READ});
  write.start();
  read.start();
  pass(50);
  expect_rate(fabric, 0, 1.0);
  expect_rate(fabric, 0, 1.0, kSlack, true);
}

TEST(Rate, a_process_that_sleeps_keeps_its_rate) {
  const auto fabric = make_fabric(2, 1, kGbit);
  Pair pair(fabric, {.bytes = 1 << 20, .outstanding = 8, .polls = false});
  pair.start();
  pass(50);
  expect_rate(fabric, 0, 1.0);
}

TEST(Rate, a_busy_machine_costs_no_bandwidth) {
  const auto fabric = make_fabric(2, 1, kGbit);
  std::vector<std::unique_ptr<Process>> burners;
  for (int i = 0; i < 4; ++i)
    burners.push_back(std::make_unique<Process>(fabric, "node0", [](const Wire&) {
      std::atomic<std::uint64_t> x{0};
      for (;;) x.fetch_add(1);
    }));
  Pair pair(fabric, {.bytes = 1 << 20, .outstanding = 16});
  pair.start();
  pass(100);
  expect_rate(fabric, 0, 1.0, kSlack, false, 1000);
}

TEST(Rate, two_senders_to_one_port_get_its_receive_rate_together) {
  const auto fabric = make_fabric(3, 1, kGbit);
  // node0 and node2 towards node1: the receiver is the limit.
  Process target(fabric, "node1", [](const Wire& w) { accept_all(w, 2); });
  std::vector<std::unique_ptr<Process>> senders;
  for (const char* node : {"node0", "node2"}) {
    senders.push_back(std::make_unique<Process>(fabric, node, [](const Wire& w) { initiate(w, {}); }));
    introduce(target, *senders.back());
    senders.back()->wire().receive<char>();
  }
  for (auto& s : senders) s->wire().send('g');
  pass(50);
  expect_rate(fabric, 1, 1.0, kSlack, true);
  expect_rate(fabric, 0, 0.5, 0.03);
}

// node0 sends to node1, into which three others send as well, and to node2 beside it: what node1 does not
// take is node2's, at every moment.
TEST(Rate, a_port_whose_work_waits_for_a_busy_one_carries_its_rate_and_no_more) {
  const auto fabric = make_fabric(6, 1, kGbit);
  const Load load{.bytes = 1 << 20, .outstanding = 64};
  Process busy(fabric, "node1", [](const Wire& w) { accept_all(w, 4); });
  Process idle(fabric, "node2", [](const Wire& w) { accept_all(w, 1); });
  std::vector<std::unique_ptr<Process>> senders;
  for (const char* node : {"node0", "node0", "node3", "node4", "node5"}) {
    senders.push_back(std::make_unique<Process>(fabric, node, [load](const Wire& w) { initiate(w, load); }));
    introduce(senders.size() == 1 ? idle : busy, *senders.back());
    senders.back()->wire().receive<char>();
  }
  for (auto& s : senders) s->wire().send('g');
  pass(100);
  const auto gbits = [&](std::size_t node, bool rx) {
    const PortCounters counters = fabric.counters(node, 0);
    return static_cast<double>(rx ? counters.rx_bytes : counters.tx_bytes) * 8 / 1e9;
  };
  struct Line {
    std::size_t node;
    bool rx;
    double rate, begin;
  } lines[] = {{0, false, 1.0, 0}, {1, true, 1.0, 0}, {2, true, 0.75, 0}};
  const std::uint64_t t0 = now_ns();
  for (Line& line : lines) line.begin = gbits(line.node, line.rx);
  // All that was carried since the beginning: a copy that a busy machine makes late is missing at one look,
  // and is made up for by the next, whereas a port that carries too little or too much drifts away.
  for (int look = 1; look <= 6; ++look) {
    pass(500);
    for (const Line& line : lines) {
      const double carried = gbits(line.node, line.rx) - line.begin;
      const double seconds = static_cast<double>(now_ns() - t0) / 1e9;
      EXPECT_NEAR(carried, line.rate * seconds, 0.12)
          << "node" << line.node << " after " << seconds << " s, in Gbit";
    }
  }
}

// Eight ports at 1 Gbit/s move 1 GB/s; what that copy alone costs is measured in the same run.
TEST(Rate, eight_busy_ports_cost_the_engine_less_than_a_third_of_a_core_beside_the_copying) {
  constexpr int kPorts = 8;
  const auto fabric = make_fabric(2, kPorts, kGbit);
  const auto endpoints = [](const Wire& wire) {
    std::vector<std::unique_ptr<Endpoint>> all;
    for (int nic = 0; nic < kPorts; ++nic) {
      all.push_back(std::make_unique<Endpoint>(Options{.nic = nic}));
      all.back()->connect_over(wire);
    }
    return all;
  };
  Process target(fabric, "node1", [&](const Wire& wire) {
    const auto all = endpoints(wire);
    wire.send('r');
    for (;;) ::pause();
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    const auto all = endpoints(wire);
    // What about 1 GB of plain cross-memory copies costs.
    const auto target_pid = wire.receive<pid_t>();
    timespec cpu0, cpu1;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu0);
    for (int i = 0; i < 4000; ++i) {
      iovec local{all[0]->memory(), 262144}, remote{reinterpret_cast<void*>(all[0]->peer().memory), 262144};
      VHCA_REQUIRE_EQ(::process_vm_writev(target_pid, &local, 1, &remote, 1, 0), 262144);
    }
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu1);
    const double copying = static_cast<double>(cpu1.tv_sec - cpu0.tv_sec) +
                           static_cast<double>(cpu1.tv_nsec - cpu0.tv_nsec) / 1e9;

    for (const auto& e : all)
      for (std::uint64_t i = 0; i < 16; ++i) e->post({.id = i, .bytes = 1 << 20});
    const double before = engine_seconds();
    const std::uint64_t start = now_ns();
    std::uint64_t bytes = 0;
    while (now_ns() - start < 2'000'000'000) {
      pass(10);
      for (const auto& e : all) {
        ibv_wc wc[16];
        const int got = ibv_poll_cq(e->cq(), 16, wc);
        for (int i = 0; i < got; ++i) {
          VHCA_REQUIRE_EQ(wc[i].status, IBV_WC_SUCCESS);
          e->post({.id = 0, .bytes = 1 << 20});
          bytes += 1 << 20;
        }
      }
    }
    const double seconds = static_cast<double>(now_ns() - start) / 1e9;
    const double engine = (engine_seconds() - before) / seconds;
    const double moved = static_cast<double>(bytes) / seconds;
    const double copy_share = copying * moved / (4000.0 * 262144);
    std::printf("8 ports: %.2f GB/s, engine %.1f %% of a core, of which copying about %.1f %%\n", moved / 1e9,
                engine * 100, copy_share * 100);
    VHCA_REQUIRE(moved > 0.9e9);
    VHCA_REQUIRE(engine < 0.33 + 1.5 * copy_share);
  });
  for (int nic = 0; nic < kPorts; ++nic) introduce(target, initiator);
  target.wire().receive<char>();
  initiator.wire().send(target.pid());
  EXPECT_EQ(initiator.wait(), 0);
}

// Short messages beside long ones, by a program that polls: it carries out its own work, and the engine only
// looks after it now and then.
TEST(Rate, a_program_that_polls_leaves_the_engine_asleep) {
  const auto fabric = make_fabric(2, 1, kGbit);
  Process target(fabric, "node1", [](const Wire& w) { accept_all(w, 2); });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Device device(0);
    Endpoint lengthy({.context = device.get()}), brief({.context = device.get()});
    lengthy.connect_over(wire);
    brief.connect_over(wire);
    int posted = 0;
    const auto keep_busy = [&] {
      for (; posted < 8; ++posted) lengthy.post({.id = 1, .bytes = 1 << 20});
      ibv_wc wc[8];
      posted -= ibv_poll_cq(lengthy.cq(), 8, wc);
    };
    double turns = 1e9, us = 1e9;
    for (int round = 0; round < 5; ++round) {
      constexpr int kMessages = 4000;
      const EngineUse before = engine_use();
      for (int i = 0; i < kMessages; ++i) {
        brief.post({.id = 2, .bytes = 64});
        ibv_wc wc;
        const std::uint64_t next = now_ns() + 50'000;
        bool done = false;
        while (!done || now_ns() < next) {
          if (!done) done = ibv_poll_cq(brief.cq(), 1, &wc) == 1;
          keep_busy();
        }
        VHCA_REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
      }
      const EngineUse after = engine_use();
      turns = std::min(turns, (after.turns - before.turns) / kMessages);
      us = std::min(us, (after.seconds - before.seconds) * 1e6 / kMessages);
    }
    std::printf("the engine ran %.2f times and %.2f us for a message\n", turns, us);
    VHCA_REQUIRE(turns < 0.5);
  });
  for (int q = 0; q < 2; ++q) introduce(target, initiator);
  target.wire().receive<char>();
  EXPECT_EQ(initiator.wait(), 0);
}

TEST(Rate, a_short_read_on_a_busy_port_does_not_wait_for_long_messages) {
  const auto fabric = make_fabric(2, 1, kGbit);
  Pair busy(fabric, {.bytes = 1 << 20, .outstanding = 8, .qps = 2});
  busy.start();
  Process target(fabric, "node1", [](const Wire& w) { accept_all(w, 1); });
  Process prober(fabric, "node0", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    std::vector<std::uint64_t> times;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const std::uint64_t start = now_ns();
      me.post({.opcode = IBV_WR_RDMA_READ, .id = i, .bytes = 8});
      me.expect(IBV_WC_SUCCESS, i);
      times.push_back(now_ns() - start);
    }
    std::sort(times.begin(), times.end());
    // One message of 1 MiB takes 8.4 ms.
    VHCA_REQUIRE(times[100] < 1'000'000);
  });
  introduce(target, prober);
  EXPECT_EQ(prober.wait(), 0);
}

TEST(Rate, the_latency_is_added_once_per_way) {
  const auto fabric = make_fabric(2, 1, 0, std::chrono::milliseconds(2));
  Process target(fabric, "node1", [](const Wire& w) { accept_all(w, 1); });
  Process prober(fabric, "node0", [](const Wire& wire) {
    Endpoint me;
    me.connect_over(wire);
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      std::uint64_t best = ~0ull;
      for (std::uint64_t i = 0; i < 20; ++i) {
        const std::uint64_t start = now_ns();
        me.post({.opcode = opcode, .id = i, .bytes = 8});
        me.expect(IBV_WC_SUCCESS, i);
        best = std::min(best, now_ns() - start);
      }
      VHCA_REQUIRE(best >= 4'000'000);
      VHCA_REQUIRE(best < 4'400'000);
    }
    // A second message does not wait for the first one's acknowledgement: else 20 took 80 ms.
    std::uint64_t best = ~0ull;
    for (int attempt = 0; attempt < 20; ++attempt) {
      const std::uint64_t start = now_ns();
      for (std::uint64_t i = 0; i < 20; ++i) me.post({.id = i, .bytes = 8});
      for (std::uint64_t i = 0; i < 20; ++i) me.expect(IBV_WC_SUCCESS, i);
      best = std::min(best, now_ns() - start);
    }
    VHCA_REQUIRE(best < 3 * 4'000'000);
  });
  introduce(target, prober);
  EXPECT_EQ(prober.wait(), 0);
}

// A program with many connections at rest, as NCCL's are most of the time.
TEST(Rate, queue_pairs_at_rest_cost_the_engine_nothing) {
  const auto fabric = make_fabric(2, 1, kGbit);
  Process target(fabric, "node1", [](const Wire& wire) { accept_all(wire, 1); });
  Process initiator(fabric, "node0", [](const Wire& wire) {
    Endpoint one;
    one.connect_over(wire);
    // The least of five: of a machine with other work.
    const auto engine_us_per_write = [&one] {
      constexpr int kWrites = 300;
      double least = 1e9;
      for (int round = 0; round < 5; ++round) {
        const double before = engine_seconds();
        for (int i = 0; i < kWrites; ++i) {
          one.post({.id = 0, .bytes = 4096});
          ibv_wc wc;
          do ::usleep(300);  // too seldom to do the engine's work
          while (ibv_poll_cq(one.cq(), 1, &wc) == 0);
          VHCA_REQUIRE_EQ(wc.status, IBV_WC_SUCCESS);
        }
        least = std::min(least, (engine_seconds() - before) * 1e6 / kWrites);
      }
      return least;
    };
    wire.send('r');
    const double alone = engine_us_per_write();
    std::vector<std::unique_ptr<Endpoint>> at_rest;
    for (int i = 0; i < 4000; ++i)
      at_rest.push_back(std::make_unique<Endpoint>(
          Options{.share = &one, .send_depth = 1, .recv_depth = 1, .sge = 1, .inline_bytes = 0}));
    const double among_many = engine_us_per_write();
    std::printf("engine: %.1f us for a write, %.1f us with 4000 queue pairs at rest\n", alone, among_many);
    // The heartbeat looks at all of them ten times a second.
    VHCA_REQUIRE(among_many < 1.7 * alone);
  });
  introduce(target, initiator);
  target.wire().receive<char>();
  initiator.wire().receive<char>();
  EXPECT_EQ(initiator.wait(), 0);
}

}  // namespace
}  // namespace vhca::test
