// SPDX-License-Identifier: Apache-2.0
// The host engine on channels of the core, over the virtual fabric: one process per rank, each on a node of
// its own. Every element is compared, and all ranks' results with each other's, bit by bit.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "r2ccl/base/clock.h"
#include "r2ccl/collective/host/engine.h"
#include "r2ccl/collective/host/group.h"
#include "r2ccl/tests/testing/faulting_net.h"
#include "r2ccl/tests/testing/traffic.h"

namespace r2ccl::collective {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

/// A rank's engine and group, and buffers that NCCL would have registered.
struct Rank {
  Net* net = nullptr;
  Engine* engine = nullptr;
  GroupListener* listener = nullptr;
  Group* group = nullptr;
  int rank = 0, ranks = 0;

  Rank(const Link& link, int number, int count, int device = 0) : rank(number), ranks(count) {
    net = testing_support::net();
    auto acquired = Engine::acquire(*net);
    EXPECT_TRUE(acquired.ok());
    engine = *acquired;
    std::vector<std::array<std::byte, kHandleBytes>> handles(static_cast<size_t>(ranks));
    auto listening = engine->listen(device, handles[size_t(rank)].data(), 0);
    EXPECT_TRUE(listening.ok()) << listening.error().message;
    listener = *listening;
    link.send(handles[size_t(rank)].data(), kHandleBytes);
    for (auto& handle : handles) EXPECT_TRUE(link.receive(handle.data(), kHandleBytes));
    std::vector<void*> pointers;
    for (auto& handle : handles) pointers.push_back(handle.data());
    auto connected = engine->connect(listener, pointers, rank);
    EXPECT_TRUE(connected.ok()) << connected.error().message;
    if (connected.ok()) group = *connected;
    EXPECT_TRUE(engine->close(listener).ok());
  }
  ~Rank() {
    if (group) {
      EXPECT_TRUE(engine->close(group).ok());
    }
  }
};

/// Hands all ranks' handles on to all of them.
void relay_handles(const std::vector<Child>& children) {
  std::vector<std::byte> all;
  for (const Child& child : children) {
    std::array<std::byte, kHandleBytes> handle{};
    if (child.link.receive(handle.data(), handle.size())) all.insert(all.end(), handle.begin(), handle.end());
  }
  for (const Child& child : children) child.link.send(all.data(), all.size());
}

struct Buffer {
  explicit Buffer(Rank& rank, size_t n) : owner(rank), bytes(n) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto registered = owner.engine->reg(owner.group, data, bytes);
    EXPECT_TRUE(registered.ok());
    registration = *registered;
  }
  ~Buffer() {
    EXPECT_TRUE(owner.engine->dereg(owner.group, registration).ok());
    munmap(data, bytes);
  }
  float* floats() { return static_cast<float*>(data); }
  Rank& owner;
  size_t bytes;
  void* data;
  Registration* registration;
};

float element(int rank, size_t operation, size_t i) {
  return float((size_t(rank) * 7 + operation * 3 + i * 5) % 1021);
}

/// `operations` all-reduces of `count` floats, `open` at a time; returns the number of wrong elements.
size_t all_reduces(Rank& rank, size_t operations, size_t count, size_t open, uint64_t* ns = nullptr) {
  Buffer sent(rank, open * count * 4), received(rank, open * count * 4);
  std::vector<Operation*> running(open, nullptr);
  size_t wrong = 0, begun = 0, ended = 0;
  const uint64_t from = now_ns();
  while (ended < operations) {
    if (begun < operations && begun - ended < open) {
      float* const in = sent.floats() + begun % open * count;
      for (size_t i = 0; i < count; ++i) in[i] = element(rank.rank, begun, i);
      Result<Operation*> operation{nullptr};
      do {
        operation = rank.engine->all_reduce(rank.group, in, received.floats() + begun % open * count, count,
                                            DataType::kFloat32, Reduction::kSum, sent.registration,
                                            received.registration);
        EXPECT_TRUE(operation.ok()) << operation.error().message;
        if (!operation) return count;
      } while (!*operation);
      running[begun++ % open] = *operation;
      continue;
    }
    auto outcome = rank.engine->test(running[ended % open]);
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    if (!outcome) return count;
    if (!outcome->done) continue;
    EXPECT_EQ(outcome->bytes, count * 4);
    const float* const out = received.floats() + ended % open * count;
    for (size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int r = 0; r < rank.ranks; ++r) sum += element(r, ended, i);
      wrong += out[i] != sum;
    }
    ++ended;
  }
  if (ns) *ns = now_ns() - from;
  return wrong;
}

const Environment kMode3{{"R2CC_MODE", "3"}};

