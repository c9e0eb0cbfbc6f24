// SPDX-License-Identifier: Apache-2.0
// Several ranks in one process: each operation has one view on all ranks, and the newest capacities arrive
// everywhere. What fails meanwhile: plan_agreement_faults_test.cc.
#include "r2ccl/collective/host/plan_agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "r2ccl/base/log.h"
#include "r2ccl/collective/host/testing/agreeing_ranks.h"
#include "r2ccl/collective/host/testing/traced.h"

namespace r2ccl::collective {
namespace {

using namespace std::chrono_literals;
using testing_support::Ranks;

TEST(PlanAgreement, one_rank_agrees_with_itself) {
  std::vector<trace::Event> before, events;
  traced().drain(before);
  Ranks ranks(1);
  ranks.join();
  ranks.run();
  ranks[0].set_capacity(0.5);
  ranks.wait_for({0.5});
  ranks.stop();
  ranks.leave(0);  // joins the thread that tells
  traced().drain(events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].type, trace::EventType::kPlansEnded);
  EXPECT_EQ(events[1].channel, events[0].channel);
  EXPECT_EQ(events[0].type, trace::EventType::kPlanAgreed);
  EXPECT_EQ(events[0].a, 1u);
  EXPECT_EQ(events[0].b, ranks.history(0).changes[1].number);
  EXPECT_EQ(events[0].c, 500u);
}

TEST(PlanAgreement, it_lasts_as_long_as_the_channels_of_the_job_do) {
  auto config = Config::from([](const char*) -> const char* { return nullptr; });
  ASSERT_TRUE(config);
  EXPECT_GT(PlanAgreement::Settings::from(*config).give_up, config->unreached_bound());
  EXPECT_GT(PlanAgreement::Settings::from(*config).give_up, config->no_path_bound());
}

TEST(PlanAgreement, every_rank_changes_at_the_same_operation) {
  Ranks ranks(4, {}, true);
  ranks.join();
  ranks.run();
  ranks.wait_for({1, 1, 1, 1});
  ranks[2].set_capacity(0.75);
  ranks.wait_for({1, 1, 0.75, 1});
  ranks[2].set_capacity(0.5);  // crosses what follows
  ranks[0].set_capacity(0.875);
  ranks[3].set_capacity(0.25);
  ranks.wait_for({0.875, 1, 0.5, 0.25});
  for (int i = 0; i < 4; ++i) ranks[i].set_capacity(1);  // failback
  ranks.wait_for({1, 1, 1, 1});
  ranks.stop();
  ranks.expect_same_views();
  for (int i = 0; i < 4; ++i) {
    EXPECT_GE(ranks.history(i).changes.size(), 4u);
    EXPECT_GE(ranks.tuner_history(i).changes.size(), 4u);
  }
}

/// What the agreements' threads are told.
class Decisions {
 public:
  PlanAgreement::Settings settings() {
    PlanAgreement::Settings settings;
    settings.on_view = [this](const Decision& decision) {
      const std::lock_guard lock(mutex_);
      decisions_.push_back(decision);
    };
    return settings;
  }
  /// The one by which so many ranks have these capacities.
  Decision wait_for(int ranks, const std::vector<double>& capacities) {
    return wait(ranks, [&](const View& view) { return view.capacities == capacities; });
  }
  /// … by which so many have an engine of this pace: of those since it was asked last.
  Decision wait_for_pace(int ranks, double pace) {
    const Decision decision = wait(ranks, [&](const View& view) { return view.engine_pace == pace; });
    const std::lock_guard lock(mutex_);
    decisions_.clear();
    return decision;
  }

