// SPDX-License-Identifier: Apache-2.0
// Real events that vanish between poll() and read(), because their object is destroyed meanwhile: who does
// not want to block does not, and who does sleeps on until the next one. The device is an eventfd, and
// libibverbs is the little of it that matters (fake_verbs.h).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "faultinject/preload/async_events.h"
#include "faultinject/testing/fake_verbs.h"

namespace faultinject::testing {
namespace {

using namespace std::chrono_literals;

class AsyncEventsTest : public ::testing::Test {
 protected:
  AsyncEventsTest() {
    context.async_fd = device = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    events = std::make_unique<AsyncEvents>(&context);
  }
  ~AsyncEventsTest() override {
    event_is_to_be_read = nullptr;
    events->close();
    ::close(device);
  }
  void raise_event() {
    const uint64_t one = 1;
    ASSERT_EQ(write(device, &one, sizeof one), ssize_t(sizeof one));
  }
  // The next event is gone when it is about to be read.
  void lose_the_next() {
    event_is_to_be_read = [this] {
      uint64_t number = 0;
      if (lost.exchange(true)) return;
      EXPECT_EQ(read(device, &number, sizeof number), ssize_t(sizeof number));
    };
  }
  std::future<int> get() {  // 0, or the errno
    return std::async(std::launch::async, [this] {
      ibv_async_event event{};
      return events->get(&event) == 0 ? 0 : errno;
    });
  }

  ibv_context context{};
  int device = -1;
  std::unique_ptr<AsyncEvents> events;
  std::atomic<bool> lost{false};
};

TEST_F(AsyncEventsTest, who_does_not_block_is_told_that_there_is_none) {
  ASSERT_EQ(fcntl(context.async_fd, F_SETFL, O_NONBLOCK), 0);
  raise_event();
  lose_the_next();
  auto got = get();
  const bool answered = got.wait_for(10s) == std::future_status::ready;
  EXPECT_TRUE(answered) << "it sleeps";
  if (!answered) raise_event();
  EXPECT_EQ(got.get(), EAGAIN);
  EXPECT_TRUE(lost);
}

TEST_F(AsyncEventsTest, who_blocks_gets_the_next_one_real_or_injected) {
  for (const bool real : {true, false}) {
    lost = false;
    raise_event();
    lose_the_next();
    auto got = get();
    while (!lost) std::this_thread::yield();
    EXPECT_EQ(got.wait_for(100ms), std::future_status::timeout);
    if (real) {
      raise_event();
    } else {
      ibv_async_event event{};
      event.event_type = IBV_EVENT_PORT_ERR;
      events->push(event);
    }
    const bool answered = got.wait_for(10s) == std::future_status::ready;
    EXPECT_TRUE(answered) << "it does not see an injected one";
    if (!answered) raise_event();
    EXPECT_EQ(got.get(), 0);
    EXPECT_TRUE(lost);
  }
}

}  // namespace
}  // namespace faultinject::testing