TEST(Engine, adds_on_all_ranks_whatever_the_size) {
  constexpr int kRanks = 4;
  const auto fabric = make_fabric(kRanks, 2);
  std::vector<Child> children;
  for (int r = 0; r < kRanks; ++r)
    children.push_back(start(fabric, r, kMode3, [r](const Link& link) {
      Rank rank(link, r, kRanks);
      ASSERT_NE(rank.group, nullptr);
      for (const size_t count : {size_t{1}, size_t{3}, size_t{1000}, size_t{65537}, size_t{1} << 20})
        EXPECT_EQ(all_reduces(rank, 12, count, 8), 0u) << count;
    }));
  relay_handles(children);
  for (const Child& child : children) EXPECT_EQ(child.wait(60s), 0);
}

// The group uses as many NICs as every node offers, with messages as all of them count them.
TEST(Engine, nodes_that_offer_different_numbers_of_nics_run_together) {
  constexpr int kRanks = 3;
  const auto fabric = make_fabric(kRanks, 2);
  std::vector<Child> children;
  for (int r = 0; r < kRanks; ++r) {
    const Environment environment{{"R2CC_MODE", "3"}, {"R2CC_COLLNET_NICS", r == 0 ? "1" : "2"}};
    children.push_back(start(fabric, r, environment, [r](const Link& link) {
      Rank rank(link, r, kRanks);
      ASSERT_NE(rank.group, nullptr);
      EXPECT_EQ(all_reduces(rank, 4, size_t{1} << 22, 2), 0u);
    }));
  }
  relay_handles(children);
  for (const Child& child : children) EXPECT_EQ(child.wait(60s), 0);
}

TEST(Engine, an_algorithm_that_one_node_alone_is_told_to_use_is_refused) {
  constexpr int kRanks = 3;
  const auto fabric = make_fabric(kRanks, 1);
  std::vector<Child> children;
  for (int r = 0; r < kRanks; ++r) {
    const Environment environment{{"R2CC_MODE", "3"}, {"R2CC_ALGORITHM", r == 0 ? "double_tree" : "ring"}};
    children.push_back(start(fabric, r, environment, [r](const Link& link) {
      EXPECT_NONFATAL_FAILURE(Rank(link, r, kRanks), "R2CC_ALGORITHM differs");
    }));
  }
  relay_handles(children);
  for (const Child& child : children) EXPECT_EQ(child.wait(60s), 0);
}

/// Capacities that change with every few operations, as a script says: a plan is used on many operations,
/// then another one, while what the last one had under way is still on the channels.
class ScriptedAgreement final : public PlanAgreement {
 public:
  ScriptedAgreement(size_t ranks, size_t nics) : ranks_(ranks), nics_(nics) {}
  Result<ViewPointer> view_for(uint64_t number) override {
    const uint64_t epoch = number / 10;
    if (!view_ || view_->epoch != epoch) {
      View view{epoch, std::vector<double>(ranks_, 1.0), {}};
      if (epoch % 3 != 0) view.capacities[epoch % ranks_] = epoch % 2 ? 0.5 : 0.75;
      if (nics_ > 1) {
        view.nics.assign(ranks_ * nics_, 1.0);
        if (epoch % 3 != 0) view.nics[epoch % ranks_ * nics_ + epoch % nics_] = epoch % 2 ? 0 : 0.5;
      }
      view_ = std::make_shared<View>(std::move(view));
    }
    return view_;
  }
  void set_capacity(const NodeCapacity& /*capacity*/) override {}
  void count_tuner(std::shared_ptr<OperationCounter> /*counter*/, bool /*leads*/) override {}
  bool settled() const override { return true; }

 private:
  const size_t ranks_, nics_;
  ViewPointer view_;
};