 private:
  template <typename Agreed>
  Decision wait(int ranks, Agreed agreed) {
    for (;; std::this_thread::yield()) {
      const std::lock_guard lock(mutex_);
      const auto is = [&](const Decision& decision) { return agreed(*decision.view); };
      if (std::count_if(decisions_.begin(), decisions_.end(), is) == ranks) return decisions_.back();
    }
  }
  std::mutex mutex_;
  std::vector<Decision> decisions_;  // mutex_
};

// A failure in the middle of a long collective: the next one begins by the new plan.
TEST(PlanAgreement, a_change_is_noticed_although_no_operation_begins) {
  Decisions decisions;
  std::atomic<double> now{1};
  std::atomic<int> looks{0};
  Ranks ranks(3, decisions.settings(), true);
  ranks.join();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.tuner(rank).view_for(0).value()->epoch, 0u);
  ranks[1].watch_capacity([&] {
    ++looks;
    return NodeCapacity(now);
  });
  while (looks < 2) std::this_thread::yield();
  now = 0.5;
  decisions.wait_for(3, {1, 0.5, 1});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.tuner(rank).view_for(1).value()->epoch, 1u) << rank;
  ranks.leave(1);
  const int last = looks;
  std::this_thread::sleep_for(4 * PlanAgreement::kLookEvery);
  EXPECT_EQ(looks, last);
}

TEST(PlanAgreement, all_ranks_hear_that_an_engine_is_slow_and_is_tried_again) {
  Decisions decisions;
  std::atomic<double> pace{1};
  Ranks ranks(3, decisions.settings(), true);
  ranks.join();
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ranks.tuner(rank).view_for(0).value()->engine_pace, 1) << rank;
  ranks[2].watch_capacity([&pace] {
    NodeCapacity capacity(0.75);
    capacity.engine_pace = pace;
    return capacity;
  });
  decisions.wait_for(3, {1, 1, 0.75});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ranks.tuner(rank).view_for(1).value()->engine_pace, 1) << rank;
  for (const double now : {0.4, 1.0}) {
    pace = now;
    decisions.wait_for_pace(3, now);
    const uint64_t number = now < 1 ? 2 : 3;
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(ranks.tuner(rank).view_for(number).value()->engine_pace, now) << rank;
  }
}

// Else the others hang up at each report, and no view is ever agreed on.
TEST(PlanAgreement, a_pace_that_is_no_number_hurts_nobody) {
  for (const int rank : {0, 2}) {
    Decisions decisions;
    Ranks ranks(3, decisions.settings(), true);
    ranks.join();
    ranks[rank].watch_capacity([] {
      NodeCapacity capacity(0.5);
      capacity.engine_pace = std::nan("");
      return capacity;
    });
    decisions.wait_for(3, rank == 0 ? std::vector<double>{0.5, 1, 1} : std::vector<double>{1, 1, 0.5});
  }
}

// NCCL's rings have carried everything: the engine's first operations need not go by a plan that is over.
TEST(PlanAgreement, an_idle_engine_holds_at_its_next_operation) {
  Decisions decisions;
  std::atomic<double> now{1};
  std::array<std::atomic<int>, 3> looks{};
  Ranks ranks(3, decisions.settings());
  ranks.join();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].view_for(0).value()->epoch, 0u);
  EXPECT_EQ(ranks[2].view_for(1).value()->epoch, 0u);
  for (int rank = 0; rank < 3; ++rank)
    ranks[rank].watch_capacity([&now, &looks, rank] {
      ++looks[size_t(rank)];
      return NodeCapacity(rank == 1 ? now.load() : 1.0);
    });
  for (const auto& count : looks)
    while (count < 3) std::this_thread::yield();
  now = 0.5;
  EXPECT_EQ(decisions.wait_for(3, {1, 0.5, 1}).from[size_t(Sequence::kEngine)], 2u);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != 2) {
      EXPECT_EQ(ranks[rank].view_for(1).value()->epoch, 0u) << rank;
    }
    EXPECT_EQ(ranks[rank].view_for(2).value()->epoch, 1u) << rank;
  }
}

