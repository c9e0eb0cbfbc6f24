// SPDX-License-Identifier: Apache-2.0
// The executor over several rails: each of them is a channel of its own, which must be tested whatever the
// others are waiting for. A channel writes its ACKs, and learns of those of its peer, only in tests of its
// own messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "r2ccl/collective/algorithms.h"
#include "r2ccl/collective/host/executor.h"
#include "r2ccl/collective/host/reduce.h"

namespace r2ccl::collective {
namespace {

constexpr size_t kRails = 3;
constexpr size_t kMessage = 1024;

/// One rank's transport: the messages of each end take the rails in turn, and are done when the test says so.
class SteppedTransport final : public Transport {
 public:
  struct Posted {
    size_t rail = 0, bytes = 0;
    bool done = false, reported = false;
    int tests = 0;
  };

  RailTurns::Message next(uint32_t end, size_t chunk, size_t posted, size_t most) override {
    return {turn_[end] % kRails, std::min(chunk - posted, most)};
  }
  Result<void*> isend(uint32_t end, const void*, size_t bytes, Registration*) override {
    return post(end, bytes);
  }
  Result<void*> irecv(uint32_t end, void*, size_t bytes, Registration*) override { return post(end, bytes); }
  Result<TestOutcome> test(void* token) override {
    Posted& posted = *static_cast<Posted*>(token);
    EXPECT_FALSE(posted.reported) << "the token is gone";
    ++posted.tests;
    posted.reported = posted.done;
    return posted.done ? TestOutcome{true, posted.bytes} : TestOutcome{};
  }
  Result<StagingMemory> staging(size_t bytes) override {
    memory_.push_back(std::make_unique<std::byte[]>(bytes));
    return StagingMemory{memory_.back().get(), nullptr};
  }
  std::vector<std::unique_ptr<Posted>> posted;  // in order

 private:
  Result<void*> post(uint32_t end, size_t bytes) {
    posted.push_back(std::make_unique<Posted>(Posted{turn_[end]++ % kRails, bytes}));
    return static_cast<void*>(posted.back().get());
  }
  std::map<uint32_t, size_t> turn_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

/// One of two ranks in a broadcast of one chunk of `messages` messages.
class OneRank {
 public:
  OneRank(uint32_t rank, size_t messages)
      : data_(messages * kMessage), executor_(transport_, {.message_bytes = kMessage}) {
    auto program = std::make_shared<Program>(chain_broadcast(natural_order(2), 1), rank,
                                             [](uint32_t, bool sends, uint32_t) { return uint32_t(sends); });
    Work work;
    work.ranges = program->ranges(data_.size());
    work.program = std::move(program);
    work.element_bytes = 1;
    work.own.base = reinterpret_cast<uintptr_t>(data_.data());
    work.result = work.others = work.own;
    run_ = executor_.begin(std::move(work));
  }
  void poll() { ASSERT_TRUE(executor_.poll().ok()); }
  bool finished() const { return executor_.finished(run_); }
  SteppedTransport::Posted& message(size_t number) { return *transport_.posted[number]; }
  size_t posted() const { return transport_.posted.size(); }

 private:
  std::vector<std::byte> data_;
  SteppedTransport transport_;
  Executor executor_;
  Executor::Run* run_ = nullptr;
};

class ExecutorRails : public testing::TestWithParam<uint32_t> {};

TEST_P(ExecutorRails, tests_the_oldest_message_of_each_rail) {
  OneRank rank(GetParam(), 6);
  rank.poll();
  ASSERT_EQ(rank.posted(), 6u);
  for (int i = 0; i < 5; ++i) rank.poll();
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(rank.message(i).tests, i < kRails ? 5 : 0) << i;
}

TEST_P(ExecutorRails, a_late_rail_hides_nothing_of_the_others) {
  OneRank rank(GetParam(), 6);
  rank.poll();
  ASSERT_EQ(rank.posted(), 6u);
  for (const size_t done : {1, 2, 4, 5}) rank.message(done).done = true;
  rank.poll();
  for (const size_t done : {1, 2, 4, 5}) EXPECT_TRUE(rank.message(done).reported) << done;
  EXPECT_FALSE(rank.finished());
  rank.message(0).done = rank.message(3).done = true;
  rank.poll();
  EXPECT_TRUE(rank.finished());
}

INSTANTIATE_TEST_SUITE_P(SendingAndReceiving, ExecutorRails, testing::Values(0, 1));

}  // namespace
}  // namespace r2ccl::collective
