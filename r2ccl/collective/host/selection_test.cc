// SPDX-License-Identifier: Apache-2.0
// What the tuners of three nodes answer while capacities change: the same for each operation, CollNet only
// where it is worth it, NCCL's own choice wherever something is not known.
#include "r2ccl/collective/host/selection.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "r2ccl/collective/host/node_counter.h"
#include "r2ccl/collective/host/testing/traced.h"

namespace r2ccl::collective {
namespace {

constexpr uint64_t kLarge = 64 << 20, kSmall = 4096;

Advice advise(const View& view, uint64_t bytes) {
  const double least = *std::min_element(view.capacities.begin(), view.capacities.end());
  return {least < 0.9 && bytes >= (1 << 20), "a node carries " + std::to_string(least)};
}

// The registry of a process knows one node: here communicators stand for nodes.
uint64_t communicator(int node) { return 0xc0ffee00 + uint64_t(node); }

Selection::Setting setting(int node, uint64_t nodes, uint64_t ranks) {
  Selection::Setting made;
  made.communicator = communicator(node);
  made.ranks = ranks;
  made.nodes = nodes;
  made.node = "selection_test/" + std::to_string(getpid());
  return made;
}

/// Notes what it is told.
class Noted final : public PlanAgreement {
 public:
  Result<ViewPointer> view_for(uint64_t) override { return ViewPointer{}; }
  void set_capacity(const NodeCapacity& now) override { capacity = now.whole; }
  void count_tuner(std::shared_ptr<OperationCounter> by, bool leads_now) override {
    counter = std::move(by);
    leads = leads_now;
  }
  uint32_t group_number() const override { return 7; }
  bool settled() const override { return true; }

