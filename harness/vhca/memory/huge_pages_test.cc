// SPDX-License-Identifier: Apache-2.0
// Registering moves large memory to huge pages where that is worth it, and no program can tell but by speed.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "harness/vhca/testing/verbs_fixture.h"

namespace vhca::test {
namespace {

constexpr std::size_t kHuge = 2 << 20;
constexpr std::size_t kBytes = 8 * kHuge;

// Bytes of /proc/self/smaps' field over [at, at + bytes); whole mappings are counted.
std::size_t in_smaps(const char* field, const char* at, std::size_t bytes) {
  std::ifstream smaps("/proc/self/smaps");
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  std::size_t sum = 0;
  bool within = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t first, last;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2)
      within = first < begin + bytes && last > begin;
    else if (within && line.rfind(std::string(field) + ":", 0) == 0)
      sum += 1024 * std::strtoull(line.c_str() + std::strlen(field) + 1, nullptr, 10);
  }
  return sum;
}

// Mapped with a page that nothing can be merged with on both sides.
char* map_alone(std::size_t bytes, int flags, int fd = -1) {
  auto* room = static_cast<char*>(
      ::mmap(nullptr, bytes + 2 * kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  VHCA_REQUIRE(room != MAP_FAILED);
  auto* at = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(room) + kHuge) & ~(kHuge - 1));
  VHCA_REQUIRE(::mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == at);
  return at;
}

void fill(char* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64)
    *reinterpret_cast<std::uint64_t*>(at + i) = i * 0x9e3779b97f4a7c15;
}
void check(const char* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64)
    VHCA_REQUIRE(*reinterpret_cast<const std::uint64_t*>(at + i) == i * 0x9e3779b97f4a7c15);
}

bool kernel_can() {
  char* at = map_alone(kHuge, MAP_PRIVATE | MAP_ANONYMOUS);
  fill(at, kHuge);
  return ::madvise(at, kHuge, 25 /* MADV_COLLAPSE */) == 0;
}

ibv_mr* registered(const Endpoint& e, char* at, std::size_t bytes) {
  ibv_mr* mr = ibv_reg_mr(e.pd(), at, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  VHCA_REQUIRE(mr != nullptr);
  return mr;
}

void in_a_process(const char* told, const std::function<void(Endpoint&)>& body) {
  const auto fabric = make_fabric(1, 1);
  Process process(fabric, "node0", [&](const Wire&) {
    if (told) ::setenv("VHCA_HUGE_PAGES", told, 1);
    Endpoint me;
    body(me);
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(HugePages, hold_what_was_there_before) {
  in_a_process("1", [](Endpoint& me) {
    char* at = map_alone(kBytes, MAP_PRIVATE | MAP_ANONYMOUS);
    fill(at, kBytes);
    ibv_mr* mr = registered(me, at + 4096, kBytes - 8192);  // the first and the last block are not whole
    check(at, kBytes);
    if (kernel_can()) {
      VHCA_REQUIRE(in_smaps("AnonHugePages", at, kBytes) >= kHuge);
      VHCA_REQUIRE(in_smaps("AnonHugePages", at, kBytes) <= kBytes - 2 * kHuge);
    }
    // What a program may do with its memory it still may, while it is registered and afterwards.
    const pid_t child = ::fork();
    if (child == 0) {
      std::memset(at, 7, kBytes);
      ::_exit(at[kBytes - 1] == 7 ? 0 : 1);
    }
    int status = -1;
    VHCA_REQUIRE(::waitpid(child, &status, 0) == child && status == 0);
    check(at, kBytes);
    VHCA_REQUIRE_EQ(::munmap(at + 3 * kHuge + 4096, 4096), 0);
    VHCA_REQUIRE_EQ(::mprotect(at + 5 * kHuge + 8192, 4096, PROT_READ), 0);
    check(at, 3 * kHuge + 4096);
    VHCA_REQUIRE_EQ(ibv_dereg_mr(mr), 0);
    VHCA_REQUIRE(at[6 * kHuge] == static_cast<char>(6 * kHuge * 0x9e3779b97f4a7c15));
    VHCA_REQUIRE_EQ(::munmap(at, kBytes), 0);
  });
}

TEST(HugePages, are_not_used_unless_it_was_told) {
  const auto none = [](Endpoint& me) {
    char* at = map_alone(kBytes, MAP_PRIVATE | MAP_ANONYMOUS);
    fill(at, kBytes);
    const std::size_t before = in_smaps("AnonHugePages", at, kBytes);  // none, unless the machine is set so
    registered(me, at, kBytes);
    VHCA_REQUIRE_EQ(in_smaps("AnonHugePages", at, kBytes), before);
    check(at, kBytes);
  };
  in_a_process("0", none);
  in_a_process(nullptr, none);
}

TEST(HugePages, take_nothing_that_was_never_touched) {
  in_a_process("1", [](Endpoint& me) {
    constexpr std::size_t kSparse = 64ul << 30;
    auto* at = static_cast<char*>(
        ::mmap(nullptr, kSparse, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    VHCA_REQUIRE(at != MAP_FAILED);
    ibv_mr* mr = registered(me, at, kSparse);
    VHCA_REQUIRE_EQ(in_smaps("Rss", at, kSparse), 0u);
    VHCA_REQUIRE_EQ(ibv_dereg_mr(mr), 0);
  });
}

// Files keep their pages and their contents, whether the mapping is private or shared.
TEST(HugePages, are_for_anonymous_memory_only) {
  in_a_process("1", [](Endpoint& me) {
    const int fd = ::memfd_create("huge_pages_test", MFD_CLOEXEC);
    VHCA_REQUIRE(fd >= 0 && ::ftruncate(fd, kBytes) == 0);
    char* shared = map_alone(kBytes, MAP_SHARED, fd);
    fill(shared, kBytes);
    char* own = map_alone(kBytes, MAP_PRIVATE, fd);
    for (char* at : {shared, own}) {
      registered(me, at, kBytes);
      check(at, kBytes);
      VHCA_REQUIRE_EQ(in_smaps("AnonHugePages", at, kBytes), 0u);
      VHCA_REQUIRE_EQ(in_smaps("ShmemPmdMapped", at, kBytes), 0u);
    }
    own[0] = 1;
    VHCA_REQUIRE(shared[0] == 0);
  });
}

}  // namespace
}  // namespace vhca::test
