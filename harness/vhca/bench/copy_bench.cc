// SPDX-License-Identifier: Apache-2.0
// How fast an unlimited port is beside what the memory can do: one thread's memcpy into memory that another
// process shares, against WRITEs and READs of the same sizes between two processes over the virtual HCA, in
// turns, in one run. Besides Google Benchmark's options: --at-least 0.8 ends it with 1 when a ratio is below.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr std::size_t kWalked = 64 << 20;  // larger than the caches: both walk through it message by message
constexpr std::uint64_t kTurnNs = 50'000'000;
constexpr int kTurns = 7;

// CPU time of all threads of this process. At an unlimited rate all work is done by the threads of the
// initiator, so on a machine that does nothing else this is the wall clock; on a busy one it leaves out the
// time that others had the CPU.
std::uint64_t cpu_ns() {
  timespec t;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

// Bytes per second of f(offset), which moves `bytes`, over one turn; end() waits for what is under way.
template <typename F, typename End>
double speed(std::size_t region, std::size_t bytes, F&& f, End&& end) {
  const std::size_t between_looks =
      std::max<std::size_t>(1, (1 << 20) / bytes);  // the clock is a system call
  const std::uint64_t start = cpu_ns();
  std::uint64_t moved = 0;
  for (std::size_t offset = 0; cpu_ns() - start < kTurnNs;)
    for (std::size_t i = 0; i < between_looks; ++i) {
      f(offset);
      moved += bytes;
      offset = offset + 2 * bytes <= region ? offset + bytes : 0;
    }
  end();
  return 1e9 * static_cast<double>(moved) / static_cast<double>(cpu_ns() - start);
}

// As perftest does it: the send queue is kept full, every completion is polled for.
double speed_of(Endpoint& me, ibv_wr_opcode opcode, std::size_t region, std::size_t bytes) {
  constexpr std::uint64_t kDepth = 128;
  std::uint64_t posted = 0, done = 0;
  const auto reap = [&] {
    VHCA_REQUIRE_EQ(me.wait().status, IBV_WC_SUCCESS);
    ++done;
  };
  return speed(
      region, bytes,
      [&](std::size_t offset) {
        if (posted - done == kDepth) reap();
        me.post(
            {.opcode = opcode, .id = posted++, .offset = offset, .bytes = bytes, .remote_offset = offset});
      },
      [&] {
        while (done != posted) reap();
      });
}

struct Bench {
  Endpoint& me;
  char* shared;
  double worst = 1e9;  // lowest ratio of all that ran

  void compare(benchmark::State& state, std::size_t region, std::size_t bytes) {
    double copied = 0, written = 0, read = 0;
    for (auto _ : state)
      for (int turn = 0; turn < kTurns; ++turn) {  // others on the machine only ever slow a turn down
        copied = std::max(copied, speed(
                                      region, bytes,
                                      [&](std::size_t offset) {
                                        std::memcpy(shared + offset, me.memory() + offset, bytes);
                                        benchmark::ClobberMemory();
                                      },
                                      [] {}));
        written = std::max(written, speed_of(me, IBV_WR_RDMA_WRITE, region, bytes));
        read = std::max(read, speed_of(me, IBV_WR_RDMA_READ, region, bytes));
      }
    state.counters["memcpy_GBps"] = copied / 1e9;
    state.counters["write_GBps"] = written / 1e9;
    state.counters["read_GBps"] = read / 1e9;
    state.counters["write_ratio"] = written / copied;
    state.counters["read_ratio"] = read / copied;
    worst = std::min({worst, written / copied, read / copied});
  }
};

int measure(const Wire& wire, char* shared, double at_least) {
  Endpoint me({.bytes = kWalked});
  std::memset(me.memory(), 1, kWalked);
  me.connect_over(wire);
  Bench bench{me, shared};
  for (const std::size_t bytes : {64ul << 10, 256ul << 10, 1ul << 20, 16ul << 20}) {
    const auto add = [&](const char* name, std::size_t region) {
      benchmark::RegisterBenchmark(
          (std::string(name) + "/" + std::to_string(bytes)).c_str(),
          [&bench, region, bytes](benchmark::State& state) { bench.compare(state, region, bytes); })
          ->Iterations(1)
          ->Unit(benchmark::kSecond);
    };
    add("walk_64MiB", kWalked);
  }
  if (benchmark::RunSpecifiedBenchmarks() == 0 || bench.worst == 1e9)
    return 0;  // only listed, or none matched
  std::fprintf(stderr, "lowest ratio %.2f, wanted %.2f\n", bench.worst, at_least);
  return bench.worst >= at_least ? 0 : 1;
}

int run(double at_least) {
  const FabricHost fabric = make_fabric(2, 1);
  void* shared = ::mmap(nullptr, kWalked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw Failure("mmap");
  Process target(fabric, "node1", [&](const Wire& wire) {
    std::memset(shared, 2, kWalked);  // both processes have it
    Endpoint me({.bytes = kWalked});
    me.connect_over(wire);
    wire.receive<char>();
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    std::memset(shared, 3, kWalked);
    const int code = measure(wire, static_cast<char*>(shared), at_least);
    std::fflush(nullptr);
    ::_exit(code);
  });
  introduce(target, initiator);
  const int code = initiator.wait();
  target.wire().send('e');
  return target.wait() == 0 ? code : 70;
}

}  // namespace
}  // namespace vhca::test

int main(int argc, char** argv) {
  ::setenv("VHCA_HUGE_PAGES", "1", 0);
  // The virtual HCA's libibverbs must be bound at load: start over with it in front.
  const std::string vhca =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../lib/vhca").string();
  const char* path = std::getenv("LD_LIBRARY_PATH");
  if (!path || std::string(path).find(vhca) == std::string::npos) {
    ::setenv("LD_LIBRARY_PATH", (path && *path ? vhca + ":" + path : vhca).c_str(), 1);
    ::execv("/proc/self/exe", argv);
    std::perror("vhca_copy_bench: cannot start again with the virtual HCA");
    return 70;
  }
  benchmark::Initialize(&argc, argv);
  double at_least = 0;
  if (argc == 3 && std::strcmp(argv[1], "--at-least") == 0) {
    at_least = std::atof(argv[2]);
  } else if (argc != 1) {
    std::fprintf(stderr, "usage: %s [--at-least RATIO] [--benchmark_…]\n", argv[0]);
    return 64;
  }
  try {
    return vhca::test::run(at_least);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vhca_copy_bench: %s\n", error.what());
    return 70;
  }
}
