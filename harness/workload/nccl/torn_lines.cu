// SPDX-License-Identifier: Apache-2.0
// Whether a GPU may see a line of 128 bytes torn that a CPU writes to host memory: what NCCL's LL128 relies on not to happen, since
// the last 8 bytes of a line are its flag. No NCCL, no plugin, no virtual HCA: a kernel polls the lines as LL128's receivers do (eight
// threads load 16 bytes each, again until each line has the new flag), while the CPU writes all lines in one of several ways.
//
//   nvcc -O2 -arch=native -o torn_lines harness/workload/nccl/torn_lines.cu && ./torn_lines SECONDS_PER_WAY
//
// Prints a JSON line per way: rounds, lines read, torn lines (flag new, other words old) and those whose first 64 bytes alone were old.
// Exit status: 0 all ways ran, whatever they found; 1 an error of CUDA or of the system.
#include <cuda_runtime.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr unsigned kLines = 4096, kWordsPerLine = 16, kWarps = 32, kLinesPerWarp = 4;  // 512 KiB: a step of NCCL's

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "torn_lines: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

struct Found {
  unsigned long long torn, first_half_old;
};

// One block. Of each round all lines are awaited; `seen` tells the CPU how far the kernel is.
__global__ void reader(const volatile std::uint64_t* lines, volatile unsigned* seen, const volatile unsigned* stop, Found* found) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (std::uint64_t round = 1;; ++round) {
    for (unsigned first = warp * kLinesPerWarp; first < kLines; first += kWarps * kLinesPerWarp) {
      const volatile std::uint64_t* mine = lines + (first + lane / 8) * kWordsPerLine + (lane % 8) * 2;
      std::uint64_t low, high;
      bool again;
      unsigned tries = 0;
      do {
        asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];" : "=l"(low), "=l"(high) : "l"(mine) : "memory");
        again = __any_sync(~0u, lane % 8 == 7 && high != round) != 0;
        if (again && ++tries % 1024 == 0 && *stop) return;
      } while (again);
      const unsigned old_words = __ballot_sync(~0u, low != round || high != round);
      if (lane % 8 == 0 && ((old_words >> lane) & 0xff) != 0) {
        atomicAdd(&found->torn, 1ull);
        if (((old_words >> lane) & 0xf0) == 0) atomicAdd(&found->first_half_old, 1ull);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      *seen = static_cast<unsigned>(round);
      __threadfence_system();
    }
  }
}

void by_words(void* to, const void* from, std::size_t bytes) {  // in ascending order, each word whole
  auto* d = static_cast<volatile std::uint64_t*>(to);
  auto* s = static_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / 8; ++i) d[i] = s[i];
}
void by_memcpy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void by_string_move(void* to, const void* from, std::size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
void by_kernel(void* to, const void* from, std::size_t bytes) {  // as the virtual HCA does
  const iovec source{const_cast<void*>(from), bytes}, sink{to, bytes};
  if (::process_vm_writev(::getpid(), &source, 1, &sink, 1, 0) != static_cast<ssize_t>(bytes)) {
    std::perror("torn_lines: process_vm_writev");
    std::exit(1);
  }
}

struct Way {
  const char* name;
  void (*copy)(void*, const void*, std::size_t);
};
constexpr Way kWays[] = {{"words in ascending order", by_words},
                         {"memcpy", by_memcpy},
                         {"rep movsb", by_string_move},
                         {"process_vm_writev", by_kernel}};

void run(const Way& way, double seconds) {
  std::uint64_t* lines;
  unsigned* flags;  // [0] seen, [32] stop
  Found* found;
  const std::size_t bytes = kLines * kWordsPerLine * 8;
  check(cudaHostAlloc(&lines, bytes, cudaHostAllocMapped), "cudaHostAlloc");
  check(cudaHostAlloc(&flags, 256, cudaHostAllocMapped), "cudaHostAlloc");
  check(cudaMalloc(&found, sizeof *found), "cudaMalloc");
  std::memset(lines, 0, bytes);
  std::memset(flags, 0, 256);
  check(cudaMemset(found, 0, sizeof *found), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaMemset");
  auto* source = static_cast<std::uint64_t*>(std::aligned_alloc(4096, bytes));
  reader<<<1, kWarps * 32>>>(lines, flags, flags + 32, found);
  check(cudaGetLastError(), "launch");
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  auto* seen = reinterpret_cast<std::atomic<unsigned>*>(flags);
  unsigned round = 0;
  while (Clock::now() < end) {
    ++round;
    for (std::size_t i = 0; i < bytes / 8; ++i) source[i] = round;
    way.copy(lines, source, bytes);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    while (seen->load(std::memory_order_acquire) != round)
      if (Clock::now() > end + std::chrono::seconds(5)) break;  // the kernel died: synchronising tells why
  }
  reinterpret_cast<std::atomic<unsigned>*>(flags + 32)->store(1);
  check(cudaDeviceSynchronize(), "the kernel");
  Found counted;
  check(cudaMemcpy(&counted, found, sizeof counted, cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::printf("{\"way\": \"%s\", \"rounds\": %u, \"lines\": %llu, \"torn\": %llu, \"first_half_old\": %llu}\n", way.name, round,
              static_cast<unsigned long long>(round) * kLines, counted.torn, counted.first_half_old);
  std::fflush(stdout);
  std::free(source);
  check(cudaFree(found), "cudaFree");
  check(cudaFreeHost(flags), "cudaFreeHost");
  check(cudaFreeHost(lines), "cudaFreeHost");
}

}  // namespace

int main(int count, char** arguments) {
  const double seconds = count == 2 ? std::atof(arguments[1]) : 0;
  if (seconds <= 0) {
    std::fprintf(stderr, "usage: torn_lines SECONDS_PER_WAY\n");
    return 1;
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("{\"gpu\": \"%s\", \"line_bytes\": 128, \"lines\": %u}\n", properties.name, kLines);
  for (const Way& way : kWays) run(way, seconds);
}
