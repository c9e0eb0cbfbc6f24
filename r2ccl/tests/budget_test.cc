// What connections cost a process: queue pairs, memory, threads, CPU while nothing happens. The README states
// these numbers; here they are upper bounds.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <string>

#include "r2ccl/channel/path.h"
#include "r2ccl/tests/traffic.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

constexpr int kFew = 8, kMany = 48, kStandbys = 32;  // R2CC_STANDBYS

long kib_of(const char* what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(what, 0) == 0) return std::stol(line.substr(line.find(':') + 1));
  return -1;
}

int threads() {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) return -1;
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void say(const Link& link) { link.send("!", 1); }
void wait_for_word(const Link& link) {
  char word;
  EXPECT_TRUE(link.receive(&word, 1));
}

// One process sends over many channels to another. All cost is counted in the sender; the receiver mirrors
// it.
TEST(Budget, of_a_process_with_many_channels) {
  const auto fabric = make_fabric(2, 2);
  // QPs of both processes: an active path and, for the first of them, a standby; each with a probe's pair.
  const auto queue_pairs = [](int channels) {
    return size_t(2 * 2 * (channels + std::min(channels, kStandbys)));
  };
  const auto settled = [&](int channels) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (fabric.usage().queue_pairs != queue_pairs(channels) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(20ms);
    EXPECT_EQ(fabric.usage().queue_pairs, queue_pairs(channels));
    EXPECT_LE(fabric.usage().memory_regions, queue_pairs(channels) / 2) << "one region a path";
  };
  const Child receiver = start(fabric, 1, {}, [&](const Link& link) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    for (int i = 0; i < kMany; ++i) {
      Listener* listener = nullptr;
      ASSERT_NE(accept_one(*n, i % 2, link, listener), nullptr);
    }
    wait_for_word(link);
  });
  const Child sender = start(fabric, 0, {}, [&](const Link& link) {
    Net* n = net();
    ASSERT_NE(n, nullptr);
    const auto connect_up_to = [&](int from, int to) {
      for (int i = from; i < to; ++i) ASSERT_NE(connect_one(*n, i % 2, link), nullptr);
    };
    connect_up_to(0, kFew);
    settled(kFew);
    const long few_own = kib_of("RssAnon"), few_rings = kib_of("RssShmem");
    const int threads_with_few = threads();
    connect_up_to(kFew, kMany);
    settled(kMany);
    const long own = (kib_of("RssAnon") - few_own) / (kMany - kFew);
    const long rings = (kib_of("RssShmem") - few_rings) / (kMany - kFew);
    EXPECT_GT(few_own, 0);
    EXPECT_LE(own + rings, 512) << "KiB a channel end, the queues of the virtual HCA included";
    EXPECT_EQ(threads(), threads_with_few) << "no thread belongs to a channel";
    const double before = cpu_seconds();
    std::this_thread::sleep_for(4s);
    const double idle = cpu_seconds() - before;
    EXPECT_LE(idle, 0.2) << "seconds of CPU in four seconds without traffic";
    std::printf(
        "a channel end: %ld KiB, and %ld KiB shared with the fabric; pinned for the peer: %zu bytes; %d "
        "threads; idle: "
        "%.2f %% of a CPU\n",
        own, rings, kChannelMemoryBytes, threads(), idle / 4 * 100);
    say(link);
  });
  for (int i = 0; i < kMany; ++i) relay_handle(receiver, sender);
  wait_for_word(sender.link);
  say(receiver.link);
  EXPECT_EQ(sender.wait(120s), 0);
  EXPECT_EQ(receiver.wait(120s), 0);
}

}  // namespace
}  // namespace r2ccl
