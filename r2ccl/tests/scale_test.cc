// SPDX-License-Identifier: Apache-2.0
// A thousand channels from one process to another: what each costs, that none costs a thread, that all of
// them together cost next to nothing while nothing is sent, and that each carries a message. How long a
// connection takes is printed, not asserted: it is the machine's business.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include "r2ccl/path/path.h"
#include "r2ccl/tests/testing/cost.h"
#include "r2ccl/tests/testing/sanitizer.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kFew = 8, kStandbys = 32;                   // R2CC_STANDBYS
constexpr int kMany = kSanitizerFactor > 1 ? 250 : 1000;  // or minutes go by
constexpr int kNics = 2;
constexpr size_t kMessageBytes = 4096;
constexpr auto kIdle = 4s;
constexpr double kIdleBound = 4 * kSanitizerFactor;  // times reference_visit_s() for each check of a channel
constexpr int kChecksPerS = 10;  // of each end: the service thread's, r2ccl/service/service.cc

// The budget of an end of a channel; budget_test has the same for 48 of them.
constexpr long kBudgetKib = 512;
constexpr size_t kPinnedBytes[] = {16 << 10, 80 << 10};  // of a receiving and a sending end

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// CPU seconds of a visit to one of a thousand places in memory: a lock, the time, and 32 cache lines that
/// are pages apart. So fast is this machine now; what a check of an idle channel may cost is a multiple of
/// it.
double reference_visit_s() {
  constexpr size_t kPlaces = 1000, kLines = 32, kApart = 4096 + 64, kRounds = 5;
  static std::vector<uint8_t> memory(kPlaces * kLines * kApart, 1);
  static std::vector<std::mutex> locks(kPlaces);
  const auto cpu_s = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
  };
  const double begin = cpu_s();
  for (size_t round = 0; round < kRounds; ++round)
    for (size_t place = 0; place < kPlaces; ++place) {
      const std::lock_guard lock(locks[place]);
      const uint8_t now = uint8_t(Clock::now().time_since_epoch().count());
      for (size_t line = 0; line < kLines; ++line) memory[(place * kLines + line) * kApart] += now;
    }
  return (cpu_s() - begin) / (kRounds * kPlaces);
}

// A message on every channel, all of them under way at the same time. Every byte is compared.
class Traffic {
 public:
  Traffic(Net& net, const std::vector<Channel*>& channels)
      : net_(net), channels_(channels), bytes_(channels.size() * kMessageBytes) {
    data_ = static_cast<uint8_t*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
  }
  void run(bool send) {
    std::vector<Registration*> registrations;
    for (Channel* channel : channels_) {
      auto registration = net_.reg(channel, data_, bytes_);
      ASSERT_TRUE(registration.ok()) << registration.error().message;
      registrations.push_back(*registration);
    }
    std::vector<Request*> requests(channels_.size(), nullptr);
    for (size_t i = 0; send && i < channels_.size(); ++i)
      fill_message(i, data_ + i * kMessageBytes, kMessageBytes);
    const auto until = Clock::now() + 100s;
    for (size_t open = 0, done = 0; done < channels_.size();) {
      ASSERT_LT(Clock::now(), until) << done << " of " << channels_.size() << " messages are done";
      for (size_t i = 0; i < channels_.size(); ++i) {
        if (i == open) {
          uint8_t* const at = data_ + i * kMessageBytes;
          auto request = send ? net_.isend(channels_[i], at, kMessageBytes, registrations[i])
                              : net_.irecv(channels_[i], at, kMessageBytes, registrations[i]);
          ASSERT_TRUE(request.ok()) << request.error().message;
          requests[i] = *request;
          if (requests[i]) ++open;
        }
        if (!requests[i]) continue;
        auto outcome = net_.test(requests[i]);
        ASSERT_TRUE(outcome.ok()) << "channel " << i << ": " << outcome.error().message;
        if (!outcome->done) continue;
        ASSERT_EQ(outcome->bytes, kMessageBytes);
        requests[i] = nullptr;
        ++done;
      }
    }
    std::vector<uint8_t> wanted(kMessageBytes);
    for (size_t i = 0; !send && i < channels_.size(); ++i) {
      fill_message(i, wanted.data(), kMessageBytes);
      ASSERT_EQ(std::memcmp(data_ + i * kMessageBytes, wanted.data(), kMessageBytes), 0)
          << "message " << i << " of " << kMessageBytes << " bytes";
    }
    for (size_t i = 0; i < channels_.size(); ++i)
      ASSERT_TRUE(net_.dereg(channels_[i], registrations[i]).ok());
    munmap(data_, bytes_);
  }

