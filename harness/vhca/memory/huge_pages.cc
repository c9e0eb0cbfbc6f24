// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/memory/huge_pages.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace vhca {
namespace {

constexpr std::uintptr_t kHuge = 2 << 20;
constexpr std::uintptr_t kStep = 16 << 20;  // between two looks at the clock
constexpr std::uint64_t kMostNs = 500'000'000;

std::uint64_t thread_cpu_ns() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Private anonymous memory: nobody else has it, and no file is behind it. A line of /proc/self/maps
// (proc(5)).
bool is_anonymous(const char* line, std::uintptr_t& begin, std::uintptr_t& end) {
  char rights[5];
  unsigned long long inode = 1;
  int name = 0;
  if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*x:%*x %llu %n", &begin, &end, rights, &inode,
                  &name) != 4)
    return false;
  const char* const what = line + name;
  return inode == 0 && rights[1] == 'w' && rights[3] == 'p' &&
         (*what == 0 || *what == '\n' || std::strncmp(what, "[heap]", 6) == 0 ||
          std::strncmp(what, "[anon:", 6) == 0);
}

// False: it is time to leave it at that.
bool collapse(std::uintptr_t begin, std::uintptr_t end, std::uint64_t until_ns) {
  begin = (begin + kHuge - 1) & ~(kHuge - 1);
  end &= ~(kHuge - 1);
  for (; begin < end; begin += kStep) {
    ::madvise(reinterpret_cast<void*>(begin), std::min(end - begin, kStep), MADV_COLLAPSE);
    if (thread_cpu_ns() > until_ns) return false;
  }
  return true;
}

}  // namespace

bool wants_huge_pages() {
  static const char* const told = std::getenv("VHCA_HUGE_PAGES");
  return told && *told && told[0] != '0';
}

void use_huge_pages(void* address, std::size_t length) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + length;
  if (((begin + kHuge - 1) & ~(kHuge - 1)) >= (end & ~(kHuge - 1))) return;
  const std::uint64_t until = thread_cpu_ns() + kMostNs;
  const File maps(std::fopen("/proc/self/maps", "re"));
  char line[512];
  while (maps && std::fgets(line, sizeof line, maps.get())) {
    if (!std::strchr(line, '\n'))  // a long path: the rest of the line is no line
      for (int c; (c = std::fgetc(maps.get())) != '\n' && c != EOF;) {
      }
    std::uintptr_t first, last;
    if (!is_anonymous(line, first, last)) continue;
    if (first >= end) break;
    if (last > begin && !collapse(std::max(first, begin), std::min(last, end), until)) break;
  }
}

}  // namespace vhca