/// What a rank with links to `peer` alone tells, of two NICs.
LinkCodes links_to(int ranks, int peer, CapacityCode first, CapacityCode second) {
  LinkCodes links(size_t(ranks) * 2, 0);
  links[size_t(peer) * 2] = first;
  links[size_t(peer) * 2 + 1] = second;
  return links;
}

std::mutex g_lines_mutex;
std::vector<std::string> g_lines;  // g_lines_mutex

TEST(PlanAgreement, a_nic_is_slow_by_the_links_of_two_ranks) {
  set_log_sink([](LogLevel, const char*, int, const char* text) {
    const std::lock_guard lock(g_lines_mutex);
    g_lines.emplace_back(text);
  });
  PlanAgreement::Settings settings;
  settings.nics = 2;
  Ranks ranks(4, settings, true);
  ranks.join();
  ranks.run();
  ranks.wait_for({1, 1, 1, 1});
  ranks[0].set_links(links_to(4, 1, kNominal, 5000));  // which end of it?
  ranks[3].set_capacity(0.5);
  ranks.wait_for({1, 1, 1, 0.5});
  ranks[1].set_links(links_to(4, 2, kNominal, 5000));
  ranks.wait_for({1, 0.75, 1, 0.5});
  ranks[3].set_capacity(1);
  ranks.wait_for({1, 0.75, 1, 1});
  ranks[0].set_links(links_to(4, 1, kNominal, kNominal));
  ranks[1].set_links(links_to(4, 2, kNominal, kNominal));
  ranks.wait_for({1, 1, 1, 1});
  ranks[0].set_links({});  // of another group: passed over
  ranks.stop();
  ranks.expect_same_views();
  set_log_sink(nullptr);
  const auto& changes = ranks.history(2).changes;
  EXPECT_EQ(changes.back().view->nics, std::vector<double>(8, 1.0));
  bool slow = false;
  for (const auto& change : changes)
    slow |= change.view->nics == std::vector<double>{1, 1, 1, 0.5, 1, 1, 1, 1};
  EXPECT_TRUE(slow);
  const std::lock_guard lock(g_lines_mutex);
  const std::string words = "node 1 has capacity 0.75 (its NICs 1.00, 0.50 by the rates of its links)";
  EXPECT_TRUE(std::any_of(g_lines.begin(), g_lines.end(),
                          [&](const auto& line) { return line.find(words) != line.npos; }));
}

// Rank 0 has forgotten it, so the rank must not take it for known.
TEST(PlanAgreement, a_link_that_a_trial_finds_as_slow_as_before_is_reported) {
  PlanAgreement::Settings settings;
  settings.nics = 2;
  settings.settle = 100ms;  // the link is found slow before its rank reports that it knows nothing of it
  Ranks ranks(3, settings);
  ranks.join();
  ranks.run();
  for (const int rank : {0, 2}) ranks[rank].set_links(links_to(3, 1, kNominal, 5000));
  ranks.wait_for({1, 0.75, 1});
  ranks[0].set_links(links_to(3, 1, kNominal, kNominal));
  for (const int rank : {0, 2})
    while (ranks[rank].take_tried().empty()) std::this_thread::yield();
  ranks[2].set_links(links_to(3, 1, kNominal, 5000));
  ranks.wait_for({1, 1, 1});
  ranks[0].set_links(links_to(3, 1, kNominal, 5000));
  ranks.wait_for({1, 0.75, 1});
  ranks.stop();
  ranks.expect_same_views();
}

TEST(PlanAgreement, changes_below_three_percent_change_nothing) {
  Ranks ranks(2);
  ranks.join();
  ranks.run();
  ranks[1].set_capacity(0.98);
  ranks[0].set_capacity(0.5);
  ranks.wait_for({0.5, 1});
  ranks.stop();
  EXPECT_EQ(ranks.history(0).changes.size(), 2u);
}

}  // namespace
}  // namespace r2ccl::collective
