// SPDX-License-Identifier: Apache-2.0
// Processes share a page and each other's demand, whoever of them is killed, and nothing is left of it.
#include "r2ccl/control/shared_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "r2ccl/base/clock.h"
#include "r2ccl/service/node_demand.h"
#include "r2ccl/tests/testing/eventually.h"

namespace r2ccl {
namespace {

using testing_support::eventually;

constexpr size_t kBytes = 4096;

std::string unique(const char* what) { return std::string(what) + std::to_string(getpid()); }

std::atomic<uint64_t>& word(const control::SharedPage& page, size_t at) {
  return static_cast<std::atomic<uint64_t>*>(page.memory())[at];
}

/// A process that joins, and counts in word `number` for ever.
pid_t counter(const std::string& name, size_t number) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  auto page = control::SharedPage::make(name, kBytes);
  while (page) {
    page->tend();
    if (page->joined()) word(*page, number).fetch_add(1);
    usleep(500);
  }
  _exit(1);
}

void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

bool abstract_name_exists(const std::string& name) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    if (line.find("/" + name) != std::string::npos) return true;
  return false;
}

TEST(SharedPage, everybody_meets_and_outlives_whoever_let_them_in) {
  const std::string name = unique("page-");
  std::vector<pid_t> others;
  for (size_t i = 0; i < 4; ++i) others.push_back(counter(name, i));
  auto page = control::SharedPage::make(name, kBytes);
  ASSERT_TRUE(page.ok()) << page.error().message;
  const auto all_count = [&](size_t from) {
    std::vector<uint64_t> before(4);
    for (size_t i = from; i < 4; ++i) before[i] = word(*page, i);
    return eventually([&] {
      page->tend();
      for (size_t i = from; i < 4; ++i)
        if (word(*page, i) <= before[i]) return false;
      return true;
    });
  };
  ASSERT_TRUE(eventually([&] {
    page->tend();
    for (size_t i = 0; i < 4; ++i)
      if (word(*page, i) == 0) return false;
    return page->joined();
  })) << "all of them count in one page";
  for (size_t i = 0; i < 4; ++i) {  // one of these lets the others in
    end(others[i]);
    // The rest come together again, on a page that may be another one; a newcomer finds them.
    ASSERT_TRUE(all_count(i + 1)) << "after " << i + 1 << " kills";
    const pid_t newcomer = counter(name, 10 + i);
    EXPECT_TRUE(eventually([&] {
      page->tend();
      return word(*page, 10 + i) > 0;
    })) << "after "
        << i + 1 << " kills";
    end(newcomer);
  }
  EXPECT_TRUE(eventually([&] {  // the one that ended last may have been the one that lets others in
    page->tend();
    return abstract_name_exists(name);
  }));
  *page = std::move(*control::SharedPage::make(unique("other-"), kBytes));
  EXPECT_FALSE(abstract_name_exists(name)) << "nothing is left";
}

/// A socket that serves under `name`.
int serve(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = "r2ccl/" + std::to_string(geteuid()) + "/" + name;
  text.copy(address.sun_path + 1, text.size());
  const int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  EXPECT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address),
                 socklen_t(offsetof(sockaddr_un, sun_path) + 1 + text.size())),
            0);
  EXPECT_EQ(listen(listening, 8), 0);
  return listening;
}

TEST(SharedPage, who_gives_something_else_is_left_alone) {
  const std::string name = unique("bad-");
  const int listening = serve(name);
  auto page = control::SharedPage::make(name, kBytes);
  ASSERT_TRUE(page.ok());
  word(*page, 0) = 7;
  int answered = 0;
  for (int i = 0; i < 200; ++i) {
    page->tend();
    if (const int guest = accept(listening, nullptr, nullptr); guest >= 0) {
      ++answered;
      EXPECT_EQ(send(guest, "nonsense", 8, MSG_NOSIGNAL), 8);
      close(guest);
    }
  }
  EXPECT_GT(answered, 10);
  EXPECT_FALSE(page->joined());
  EXPECT_EQ(word(*page, 0), 7u) << "it goes on with its own";
  close(listening);
  EXPECT_TRUE(eventually([&] {
    page->tend();
    return page->joined();
  }));
}