  double capacity = -1;
  std::shared_ptr<OperationCounter> counter;
  bool leads = false;
};

ViewPointer degraded(uint64_t epoch, double capacity) {
  auto view = std::make_shared<View>();
  view->epoch = epoch;
  view->capacities = {1, 1, capacity};
  return view;
}

TEST(Selection, what_cannot_be_chosen_is_left_as_it_is) {
  Selection selection(setting(0, 3, 3));
  EXPECT_EQ(selection.choose(true, kLarge, false, true).value(), Choice::kAsIs);
  EXPECT_EQ(selection.choose(true, kLarge, true, false).value(), Choice::kAsIs);
  EXPECT_EQ(selection.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
  EXPECT_EQ(selection.choose(false, kLarge, true, true).value(), Choice::kWithoutCollNet);
  Selection one_node(setting(1, 1, 8));
  EXPECT_EQ(one_node.choose(true, kLarge, true, true).value(), Choice::kAsIs);
}

TEST(Selection, the_least_size_from_which_on_all_are_worth_it) {
  std::string why;
  EXPECT_EQ(least_bytes_worth_it(advise, *degraded(1, 0.5), why), uint64_t{1} << 20);
  EXPECT_EQ(why.substr(0, 14), "a node carries");
  EXPECT_EQ(least_bytes_worth_it(advise, *degraded(1, 1), why), kNever);
  const Advise gap = [](const View&, uint64_t bytes) {
    return Advice{bytes != 8 << 20, std::to_string(bytes)};
  };
  EXPECT_EQ(least_bytes_worth_it(gap, *degraded(1, 1), why), uint64_t{16} << 20);
  EXPECT_EQ(why, std::to_string(16 << 20));
  EXPECT_EQ(least_bytes_worth_it(nullptr, *degraded(1, 1), why), kNever);
}

TEST(Selection, follows_the_group_of_its_communicator) {
  Noted agreement, stranger;
  const GroupOffer other(
      communicator(5), 3, stranger, [] { return 1.0; }, advise);
  const GroupOffer offer(
      communicator(0), 3, agreement, [] { return 0.75; }, advise);
  EXPECT_EQ(agreement.counter, nullptr);
  {
    Selection selection(setting(0, 3, 3));
    ASSERT_NE(agreement.counter, nullptr);
    EXPECT_TRUE(agreement.leads);
    EXPECT_EQ(stranger.counter, nullptr);
    EXPECT_EQ(selection.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
    EXPECT_EQ(agreement.capacity, 0.75);  // asked although nothing goes over CollNet
    ASSERT_EQ(agreement.counter->hold(2), 3u);
    EXPECT_EQ(selection.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
    agreement.counter->resume(3, degraded(1, 0.75));
    EXPECT_EQ(selection.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
    EXPECT_EQ(selection.choose(true, kLarge, true, true).value(), Choice::kCollNet);
    EXPECT_EQ(selection.choose(true, kSmall, true, true).value(), Choice::kWithoutCollNet);
    EXPECT_EQ(selection.choose(false, kLarge, true, true).value(), Choice::kWithoutCollNet);
    EXPECT_EQ(selection.choose(true, kLarge, true, true).value(), Choice::kCollNet);
    const uint64_t point = agreement.counter->hold(0).value();
    EXPECT_EQ(point, 6u);  // calls that decide nothing are not counted
    agreement.counter->resume(point, degraded(2, 1));
    EXPECT_EQ(selection.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
  }
  EXPECT_EQ(agreement.counter, nullptr);
}

TEST(Selection, the_trace_says_when_all_is_left_to_nccl) {
  Noted agreement;
  const GroupOffer offer(communicator(0), 3, agreement, nullptr, advise);
  Selection selection(setting(0, 3, 3));
  std::vector<trace::Event> events;
  traced().drain(events);
  events.clear();
  agreement.counter->resume(agreement.counter->hold(0).value(), degraded(1, 0.75));  // the engine says what it runs
  agreement.counter->resume(agreement.counter->hold(0).value(), degraded(2, 1));
  traced().drain(events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, trace::EventType::kAlgorithmChosen);
  EXPECT_EQ(events[0].channel, agreement.group_number());
  EXPECT_EQ(events[0].a, 2u);
  EXPECT_EQ(events[0].b, 0u);
  EXPECT_EQ(trace::PlannedAlgorithm(events[0].c), trace::PlannedAlgorithm::kNccl);
}

TEST(Selection, an_agreement_that_fails_is_an_error) {
  Noted agreement;
  const GroupOffer offer(communicator(0), 3, agreement, nullptr, advise);
  Selection selection(setting(0, 3, 3));
  agreement.counter->hold(0);
  agreement.counter->fail(Error{ErrorCode::kPeerGone, "rank 0 is gone"});
  EXPECT_EQ(selection.choose(true, kLarge, true, true).error().code, ErrorCode::kPeerGone);
}

TEST(Selection, before_commids_only_a_single_waiting_group_is_followed) {
  Selection::Setting unnamed = setting(0, 3, 3);
  unnamed.communicator = 0;
  Noted agreement, second, third;
  {
    const GroupOffer offer(0, 3, agreement, nullptr, advise);
    Selection its(unnamed);
    EXPECT_NE(agreement.counter, nullptr);
    const GroupOffer next(0, 3, second, nullptr, advise);
    Selection of_next(unnamed);
    EXPECT_NE(second.counter, nullptr);
    EXPECT_NE(second.counter, agreement.counter);
    Selection without(unnamed);  // a communicator that has no group of its own
    const GroupOffer late(0, 3, third, nullptr, advise);
    EXPECT_EQ(third.counter, nullptr);
    EXPECT_EQ(without.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
  }
  EXPECT_EQ(agreement.counter, nullptr);
  const GroupOffer one(0, 3, agreement, nullptr, advise), two(0, 3, second, nullptr, advise);
  Selection ambiguous(unnamed);
  EXPECT_EQ(agreement.counter, nullptr);
  EXPECT_EQ(second.counter, nullptr);
}

TEST(Selection, all_ranks_of_a_node_count) {
  Noted first, second;
  const GroupOffer one(communicator(0), 2, first, nullptr, advise),
      two(communicator(0), 2, second, nullptr, advise);
  Selection left(setting(0, 2, 4)), right(setting(0, 2, 4));
  uint64_t operations = 0;
  while (!first.counter || !second.counter) {
    EXPECT_EQ(left.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
    EXPECT_EQ(right.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
    ASSERT_LT(++operations, 100u);
  }
  EXPECT_NE(first.leads, second.leads);  // of two groups of a communicator, one decides
  EXPECT_EQ(left.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
  Noted& leader = first.leads ? first : second;
  const uint64_t point = leader.counter->hold(0).value();
  EXPECT_EQ(point, operations + 1);
  leader.counter->resume(point, degraded(1, 0.5));
  EXPECT_EQ(right.choose(true, kLarge, true, true).value(), Choice::kWithoutCollNet);
  EXPECT_EQ(left.choose(true, kLarge, true, true).value(), Choice::kCollNet);
  EXPECT_EQ(right.choose(true, kLarge, true, true).value(), Choice::kCollNet);
}

TEST(Selection, three_nodes_choose_alike) {
  PlanAgreement::Settings settings;
  settings.interface.names = "lo";
  std::vector<std::unique_ptr<PlanAgreement::Listener>> listeners;
  for (int i = 0; i < 3; ++i) listeners.push_back(std::move(PlanAgreement::listen(settings).value()));
  const auto hub = listeners[0]->address();
  std::array<std::atomic<double>, 3> capacities{1.0, 1.0, 1.0};
  std::vector<std::unique_ptr<PlanAgreement>> agreements;
  std::vector<std::unique_ptr<GroupOffer>> offers;
  for (int i = 0; i < 3; ++i) {
    auto joined = PlanAgreement::join(std::move(listeners[size_t(i)]), i, 3, hub, settings);
    agreements.push_back(std::move(joined.value()));
    offers.push_back(std::make_unique<GroupOffer>(
        communicator(i), 3, *agreements.back(), [&capacities, i] { return capacities[size_t(i)].load(); },
        advise));
  }
  std::atomic<bool> stop{false};
  std::array<std::atomic<uint64_t>, 3> progress{};
  std::array<std::atomic<int>, 3> last{};
  std::array<std::vector<Choice>, 3> choices;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      Selection selection(setting(int(i), 3, 3));
      for (uint64_t number = 0; !stop; ++number) {
        for (const auto& other : progress)
          while (other + 32 < number && !stop) std::this_thread::yield();
        auto choice = selection.choose(true, number % 3 == 0 ? kSmall : kLarge, true, true);
        ASSERT_TRUE(choice.ok());
        choices[i].push_back(*choice);
        if (number % 3 != 0) last[i] = int(*choice);
        progress[i] = number;
      }
    });
  const auto wait_for = [&](Choice choice) {
    for (const auto& one : last)
      while (one != int(choice)) std::this_thread::yield();
  };
  wait_for(Choice::kWithoutCollNet);
  for (int round = 0; round < 3; ++round) {
    capacities[size_t(round)] = 0.5;
    wait_for(Choice::kCollNet);
    capacities[size_t(round)] = 1;
    wait_for(Choice::kWithoutCollNet);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  const size_t all = std::min({choices[0].size(), choices[1].size(), choices[2].size()});
  for (size_t number = 0; number < all; ++number)
    for (size_t i = 1; i < 3; ++i)
      ASSERT_EQ(choices[i][number], choices[0][number]) << "operation " << number;
  for (size_t number = 0; number < all; number += 3) ASSERT_NE(choices[0][number], Choice::kCollNet);
}

}  // namespace
}  // namespace r2ccl::collective
