// SPDX-License-Identifier: Apache-2.0
// What the service thread needs and does not get: memory, a place in its epoll set. The process goes on, and
// a channel that cannot says why.
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "r2ccl/channel/channel.h"
#include "r2ccl/path/path_set.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/sanitizer.h"
#include "r2ccl/tests/testing/traffic.h"

namespace {

std::atomic<int> g_fail_at{0};  // allocations of the service thread, from 1; 0: none fails
std::atomic<int> g_fail_count{0};
std::atomic<int> g_allocations{0};
std::atomic<int> g_failed{0};
std::atomic<bool> g_epoll_full{false};
std::atomic<int> g_refused{0};

bool on_service_thread() {
  thread_local int is = -1;
  if (is < 0) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    is = std::strcmp(name, "r2ccl-service") == 0;
  }
  return is == 1;
}

bool allocation_fails() {
  const int at = g_fail_at.load(std::memory_order_relaxed);
  if (at == 0 || !on_service_thread()) return false;
  const int number = ++g_allocations;
  if (number < at || number >= at + g_fail_count) return false;
  ++g_failed;
  return true;
}

}  // namespace

// (Not inlined, or the compiler compares what is behind new with free.)
__attribute__((noinline)) void* operator new(size_t bytes) {
  if (void* memory = allocation_fails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocation_fails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

extern "C" int epoll_ctl(int set, int operation, int fd, epoll_event* event) noexcept {
  constexpr uint64_t kFirstStream = 1 << 16;  // what the service calls control connections
  if (g_epoll_full && operation == EPOLL_CTL_ADD && event->data.u64 >= kFirstStream) {
    ++g_refused;
    errno = ENOSPC;
    return -1;
  }
  return int(syscall(SYS_epoll_ctl, set, operation, fd, event));
}

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Messages over one channel until all are there, or an error says why not; no byte may be wrong.
std::string carry(Net& net, Channel* channel, bool send, uint64_t messages) {
  constexpr size_t kBytes = 16384;
  std::vector<uint8_t> data(kBytes), wanted(kBytes);
  auto reg = net.reg(channel, data.data(), kBytes);
  if (!reg) return reg.error().message;
  std::string failed;
  for (uint64_t message = 0; message < messages && failed.empty(); ++message) {
    fill_message(message, wanted.data(), kBytes);
    // In place: it is registered.
    if (send)
      data.assign(wanted.begin(), wanted.end());
    else
      std::fill(data.begin(), data.end(), uint8_t(0));
    Request* request = nullptr;
    for (bool done = false; !done && failed.empty();) {
      if (!request) {
        auto posted = send ? net.isend(channel, data.data(), kBytes, *reg)
                           : net.irecv(channel, data.data(), kBytes, *reg);
        if (!posted)
          failed = posted.error().message;
        else
          request = *posted;
        continue;
      }
      auto outcome = net.test(request);
      if (!outcome)
        failed = outcome.error().message;
      else
        done = outcome->done;
    }
    if (failed.empty() && !send) {
      EXPECT_EQ(data, wanted) << "message " << message;
    }
  }
  EXPECT_TRUE(net.dereg(channel, *reg).ok());
  return failed;
}

/// Until it stands, or an error says why not (or nothing comes, for as long as set-up may take).
Channel* stands(const std::function<Result<Channel*>()>& attempt, std::string& failed) {
  for (const auto until = Clock::now() + 1500ms * kSanitizerFactor; Clock::now() < until;
       std::this_thread::yield()) {
    auto result = attempt();
    if (!result) failed = result.error().message;
    if (!result || *result) return result ? *result : nullptr;
  }
  failed = "nothing came";
  return nullptr;
}

struct Outcome {
  int failed = 0;       // allocations
  bool error = false;   // the channel has one
  bool unsaid = false;  // … without a sentence
};

void one_end(const Link& link, bool send, bool victim, int at) {
  Net* n = net();
  ASSERT_NE(n, nullptr);
  g_fail_count = 3;
  if (victim) g_fail_at = at;
  std::array<std::byte, kHandleBytes> handle{};
  std::string failed;
  Channel* channel = nullptr;
  Listener* listener = nullptr;
  if (send) {
    ASSERT_TRUE(link.receive(handle.data(), handle.size()));
    channel = stands([&] { return n->connect(0, handle.data()); }, failed);
  } else {
    auto listening = n->listen(0, handle.data());
    ASSERT_TRUE(listening.ok());
    listener = *listening;
    link.send(handle.data(), handle.size());
    channel = stands([&] { return n->accept(listener); }, failed);
  }
  if (channel) failed = carry(*n, channel, send, 400);
  if (channel) {
    EXPECT_TRUE(n->close(channel).ok());
  }
  if (listener) {
    EXPECT_TRUE(n->close(listener).ok());
  }
  const Outcome outcome{g_failed, !channel || !failed.empty(), failed.empty() && !channel};
  link.send(&outcome, sizeof outcome);
}

TEST(Scarcity, a_service_thread_without_memory_does_not_end_the_process) {
  const Environment environment{{"R2CC_CONNECT_MS", "1000"}, {"R2CC_FAILBACK_MS", "5"}};
  int hits = 0, went_on = 0;
  for (const bool sender_is_victim : {true, false})
    for (const int at : {1, 6, 16, 30, 60, 100, 200, 400}) {
      SCOPED_TRACE("allocation " + std::to_string(at) +
                   (sender_is_victim ? " of the sender" : " of the receiver"));
      const auto fabric = make_fabric(2, 2);
      FaultingNet faulting_net(fabric);
      const Child receiver = start(fabric, 1, environment,
                                   [&](const Link& link) { one_end(link, false, !sender_is_victim, at); });
      const Child sender =
          start(fabric, 0, environment, [&](const Link& link) { one_end(link, true, sender_is_victim, at); });
      relay_handle(receiver, sender);
      faulting_net.start([nic = 0](FaultingNet& s) mutable {  // so that there is something to do
        std::this_thread::sleep_for(20ms);
        s.strike(0, nic ^= 1, 16);
      });
      for (const Child* child : {&receiver, &sender}) {
        Outcome outcome;
        ASSERT_TRUE(child->link.receive(&outcome, sizeof outcome)) << "the process has ended";
        hits += outcome.failed > 0;
        went_on += outcome.failed > 0 && !outcome.error;
        EXPECT_FALSE(outcome.unsaid);
      }
      faulting_net.stop();
      EXPECT_EQ(sender.wait(), 0);
      EXPECT_EQ(receiver.wait(), 0);
    }
  EXPECT_GE(hits, 8) << "allocations have failed in so many of 16 runs";
  EXPECT_GE(went_on, 1) << "of them went on";
  std::printf("in %d runs allocations failed; in %d of them everything arrived all the same\n", hits,
              went_on);
}

/// Sends until its peer's end is closed; why it cannot send any more, and after how many seconds.
struct LastHeard {
  double seconds = 60;
  char why[400] = "nothing came";
};
LastHeard send_until_closed(Net& net, Channel* channel) {
  LastHeard heard;
  std::vector<uint8_t> data(16384);
  auto reg = net.reg(channel, data.data(), data.size());
  EXPECT_TRUE(reg.ok());
  for (const auto began = Clock::now(); Clock::now() - began < 60s; std::this_thread::sleep_for(100us)) {
    auto posted = net.isend(channel, data.data(), data.size(), *reg);
    if (posted) continue;
    heard.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    std::snprintf(heard.why, sizeof heard.why, "%s", posted.error().message.c_str());
    break;
  }
  EXPECT_TRUE(net.dereg(channel, *reg).ok());
  return heard;
}

// The last word is what memory is lacking for.
TEST(Scarcity, a_channel_that_is_closed_without_memory_says_so_to_its_peer) {
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Net* n = net();
    std::array<std::byte, kHandleBytes> handle{};
    auto listening = n->listen(0, handle.data());
    ASSERT_TRUE(listening.ok());
    link.send(handle.data(), handle.size());
    Channel* channel = until_ready([&] { return n->accept(*listening); });
    ASSERT_NE(channel, nullptr);
    EXPECT_EQ(carry(*n, channel, false, 20), "");
    std::this_thread::sleep_for(100ms);  // nothing else is done meanwhile
    g_allocations = g_failed = 0;
    g_fail_count = 1;
    g_fail_at = 1;
    EXPECT_TRUE(n->close(channel).ok());
    char sender_knows = 0;
    ASSERT_TRUE(link.receive(&sender_knows, 1));
    g_fail_at = 0;
    EXPECT_EQ(g_failed, 1);
    EXPECT_TRUE(n->close(*listening).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Net* n = net();
    std::array<std::byte, kHandleBytes> handle{};
    ASSERT_TRUE(link.receive(handle.data(), handle.size()));
    Channel* channel = until_ready([&] { return n->connect(0, handle.data()); });
    ASSERT_NE(channel, nullptr);
    EXPECT_EQ(carry(*n, channel, true, 20), "");
    const LastHeard heard = send_until_closed(*n, channel);
    link.send(&heard, sizeof heard);
    EXPECT_TRUE(n->close(channel).ok());
  });
  relay_handle(receiver, sender);
  LastHeard heard;
  ASSERT_TRUE(sender.link.receive(&heard, sizeof heard));
  EXPECT_LT(heard.seconds, 5 * kSanitizerFactor) << heard.why;
  EXPECT_NE(std::strstr(heard.why, "out of memory"), nullptr) << heard.why;
  receiver.link.send("k", 1);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

/// Four paths of one NIC, numbered from 1.
void add_four(PathSet& paths, const verbs::Device& device) {
  for (uint32_t id = 1; id <= 4; ++id) {
    Job job;
    auto path = Path::create(id, 0, 0, device, ChannelMemory::make(), true, true, false, job);
    ASSERT_TRUE(path.ok());
    paths.add(std::move(*path));
  }
}

// Each allocation of putting paths away fails once, and what was not done is done again, as the service does.
TEST(Scarcity, a_path_is_put_away_whole_whichever_allocation_fails) {
  const auto fabric = make_fabric(1, 1);
  const Child child = start(fabric, 0, {}, [](const Link&) {
    auto config = Config::from_environment();
    ASSERT_TRUE(config.ok());
    auto devices = verbs::Device::open_all(*config);
    ASSERT_TRUE(devices.ok());
    std::atomic<int> failures{0};
    std::thread([&] {
      pthread_setname_np(pthread_self(), "r2ccl-service");  // whose allocations fail
      for (int at = 1; at <= 40; ++at) {
        NicWorkers workers("worker", {"nic"}, [] {});
        const RetiredPaths::Fatals fatals{};
        PathSet paths(fatals);
        add_four(paths, devices->front());
        std::array<bool, 5> being_destroyed{};  // by id; destroy_expired() forgets the destructions of paths
                                                // that are gone already
        const auto note_destructions = [&] {
          for (const auto& destruction : paths.retired().destructions())
            being_destroyed[destruction.path] = true;
        };
        g_allocations = g_failed = 0;
        g_fail_count = 1;
        g_fail_at = at;
        for (bool over = false; !over;) try {
            note_destructions();
            paths.retire(4, 0);
            paths.retire(3, 0);
            for (const auto& path : paths) ASSERT_NE(path, nullptr) << "allocation " << at;
            for (const auto& path : paths.retired().retired()) ASSERT_NE(path, nullptr);
            note_destructions();
            paths.retired().destroy_expired(workers, 1, true);
            paths.destroy_all(workers);
            over = true;
          } catch (const std::bad_alloc&) {
            ++failures;
          }
        g_fail_at = 0;
        note_destructions();
        EXPECT_EQ(being_destroyed, (std::array<bool, 5>{false, true, true, true, true}))
            << "allocation " << at;
        EXPECT_EQ(paths.size(), 0u);
        for (const auto& destruction : paths.retired().destructions())
          EXPECT_TRUE(workers.wait(0, *destruction.job));
      }
    }).join();
    EXPECT_GE(failures, 8) << "allocations that putting four paths away takes";
    std::printf("%d allocations failed\n", failures.load());
  });
  EXPECT_EQ(child.wait(60s), 0);
}

TEST(Scarcity, control_connections_that_epoll_does_not_take_are_heard_all_the_same) {
  const auto fabric = make_fabric(2, 2);
  const auto body = [](bool send) {
    return [send](const Link& link) {
      g_epoll_full = true;
      send ? send_all(link, 60) : receive_all(link, 60);
      EXPECT_GE(g_refused, 1);
    };
  };
  const Child receiver = start(fabric, 1, {}, body(false));
  const Child sender = start(fabric, 0, {}, body(true));
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

constexpr size_t kLeft = 1024;  // bytes of a channel that there was

TEST(Scarcity, channels_that_were_closed_leave_next_to_nothing_at_their_listener) {
  if (kSanitizerFactor > 1) GTEST_SKIP() << "another allocator";
  constexpr int kBefore = 20, kAfter = 120;
  const auto fabric = make_fabric(2, 2);
  const Child receiver = start(fabric, 1, {}, [](const Link& link) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    std::array<std::byte, kHandleBytes> handle{};
    auto listening = n->listen(0, handle.data());
    ASSERT_TRUE(listening.ok());
    link.send(handle.data(), handle.size());
    size_t before = 0;
    for (int i = 0; i < kAfter; ++i) {
      if (i == kBefore) before = mallinfo2().uordblks;
      Channel* channel = until_ready([&] { return n->accept(*listening); });
      ASSERT_NE(channel, nullptr);
      EXPECT_TRUE(n->close(channel).ok());
    }
    // What is closed goes when both ends have said so.
    const auto left = [&] { return mallinfo2().uordblks - std::min(before, mallinfo2().uordblks); };
    for (const auto until = Clock::now() + 10s; left() > kLeft * (kAfter - kBefore) && Clock::now() < until;)
      std::this_thread::sleep_for(10ms);
    EXPECT_LE(left() / (kAfter - kBefore), kLeft) << "of heap, for each";
    EXPECT_TRUE(n->close(*listening).ok());
  });
  const Child sender = start(fabric, 0, {}, [](const Link& link) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    std::array<std::byte, kHandleBytes> handle{};
    ASSERT_TRUE(link.receive(handle.data(), handle.size()));
    for (int i = 0; i < kAfter; ++i) {
      auto copy = handle;
      Channel* channel = until_ready([&] { return n->connect(0, copy.data()); });
      ASSERT_NE(channel, nullptr);
      EXPECT_TRUE(n->close(channel).ok());
    }
  });
  relay_handle(receiver, sender);
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

}  // namespace
}  // namespace r2ccl
