// SPDX-License-Identifier: Apache-2.0
#include "faultinject/preload/ended_descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace faultinject {
namespace {

// For the calling thread, as the profile of a container does it.
void forbid_userfaultfd() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof steps / sizeof steps[0], steps};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
  ASSERT_EQ(syscall(SYS_userfaultfd, O_CLOEXEC), -1);
  ASSERT_EQ(errno, EPERM);
}

class EndedDescriptorTest : public ::testing::TestWithParam<bool> {
 protected:
  // In a thread of its own, which may be left without a system call.
  template <typename Test>
  void in_thread(Test test) {
    std::thread([&] {
      if (GetParam()) forbid_userfaultfd();
      test();
    }).join();
  }
  int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int set = epoll_create1(EPOLL_CLOEXEC);

  ~EndedDescriptorTest() override {
    close(fd);
    close(set);
  }
  void watch() const {
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.u64 = 7;
    ASSERT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, fd, &interest), 0);
  }
  void expect_ended() const {
    for (int i = 0; i < 2; i++) {
      pollfd p{fd, POLLIN, 0};
      EXPECT_EQ(poll(&p, 1, 0), 1);
      EXPECT_EQ(p.revents, POLLERR);
      epoll_event event{};
      EXPECT_EQ(epoll_wait(set, &event, 1, 5000), 1);
      EXPECT_EQ(event.events, unsigned(EPOLLERR));
      EXPECT_EQ(event.data.u64, 7u);
    }
  }
};

TEST_P(EndedDescriptorTest, polls_as_an_error_and_nothing_else_in_a_set_of_old_too) {
  watch();
  const uint64_t one = 1;
  ASSERT_EQ(write(fd, &one, sizeof one), ssize_t(sizeof one));
  EXPECT_TRUE(readable(fd));
  in_thread([&] { EXPECT_TRUE(end_descriptor(fd)); });
  EXPECT_FALSE(readable(fd));
  expect_ended();
  EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  char byte = 0;
  EXPECT_EQ(read(fd, &byte, 1), -1);
}

TEST_P(EndedDescriptorTest, wakes_who_sleeps_in_epoll_wait) {
  watch();
  unsigned events = 0;
  std::thread sleeper([&] {
    epoll_event event{};
    if (epoll_wait(set, &event, 1, 20000) == 1) events = event.events;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  in_thread([&] { EXPECT_TRUE(end_descriptor(fd)); });
  sleeper.join();
  EXPECT_EQ(events, unsigned(EPOLLERR));
}

INSTANTIATE_TEST_SUITE_P(UserfaultfdForbidden, EndedDescriptorTest, ::testing::Bool());

TEST(EndedDescriptor, a_provider_that_reports_an_event_there_raises_no_signal) {
  const long permitted = syscall(SYS_userfaultfd, O_CLOEXEC | 1);
  if (permitted < 0) GTEST_SKIP() << "no userfaultfd here: then the end is a pipe's (README, Known gaps)";
  close(int(permitted));
  const int fd = eventfd(0, EFD_CLOEXEC);
  ASSERT_TRUE(end_descriptor(fd));
  const uint64_t one = 1;
  EXPECT_EQ(write(fd, &one, sizeof one), -1);  // a SIGPIPE would end this program
  close(fd);
}

}  // namespace
}  // namespace faultinject
