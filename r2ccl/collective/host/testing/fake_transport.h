// SPDX-License-Identifier: Apache-2.0
// Test support: channels within one process, for all ranks of a group. A message moves some ticks after both of
// its ends have been posted, a seed says how many; channels overtake each other, messages of one channel do
// not. No message is bigger or smaller than what its receiver has room for, or the test ends.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "r2ccl/collective/host/transport.h"

namespace r2ccl::collective::testing_support {

class FakeFabric {
 public:
  FakeFabric(uint32_t ranks, uint32_t seed, int most_delay) : ranks_(ranks), random_(seed), most_delay_(most_delay) {}

  struct Posted {
    void* data = nullptr;
    size_t bytes = 0;
    bool done = false;
    size_t got = 0;
  };
  struct Pipe {
    std::deque<Posted*> sends, receives;
    int delay = 0;
  };

  /// Time passes: what has been posted at both ends for long enough moves. True: something is under way.
  bool tick() {
    bool busy = false;
    for (auto& [whose, pipe] : pipes_) {
      if (pipe.sends.empty() || pipe.receives.empty()) continue;
      busy = true;
      if (pipe.delay-- > 0) continue;
      pipe.delay = most_delay_ > 0 ? int(random_() % uint32_t(most_delay_)) : 0;
      Posted& from = *pipe.sends.front();
      Posted& to = *pipe.receives.front();
      EXPECT_EQ(from.bytes, to.bytes);
      std::memcpy(to.data, from.data, std::min(from.bytes, to.bytes));
      if (corrupt_ > 0 && --corrupt_ == 0) static_cast<uint8_t*>(to.data)[0] ^= 1;
      from.done = to.done = true;
      to.got = from.bytes;
      pipe.sends.pop_front();
      pipe.receives.pop_front();
      ++moved_;
    }
    return busy;
  }
  /// One bit of the n-th message from now on arrives wrong.
  void corrupt(int n) { corrupt_ = n; }
  /// Every call on it fails from now on.
  void fail(uint32_t rank) { failed_.push_back(rank); }
  bool failed(uint32_t rank) const { return std::find(failed_.begin(), failed_.end(), rank) != failed_.end(); }
  Pipe& pipe(uint32_t from, uint32_t to, uint32_t ordinal) { return pipes_[{from, to, ordinal}]; }
  uint32_t ranks() const { return ranks_; }
  uint64_t moved() const { return moved_; }
  bool refuses() { return most_delay_ > 0 && random_() % 7 == 0; }

 private:
  uint32_t ranks_;
  std::minstd_rand random_;
  int most_delay_;
  int corrupt_ = 0;
  uint64_t moved_ = 0;
  std::vector<uint32_t> failed_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Pipe> pipes_;
};

class FakeTransport final : public Transport {
 public:
  FakeTransport(FakeFabric& fabric, uint32_t rank) : fabric_(fabric), rank_(rank) {}

  uint32_t end(uint32_t peer, bool sends, uint32_t ordinal) {
    const auto [known, fresh] = numbers_.try_emplace({peer, sends, ordinal}, uint32_t(ends_.size()));
    if (fresh) ends_.push_back(sends ? &fabric_.pipe(rank_, peer, ordinal) : &fabric_.pipe(peer, rank_, ordinal));
    return known->second;
  }
  Result<void*> isend(uint32_t end, const void* data, size_t bytes, Registration* /*registration*/) override {
    return post(ends_[end]->sends, const_cast<void*>(data), bytes, true, *ends_[end]);
  }
  Result<void*> irecv(uint32_t end, void* data, size_t bytes, Registration* /*registration*/) override {
    return post(ends_[end]->receives, data, bytes, false, *ends_[end]);
  }
  Result<TestOutcome> test(void* message) override {
    if (fabric_.failed(rank_)) return Error{ErrorCode::kAllPathsDown, "the fake transport was told to fail"};
    auto* const posted = static_cast<FakeFabric::Posted*>(message);
    if (!posted->done) return TestOutcome{};
    const TestOutcome outcome{true, posted->got};
    std::erase_if(open_, [posted](const auto& held) { return held.get() == posted; });
    return outcome;
  }
  Result<StagingMemory> staging(size_t bytes) override {
    staging_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return StagingMemory{staging_.back().get(), nullptr};
  }
  size_t open() const { return open_.size(); }

 private:
  Result<void*> post(std::deque<FakeFabric::Posted*>& queue, void* data, size_t bytes, bool sends,
                     FakeFabric::Pipe& pipe) {
    if (fabric_.failed(rank_)) return Error{ErrorCode::kAllPathsDown, "the fake transport was told to fail"};
    EXPECT_GT(bytes, 0u);
    void* const not_now = nullptr;
    // As a channel of the core: no send before its receive.
    if ((sends && pipe.receives.size() <= pipe.sends.size()) || queue.size() >= kMostMessages || fabric_.refuses())
      return not_now;
    open_.push_back(std::make_unique<FakeFabric::Posted>());
    *open_.back() = {data, bytes, false, 0};
    queue.push_back(open_.back().get());
    return static_cast<void*>(open_.back().get());
  }

  FakeFabric& fabric_;
  const uint32_t rank_;
  std::map<std::tuple<uint32_t, bool, uint32_t>, uint32_t> numbers_;
  std::vector<FakeFabric::Pipe*> ends_;
  std::vector<std::unique_ptr<FakeFabric::Posted>> open_;
  std::vector<std::unique_ptr<std::byte[]>> staging_;
};

}  // namespace r2ccl::collective::testing_support
