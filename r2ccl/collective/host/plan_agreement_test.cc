// SPDX-License-Identifier: Apache-2.0
// Several ranks in one process, over real connections that are cut: each operation has one view on all ranks,
// the newest capacities arrive everywhere, and no rank waits for ever.
#include "r2ccl/collective/host/plan_agreement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "r2ccl/base/log.h"
#include "r2ccl/collective/host/agreement_star.h"
#include "r2ccl/collective/host/gate.h"
#include "r2ccl/collective/host/testing/traced.h"
#include "r2ccl/tests/testing/proxy.h"

namespace r2ccl::collective {
namespace {

using namespace std::chrono_literals;
using testing_support::Action;
using testing_support::Proxy;

/// What a rank saw of one sequence: the operations at which the view changed.
struct History {
  struct Change {
    uint64_t number;
    ViewPointer view;
  };
  std::vector<Change> changes;
  uint64_t begun = 0;

  void add(uint64_t number, const ViewPointer& view) {
    begun = number + 1;
    if (changes.empty() || changes.back().view->epoch != view->epoch) changes.push_back({number, view});
  }
  uint64_t epoch_of(uint64_t number) const {
    uint64_t epoch = 0;
    for (const Change& change : changes)
      if (change.number <= number) epoch = change.view->epoch;
    return epoch;
  }
};

class Ranks {
 public:
  explicit Ranks(int count, PlanAgreement::Settings settings = {}, bool tuner = false) : count_(count) {
    settings.interface.names = "lo";
    std::vector<std::unique_ptr<PlanAgreement::Listener>> listeners;
    for (int i = 0; i < count; ++i) listeners.push_back(std::move(PlanAgreement::listen(settings).value()));
    const auto straight = listeners[0]->address();
    StarAddress hub;
    std::memcpy(&hub, straight.data(), sizeof hub);
    for (int i = 0; i < count; ++i) {
      ways_.push_back(std::make_unique<Proxy>());
      endpoint_ = hub.endpoint;
      hubs_.push_back(hub);
      hubs_.back().endpoint = ways_.back()->where();
    }
    for (int i = 0; i < count; ++i) {
      settings.name = "rank " + std::to_string(i);
      settings_.push_back(settings);
    }
    listeners_ = std::move(listeners);
    histories_.resize(size_t(count));
    progress_ = std::vector<std::atomic<uint64_t>>(size_t(count));
    settled_capacity_ = std::vector<std::atomic<uint64_t>>(size_t(count));
    if (!tuner) return;
    for (int i = 0; i < count; ++i) tuners_.push_back(std::make_shared<Gate>(std::make_shared<View>()));
  }
  ~Ranks() { stop(); }

  /// The connections of `rank` are cut as `plans` say. Before join().
  void cut(int rank, std::deque<testing_support::Plan> plans) { plans_.emplace_back(rank, std::move(plans)); }

  void join() {
    for (int i = 0; i < count_; ++i) ways_[size_t(i)]->lead_to(endpoint_, {});
    for (auto& [rank, plans] : plans_) ways_[size_t(rank)]->lead_to(endpoint_, plans);
    for (auto& way : ways_) way->open();
    for (int i = 0; i < count_; ++i) {
      PlanAgreement::Address address{};
      std::memcpy(address.data(), &hubs_[size_t(i)], sizeof(StarAddress));
      auto joined =
          PlanAgreement::join(std::move(listeners_[size_t(i)]), i, count_, address, settings_[size_t(i)]);
      agreements_.push_back(std::move(joined.value()));
      if (!tuners_.empty()) agreements_.back()->count_tuner(tuners_[size_t(i)], i == 0);
    }
  }

  /// Operations begin on all ranks, none more than `apart` ahead of another one, until stop().
  void run(uint64_t apart = 64) {
    for (int i = 0; i < count_; ++i) threads_.emplace_back([this, i, apart] { begin_operations(i, apart); });
  }
  void stop() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  PlanAgreement& operator[](int rank) { return *agreements_[size_t(rank)]; }
  void leave(int rank) { agreements_[size_t(rank)].reset(); }
  Proxy& way(int rank) { return *ways_[size_t(rank)]; }
  Gate& tuner(int rank) { return *tuners_[size_t(rank)]; }
  const History& history(int rank) const { return histories_[size_t(rank)][0]; }
  const History& tuner_history(int rank) const { return histories_[size_t(rank)][1]; }