/// A group with scripted capacities; runs operations until the parent says that it is enough, and compares.
/// `late`: it comes to the first operation of the second plan so much later than the others.
void run_scripted(const Link& link, int number, int ranks, std::chrono::milliseconds bound = 20s,
                  std::chrono::milliseconds late = 0s) {
  Net* const net = testing_support::net();
  Group::Setting setting;
  setting.rank = uint32_t(number);
  setting.handles.resize(size_t(ranks));
  setting.connect_bound = bound;
  setting.member.bytes_per_second = 1e9;
  setting.member.reduce_bytes_per_second = 1e10;
  setting.make_agreement = [](uint32_t,
                              std::span<const RankInfo> members) -> Result<std::unique_ptr<PlanAgreement>> {
    return std::unique_ptr<PlanAgreement>(
        std::make_unique<ScriptedAgreement>(members.size(), nics_used(members)));
  };
  auto listening = net->listen(0, setting.handles[size_t(number)].data());
  ASSERT_TRUE(listening.ok());
  auto listener = std::make_shared<OpenListener>(*net, *listening);
  FurtherNic further{1, nullptr, {}};
  auto also = net->listen(1, further.handle.data());
  ASSERT_TRUE(also.ok());
  further.listener = std::make_shared<OpenListener>(*net, *also);
  setting.further.push_back(std::move(further));
  link.send(setting.handles[size_t(number)].data(), kHandleBytes);
  for (Handle& handle : setting.handles) ASSERT_TRUE(link.receive(handle.data(), handle.size()));
  auto connected = Group::connect(*net, listener, setting);
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  Group& group = **connected;

  constexpr size_t kOpenAtOnce = 8, kCount = (1 << 18) + 5;
  std::vector<int32_t> sent(kCount * kOpenAtOnce), received(kCount * kOpenAtOnce);
  Registration* const from = *group.reg(sent.data(), sent.size() * 4);
  Registration* const to = *group.reg(received.data(), received.size() * 4);
  size_t wrong = 0;
  uint64_t operations = 0;
  for (char go = 1; go != 0;) {
    constexpr size_t kRound = 40;
    std::vector<Operation*> running(kOpenAtOnce);
    size_t begun = 0, ended = 0;
    while (ended < kRound) {
      const bool waits = late > 0ms && begun == 10 && ended < 10;
      if (late > 0ms && ended == 10) std::this_thread::sleep_for(std::exchange(late, 0ms));
      if (begun < kRound && begun - ended < kOpenAtOnce && !waits) {
        int32_t* const in = &sent[begun % kOpenAtOnce * kCount];
        for (size_t i = 0; i < kCount; ++i) in[i] = int32_t(i * 3 + size_t(number) * 11 + begun);
        auto operation = group.begin(Collective::kAllReduce, in, &received[begun % kOpenAtOnce * kCount],
                                     kCount, DataType::kInt32, Reduction::kSum, from, to);
        ASSERT_TRUE(operation.ok()) << operation.error().message;
        if (*operation) running[begun++ % kOpenAtOnce] = *operation;
        continue;
      }
      auto outcome = group.test(running[ended % kOpenAtOnce]);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      if (!outcome->done) continue;
      const int32_t* const out = &received[ended % kOpenAtOnce * kCount];
      for (size_t i = 0; i < kCount; ++i) {
        int32_t sum = 0;
        for (int r = 0; r < ranks; ++r) sum += int32_t(i * 3 + size_t(r) * 11 + ended);
        wrong += out[i] != sum;
      }
      ++ended;
      ++operations;
    }
    link.send(&operations, sizeof operations);
    ASSERT_TRUE(link.receive(&go, 1));
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(group.dereg(from).ok());
  EXPECT_TRUE(group.dereg(to).ok());
}

// A rank that is late, with a checkpoint say, is no rank that is gone: the others wait for the channels that
// only the next plan needs, longer than a connection may take.
TEST(Engine, a_new_plan_waits_for_a_rank_that_comes_late) {
  constexpr int kRanks = 3;
  const auto fabric = make_fabric(kRanks, 2);
  std::vector<Child> children;
  for (int r = 0; r < kRanks; ++r)
    children.push_back(start(fabric, r, kMode3, [r](const Link& link) {
      run_scripted(link, r, kRanks, 2s, r == 1 ? std::chrono::milliseconds(5s) : 0ms);
    }));
  relay_handles(children);
  uint64_t operations = 0;
  for (const Child& child : children) EXPECT_TRUE(child.link.receive(&operations, sizeof operations));
  const char stop = 0;
  for (const Child& child : children) child.link.send(&stop, 1);
  for (const Child& child : children) EXPECT_EQ(child.wait(60s), 0);
  EXPECT_EQ(operations, 40u);
}

// Plans change every ten operations, to ones with other channels and other weights of the two NICs, while
// queue pairs break under them.
TEST(Engine, plans_change_and_queue_pairs_break_under_way) {
  constexpr int kRanks = 3, kRounds = 4;
  const auto fabric = make_fabric(kRanks, 2);
  FaultingNet faulting_net(fabric);
  const Environment environment{{"R2CC_MODE", "3"},
                                {"R2CC_FAILBACK_MS", "5"},
                                {"R2CC_FAILBACK_MAX_MS", "20"},
                                {"R2CC_FAIL_BOUND_MS", "5000"}};
  std::vector<Child> children;
  for (int r = 0; r < kRanks; ++r)
    children.push_back(
        start(fabric, r, environment, [r](const Link& link) { run_scripted(link, r, kRanks); }));
  relay_handles(children);
  uint64_t operations = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const Child& child : children) ASSERT_TRUE(child.link.receive(&operations, sizeof operations));
    const char go = round + 1 < kRounds;
    for (const Child& child : children) child.link.send(&go, 1);
    if (go) faulting_net.strike(round % kRanks, round % 2);
  }
  for (const Child& child : children) EXPECT_EQ(child.wait(60s), 0);
  EXPECT_GE(faulting_net.broken(), 1);
  EXPECT_EQ(operations, uint64_t{kRounds} * 40);
}

}  // namespace
}  // namespace r2ccl::collective