 private:
  Net& net_;
  const std::vector<Channel*>& channels_;
  size_t bytes_;
  uint8_t* data_ = nullptr;
};

void close_all(Net& net, const std::vector<Channel*>& channels) {
  for (Channel* channel : channels) EXPECT_TRUE(net.close(channel).ok());
}

void receiver_body(const Link& link) {
  Net* n = net();
  ASSERT_NE(n, nullptr);
  std::vector<Channel*> channels;
  for (int i = 0; i < kMany; ++i) {
    if (i == kFew) {
      say(link);
      wait_for_word(link);
    }
    Listener* listener = nullptr;
    channels.push_back(accept_one(*n, i % kNics, link, listener));
    ASSERT_NE(channels.back(), nullptr) << "channel " << i;
    EXPECT_TRUE(n->close(listener).ok());
  }
  say(link);
  wait_for_word(link);
  Traffic(*n, channels).run(false);
  ASSERT_FALSE(testing::Test::HasFailure());
  say(link);
  wait_for_word(link);
  close_all(*n, channels);
  say(link);
  wait_for_word(link);
}

void sender_body(const Link& link) {
  Net* n = net();
  ASSERT_NE(n, nullptr);
  std::vector<Channel*> channels;
  std::vector<double>
      took;  // seconds of a connection, from connect() with the handle at hand until it is ready
  for (int i = 0; i < kMany; ++i) {
    if (i == kFew) {
      say(link);
      wait_for_word(link);
    }
    std::array<std::byte, kHandleBytes> handle{};
    ASSERT_TRUE(link.receive(handle.data(), handle.size()));
    const auto start = Clock::now();
    channels.push_back(until_ready([&] { return n->connect(i % kNics, handle.data()); }));
    ASSERT_NE(channels.back(), nullptr) << "channel " << i;
    took.push_back(seconds_since(start));
  }
  say(link);
  link.send(took.data(), took.size() * sizeof took[0]);
  wait_for_word(link);
  Traffic(*n, channels).run(true);
  ASSERT_FALSE(testing::Test::HasFailure());
  say(link);
  wait_for_word(link);
  close_all(*n, channels);
  say(link);
  wait_for_word(link);
}

