// How fast an unlimited port is beside what the memory can do: one thread's memcpy into memory that another
// process shares, against WRITEs and READs of the same sizes between two processes over the virtual HCA, in
// turns, in one run. Prints both and their ratio; ends with 1 when a ratio is below the one asked for
// (--at-least 0.8).
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "harness/vhca/tests/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr std::size_t kRegion = 64 << 20;  // larger than the caches: both walk through it message by message
constexpr std::uint64_t kTurnNs = 50'000'000;
constexpr int kTurns = 5;
constexpr std::size_t kSizes[] = {64 << 10, 256 << 10, 1 << 20, 16 << 20};

// CPU time of all threads of this process. At an unlimited rate all work is done by the thread that posts, so
// on a machine that does nothing else this is the wall clock; on a busy one it leaves out the time that
// others had the CPU.
std::uint64_t cpu_ns() {
  timespec t;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

// Bytes per nanosecond of f(offset), which moves `bytes`, over one turn.
template <typename F>
double speed(std::size_t bytes, F&& f) {
  const std::uint64_t start = cpu_ns();
  std::uint64_t moved = 0, now = start;
  for (std::size_t offset = 0; now - start < kTurnNs; now = cpu_ns()) {
    f(offset);
    moved += bytes;
    offset = offset + 2 * bytes <= kRegion ? offset + bytes : 0;
  }
  return static_cast<double>(moved) / static_cast<double>(now - start);
}

double speed_of(Endpoint& me, ibv_wr_opcode opcode, std::size_t bytes) {
  constexpr std::uint64_t kDepth = 8;
  std::uint64_t posted = 0, done = 0;
  const auto reap = [&] {
    VHCA_REQUIRE_EQ(me.wait().status, IBV_WC_SUCCESS);
    ++done;
  };
  const double result = speed(bytes, [&](std::size_t offset) {
    if (posted - done == kDepth) reap();
    me.post({.opcode = opcode, .id = posted++, .offset = offset, .bytes = bytes, .remote_offset = offset});
  });
  while (done != posted) reap();
  return result;
}

int measure(const Wire& wire, char* shared, double at_least) {
  Endpoint me({.bytes = kRegion});
  std::memset(me.memory(), 1, kRegion);
  me.connect_over(wire);
  std::printf("%10s %14s %14s %8s %14s %8s\n", "bytes", "memcpy GB/s", "WRITE GB/s", "ratio", "READ GB/s",
              "ratio");
  double worst = 1e9;
  for (const std::size_t bytes : kSizes) {
    double copied = 0, written = 0, read = 0;
    for (int turn = 0; turn < kTurns; ++turn) {  // others on the machine only ever slow a turn down
      copied = std::max(copied, speed(bytes, [&](std::size_t offset) {
                          std::memcpy(shared + offset, me.memory() + offset, bytes);
                        }));
      written = std::max(written, speed_of(me, IBV_WR_RDMA_WRITE, bytes));
      read = std::max(read, speed_of(me, IBV_WR_RDMA_READ, bytes));
    }
    std::printf("%10zu %14.2f %14.2f %8.2f %14.2f %8.2f\n", bytes, copied, written, written / copied, read,
                read / copied);
    worst = std::min({worst, written / copied, read / copied});
  }
  std::printf("lowest ratio %.2f, wanted %.2f\n", worst, at_least);
  return worst >= at_least ? 0 : 1;
}

int run(double at_least) {
  const FabricHost fabric = make_fabric(2, 1);
  void* shared = ::mmap(nullptr, kRegion, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw Failure("mmap");
  Process target(fabric, "node1", [&](const Wire& wire) {
    std::memset(shared, 2, kRegion);  // both processes have it
    Endpoint me({.bytes = kRegion});
    me.connect_over(wire);
    wire.receive<char>();
  });
  Process initiator(fabric, "node0", [&](const Wire& wire) {
    std::memset(shared, 3, kRegion);
    ::_exit(measure(wire, static_cast<char*>(shared), at_least) + (std::fflush(nullptr) != 0));
  });
  introduce(target, initiator);
  const int code = initiator.wait();
  target.wire().send('e');
  return target.wait() == 0 ? code : 70;
}

}  // namespace
}  // namespace vhca::test

int main(int argc, char** argv) {
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
  double at_least = 0.8;
  if (argc == 3 && std::strcmp(argv[1], "--at-least") == 0) {
    at_least = std::atof(argv[2]);
  } else if (argc != 1) {
    std::fprintf(stderr, "usage: %s [--at-least RATIO]\n", argv[0]);
    return 64;
  }
  try {
    return vhca::test::run(at_least);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vhca_copy_bench: %s\n", error.what());
    return 70;
  }
}