void give(int to, const std::vector<int>& files) {
  char byte = 0;
  iovec data{&byte, 1};
  std::vector<char> control(CMSG_SPACE(files.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
  EXPECT_EQ(sendmsg(to, &message, MSG_NOSIGNAL), 1);
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(SharedPage, what_could_be_cut_short_or_not_be_written_is_not_taken) {
  const std::string name = unique("files-");
  const int listening = serve(name);
  char path[] = "/tmp/r2ccl-page-XXXXXX";
  const int file = mkstemp(path);
  unlink(path);
  ASSERT_EQ(ftruncate(file, kBytes), 0);
  const auto page_with = [](unsigned seals) {
    const int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, kBytes), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
  };
  const int unsealed = page_with(F_SEAL_SHRINK);
  const int readable = page_with(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
  const std::vector<std::vector<int>> gifts{
      {file}, {unsealed}, {readable}, {file, file}, {readable, file, file}};
  auto page = control::SharedPage::make(name, kBytes);
  ASSERT_TRUE(page.ok());
  word(*page, 0) = 7;
  const size_t before = open_descriptors();
  int given = 0;
  for (int i = 0; i < 400; ++i) {
    page->tend();
    if (const int guest = accept(listening, nullptr, nullptr); guest >= 0) {
      give(guest, gifts[size_t(given++) % gifts.size()]);
      close(guest);
    }
    ASSERT_FALSE(page->joined()) << given;
  }
  EXPECT_GE(given, 50);
  EXPECT_LE(open_descriptors(), before + 2) << "none is kept";
  EXPECT_EQ(word(*page, 0), 7u);
  for (const int fd : {file, unsealed, readable, listening}) close(fd);
}

TEST(SharedPage, names_that_differ_only_at_a_far_end_do_not_meet) {
  const std::string longer = unique("long-") + std::string(200, 'x');
  auto a = control::SharedPage::make(longer + "a", kBytes),
       b = control::SharedPage::make(longer + "b", kBytes);
  for (int i = 0; i < 10; ++i) a->tend(), b->tend();
  EXPECT_TRUE(a->joined() && b->joined());
  word(*a, 0) = 1;
  EXPECT_EQ(word(*b, 0), 0u);
}

balance::Demand one(uint8_t far, size_t home, double amount) {
  balance::Demand demand;
  demand.add(far, home, amount);
  return demand;
}

TEST(NodeDemand, is_the_sum_of_all_processes_under_each_ones_own_numbers) {
  const std::string scope = unique("scope-");
  uint64_t now = now_ns();
  NodeDemand a(scope, 1, {101, 102, 103}), b(scope, 2, {103, 102, 999}), elsewhere(scope + "x", 3, {101});
  balance::Demand seen;
  ASSERT_TRUE(eventually([&] {
    b.exchange(one(0b001, 0, 5), now);  // far: NIC 103; home: 103
    elsewhere.exchange(one(0, 0, 50), now);
    seen = a.exchange(one(0b100, 1, 2), now);
    return a.processes() == 2;
  }));
  EXPECT_TRUE(a.sees_others());
  EXPECT_DOUBLE_EQ(seen.on(0), 0);
  EXPECT_DOUBLE_EQ(seen.on(1), 2);
  EXPECT_DOUBLE_EQ(seen.on(2), 5);
  ASSERT_EQ(seen.count, 1u) << "both are far from NIC 103 only";
  EXPECT_EQ(seen.groups[0].far, 0b100);
  // What b has that a does not know is left out; and b sees a's.
  seen = b.exchange(one(0, 2, 9), now);
  EXPECT_DOUBLE_EQ(seen.on(1), 2);
  EXPECT_DOUBLE_EQ(seen.on(2), 9);
  EXPECT_DOUBLE_EQ(a.exchange({}, now).on(2), 0);
  // Who has said nothing for a second is gone.
  now += 1500 * kNsPerMs;
  EXPECT_DOUBLE_EQ(b.exchange(one(0, 2, 9), now).on(1), 0);
  EXPECT_EQ(b.processes(), 1);
}

TEST(NodeDemand, more_processes_than_it_has_room_for_do_no_harm) {
  const std::string scope = unique("many-");
  const uint64_t now = now_ns();
  std::vector<NodeDemand> all;
  for (uint64_t i = 1; i <= 80; ++i) all.emplace_back(scope, i, std::vector<uint64_t>{7});
  balance::Demand last;
  EXPECT_TRUE(eventually([&] {
    for (auto& each : all) last = each.exchange(one(0, 0, 1), now);
    return all.back().processes() >= 64;
  }));
  EXPECT_DOUBLE_EQ(last.on(0), 65) << "all that have a place, and itself";
  EXPECT_DOUBLE_EQ(all.front().exchange(one(0, 0, 1), now).on(0), 64);
}

}  // namespace
}  // namespace r2ccl
