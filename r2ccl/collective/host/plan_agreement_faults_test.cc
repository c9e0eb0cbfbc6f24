// SPDX-License-Identifier: Apache-2.0
// Ranks whose connections are cut, that do not answer, and that leave: no rank waits for ever, and none begins an
// operation under a view of its own.
#include "r2ccl/collective/host/plan_agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "r2ccl/control/frame.h"
#include "r2ccl/collective/host/testing/agreeing_ranks.h"

namespace r2ccl::collective {
namespace {

using namespace std::chrono_literals;
using r2ccl::testing_support::Action;
using testing_support::Ranks;

// Every connection of two ranks ends after some bytes of either direction, through all places of an
// agreement.
TEST(PlanAgreement, connections_are_cut) {
  Ranks ranks(3);
  std::deque<r2ccl::testing_support::Plan> one, other;
  for (size_t bytes = 40; bytes < 900; bytes += 61) {
    one.push_back({Action::kReset, true, bytes});
    one.push_back({Action::kClose, false, bytes});
    other.push_back({Action::kReset, false, bytes + 30});
  }
  const int planned = int(one.size() + other.size());
  ranks.cut(1, std::move(one));
  ranks.cut(2, std::move(other));
  ranks.join();
  ranks.run();
  double capacity = 0.3;
  for (int round = 0; round < 40; ++round) {
    capacity = capacity > 0.9 ? 0.3 : capacity + 0.1;
    ranks[round % 3].set_capacity(capacity);
    std::vector<double> wanted{1, 1, 1};
    ranks[(round + 1) % 3].set_capacity(1);
    ranks[(round + 2) % 3].set_capacity(1);
    wanted[size_t(round % 3)] = capacity;
    ranks.wait_for(wanted);
    if (ranks.way(1).actions() + ranks.way(2).actions() == planned) break;
  }
  ranks.stop();
  ranks.expect_same_views();
  EXPECT_GE(ranks.way(1).actions() + ranks.way(2).actions(), planned / 2);
}

/// Bytes that rank 2 says before its first READY, and a little of that.
constexpr size_t kBeforeReady =
    (control::kHeaderBytes + 16) + control::kHeaderBytes + (control::kHeaderBytes + 34) + 8;

TEST(PlanAgreement, a_rank_that_does_not_answer_stops_nobody) {
  PlanAgreement::Settings settings;
  settings.answer_within = 50ms;
  Ranks ranks(3, settings);
  ranks.cut(2, {{Action::kHang, true, kBeforeReady}});
  ranks.join();
  ranks[1].set_capacity(0.5);
  while (ranks.way(2).actions() == 0) std::this_thread::yield();
  for (uint64_t number = 0; number < 1000; ++number) {  // far beyond any hold point
    auto view = ranks[1].view_for(number);
    while (view && !*view) {
      std::this_thread::yield();
      view = ranks[1].view_for(number);
    }
    ASSERT_TRUE(view);
    EXPECT_EQ((*view)->epoch, 0u);
  }
}

TEST(PlanAgreement, a_rank_that_holds_and_loses_rank_0_reports_an_error) {
  PlanAgreement::Settings settings;
  settings.answer_within = 1h;
  settings.give_up = 100ms;
  Ranks ranks(3, settings);
  ranks.cut(2, {{Action::kHang, true, kBeforeReady}});
  ranks.join();
  ranks[1].set_capacity(0.5);
  while (ranks.way(2).actions() == 0) std::this_thread::yield();
  uint64_t number = 0;
  auto view = ranks[1].view_for(number);
  while (view && *view) view = ranks[1].view_for(++number);  // the proposal may still be under way
  ASSERT_TRUE(view);
  ASSERT_EQ(*view, nullptr);
  ranks.way(1).shut();
  while (view && !*view) {
    std::this_thread::yield();
    view = ranks[1].view_for(number);
  }
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().code, ErrorCode::kPeerGone);
}

/// Does not answer until it may.
class LateCounter final : public OperationCounter {
 public:
  std::optional<uint64_t> hold(uint64_t ahead) override {
    while (!may_answer) std::this_thread::yield();
    return ahead;
  }
  void resume(uint64_t, const ViewPointer&) override {}
  void fail(const Error&) override {}
  std::atomic<bool> may_answer{false};
};

// Nobody else would ever tell the tuner.
TEST(PlanAgreement, a_rank_that_leaves_undecided_tells_the_tuner_that_it_holds) {
  PlanAgreement::Settings settings;
  settings.answer_within = 1h;
  Ranks ranks(3, settings, true);
  const auto late = std::make_shared<LateCounter>();
  ranks.join();
  ranks[2].count_tuner(late, false);
  ranks[1].set_capacity(0.5);
  uint64_t number = 0;
  auto view = ranks.tuner(1).view_for(number);
  while (view && *view) view = ranks.tuner(1).view_for(++number);
  ASSERT_TRUE(view);
  ranks.leave(1);
  view = ranks.tuner(1).view_for(number);
  late->may_answer = true;
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().code, ErrorCode::kPeerGone);
}

TEST(PlanAgreement, ranks_leave_in_any_order) {
  for (int first = 0; first < 3; ++first) {
    Ranks ranks(3);
    ranks.join();
    ranks[1].set_capacity(0.5);
    ranks.leave(first);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == first) continue;
      ranks[rank].set_capacity(0.25);
      for (uint64_t number = 0; number < 3; ++number) EXPECT_TRUE(ranks[rank].view_for(number).value());
    }
  }
}

TEST(PlanAgreement, a_stranger_changes_nothing) {
  Ranks ranks(2);
  ranks.join();
  ranks.run();
  ranks[1].set_capacity(0.5);
  ranks.wait_for({1, 0.5});
  const auto heard = ranks.way(1).heard();
  ASSERT_FALSE(heard.empty());
  for (size_t bytes : {heard[0].size(), size_t(40), size_t(7)}) {
    const auto stranger = r2ccl::testing_support::connection_to(ranks.way(1).where());
    ASSERT_TRUE(bool(stranger));
    EXPECT_GE(send(stranger.get(), heard[0].data(), std::min(bytes, heard[0].size()), MSG_NOSIGNAL), 0);
    std::byte answer[4096];
    while (bytes > 48 && recv(stranger.get(), answer, sizeof answer, 0) > 0) {
    }  // until it is thrown out
  }
  ranks[1].set_capacity(0.75);
  ranks.wait_for({1, 0.75});
  ranks.stop();
  ranks.expect_same_views();
}

}  // namespace
}  // namespace r2ccl::collective