  /// Until operations of all ranks begin under `capacities`.
  void wait_for(const std::vector<double>& capacities) {
    uint64_t code = 1;
    for (const double c : capacities) code = code * 31 + code_of(c);
    for (auto& settled : settled_capacity_)
      while (settled != code) {
        if (ended_) throw std::runtime_error("a rank's operations have ended before");
        std::this_thread::yield();
      }
  }
  void expect_same_views() const {
    for (int sequence = 0; sequence < (tuners_.empty() ? 1 : 2); ++sequence) {
      const History& first = histories_[0][size_t(sequence)];
      for (int i = 1; i < count_; ++i) {
        const History& other = histories_[size_t(i)][size_t(sequence)];
        const uint64_t both = std::min(first.begun, other.begun);
        for (const History* one : {&first, &other})
          for (const auto& change : one->changes) {
            if (change.number >= both) continue;
            EXPECT_EQ(first.epoch_of(change.number), other.epoch_of(change.number))
                << "operation " << change.number << " of sequence " << sequence << " on ranks 0 and " << i;
            if (change.number == 0) continue;
            EXPECT_EQ(first.epoch_of(change.number - 1), other.epoch_of(change.number - 1));
          }
      }
    }
  }

 private:
  void begin_operations(int rank, uint64_t apart) {
    auto& histories = histories_[size_t(rank)];
    for (uint64_t number = 0; !stop_; ++number) {
      for (const auto& other : progress_)
        while (other + apart < number && !stop_) std::this_thread::yield();
      Result<ViewPointer> view = agreements_[size_t(rank)]->view_for(number);
      while (view && !*view && !stop_) {
        std::this_thread::yield();
        view = agreements_[size_t(rank)]->view_for(number);
      }
      if (!view) return end(rank, view.error());
      if (!*view) return;
      histories[0].add(number, *view);
      uint64_t code = 1;
      for (const double c : (*view)->capacities) code = code * 31 + code_of(c);
      if (!tuners_.empty()) {
        auto tuned = tuners_[size_t(rank)]->view_for(number);
        while (tuned && !*tuned && !stop_) {
          std::this_thread::yield();
          tuned = tuners_[size_t(rank)]->view_for(number);
        }
        if (!tuned) return end(rank, tuned.error());
        if (!*tuned) return;
        histories[1].add(number, *tuned);
        if ((*tuned)->epoch != (*view)->epoch) code = 0;
      }
      settled_capacity_[size_t(rank)] = code;
      progress_[size_t(rank)] = number;
      if (rank % 2 == 1 && number % 5 == 0) std::this_thread::yield();
    }
  }

  void end(int rank, const Error& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.message;
    ended_ = true;
  }

  const int count_;
  std::vector<PlanAgreement::Settings> settings_;
  control::Endpoint endpoint_;
  std::vector<StarAddress> hubs_;
  std::vector<std::unique_ptr<Proxy>> ways_;
  std::vector<std::pair<int, std::deque<testing_support::Plan>>> plans_;
  std::vector<std::unique_ptr<PlanAgreement::Listener>> listeners_;
  std::vector<std::shared_ptr<Gate>> tuners_;
  std::vector<std::unique_ptr<PlanAgreement>> agreements_;
  std::vector<std::array<History, 2>> histories_;
  std::vector<std::atomic<uint64_t>> progress_, settled_capacity_;
  std::atomic<bool> stop_{false}, ended_{false};
  std::vector<std::thread> threads_;
};

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

// Every connection of two ranks ends after some bytes of either direction, through all places of an
// agreement.
TEST(PlanAgreement, connections_are_cut) {
  Ranks ranks(3);
  std::deque<testing_support::Plan> one, other;
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
    const auto stranger = testing_support::connection_to(ranks.way(1).where());
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