TEST(Scale, a_thousand_channels_of_a_process) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_cur < 4096) {  // a connection is a socket
    if (files.rlim_max < 4096) GTEST_SKIP() << "no process may open 4096 files here";
    files.rlim_cur = 4096;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  }
  const auto fabric = make_fabric(2, kNics);
  const Child receiver = start(fabric, 1, {}, receiver_body);
  const Child sender = start(fabric, 0, {}, sender_body);
  const Child* const both[] = {&sender, &receiver};
  const auto words = [&] {
    for (const Child* child : both) wait_for_word(child->link);
  };
  const auto go = [&] {
    for (const Child* child : both) say(child->link);
  };
  const auto settled = [&](int channels) {
    const size_t wanted = queue_pairs_of_both(channels, kStandbys);
    for (const auto until = Clock::now() + 60s; fabric.usage().queue_pairs != wanted && Clock::now() < until;)
      std::this_thread::sleep_for(20ms);
    EXPECT_EQ(fabric.usage().queue_pairs, wanted);
    EXPECT_LE(fabric.usage().memory_regions, wanted / 2) << "one region a path";
  };

  for (int i = 0; i < kFew; ++i) relay_handle(receiver, sender);
  words();
  settled(kFew);
  if (HasFailure()) return;
  const Cost few[] = {Cost::of(sender.pid), Cost::of(receiver.pid)};
  go();
  const auto set_up = Clock::now();
  for (int i = kFew; i < kMany; ++i) relay_handle(receiver, sender);
  words();
  std::vector<double> took(kMany);
  ASSERT_TRUE(sender.link.receive(took.data(), took.size() * sizeof took[0]));
  const double all_took = seconds_since(set_up);
  settled(kMany);
  if (HasFailure()) return;

  const Cost many[] = {Cost::of(sender.pid), Cost::of(receiver.pid)};
  // A shared machine disturbs: the quietest of three looks counts, beside what the machine did in it.
  double idle = 1, device = 1, visits = 1e9;
  reference_visit_s();  // its memory is there now
  for (int look = 0; look < 3 && visits > kIdleBound; ++look) {
    const Cost before[] = {Cost::of(sender.pid), Cost::of(receiver.pid)};
    const double at_first_s = reference_visit_s();
    const auto from = Clock::now();
    std::this_thread::sleep_for(kIdle);
    const Cost after[] = {Cost::of(sender.pid), Cost::of(receiver.pid)};
    const double lasted = seconds_since(from);
    const double visit_s = (at_first_s + reference_visit_s()) / 2;
    const auto both_of = [&](double Cost::*what) {
      return (after[0].*what - before[0].*what + after[1].*what - before[1].*what) / lasted;
    };
    idle = std::min(idle, both_of(&Cost::cpu_seconds));
    device = std::min(device, both_of(&Cost::device_cpu_seconds));
    visits = std::min(visits, both_of(&Cost::cpu_seconds) / (2 * kMany * kChecksPerS) / visit_s);
  }
  EXPECT_LE(visits, kIdleBound) << "reference visits for each check of an idle channel";
  for (int i = 0; i < 2; ++i) {
    const char* const who = i == 0 ? "sender" : "receiver";
    const long own = (many[i].own_kib - few[i].own_kib) / (kMany - kFew);
    const long shared = (many[i].shared_kib - few[i].shared_kib) / (kMany - kFew);
    EXPECT_GT(few[i].own_kib, 0);
    EXPECT_LE(own + shared, kBudgetKib * kSanitizerFactor)
        << who << ": KiB a channel end, the queues of the virtual HCA included";
    EXPECT_EQ(many[i].threads, few[i].threads) << who << ": no thread belongs to a channel";
    std::printf("%s: a channel end: %ld KiB, and %ld KiB shared with the fabric; %d threads\n", who, own,
                shared, many[i].threads);
  }
  for (const bool sends : {false, true})
    EXPECT_LE(channel_memory_bytes(sends), kPinnedBytes[sends]) << "of each path, pinned for the peer";
  const auto median_of = [](std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return 1e3 * times[times.size() / 2];
  };
  const double first = median_of({took.begin(), took.begin() + 100});
  const double last = median_of({took.end() - 100, took.end()});
  std::sort(took.begin(), took.end());
  std::printf(
      "idle: %.2f %% of a CPU, both processes together, and %.2f %% for the virtual HCA; a check costs as "
      "much as %.2f visits\n"
      "pinned for the peer: %zu bytes a path; %zu queue pairs in both processes\n"
      "a connection takes %.2f ms (median), %.2f ms (p99); the first hundred %.2f ms, the last %.2f ms; %d "
      "one after the other took %.1f s\n",
      100 * idle, 100 * device, visits, channel_memory_bytes(true), fabric.usage().queue_pairs,
      1e3 * took[took.size() / 2], 1e3 * took[took.size() * 99 / 100], first, last, kMany - kFew, all_took);

  const auto traffic = Clock::now();
  go();
  words();
  const double traffic_took = seconds_since(traffic);
  const auto closing = Clock::now();
  go();
  words();
  std::printf("a message of %zu bytes over each: %.2f s; closing all of them: %.2f s\n", kMessageBytes,
              traffic_took, seconds_since(closing));
  const auto any_left = [&] {  // what is behind queue pairs goes a while after them
    const auto usage = fabric.usage();
    return usage.queue_pairs + usage.completion_queues + usage.memory_regions != 0;
  };
  for (const auto until = Clock::now() + 30s; any_left() && Clock::now() < until;)
    std::this_thread::sleep_for(20ms);
  EXPECT_EQ(fabric.usage().queue_pairs, 0u) << "channels that were closed leave nothing";
  EXPECT_EQ(fabric.usage().completion_queues, 0u);
  EXPECT_EQ(fabric.usage().memory_regions, 0u);
  go();
  EXPECT_EQ(sender.wait(60s), 0);
  EXPECT_EQ(receiver.wait(60s), 0);
}

}  // namespace
}  // namespace r2ccl
