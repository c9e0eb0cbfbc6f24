// SPDX-License-Identifier: Apache-2.0
// PathSearch: which time without a path counts, and when it is too long.
#include "r2ccl/protocol/search.h"

#include <gtest/gtest.h>

namespace r2ccl {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kBound = 100 * kMs, kProven = 20 * kMs;

struct Sight {
  bool owes = false, missed = true, queued = false;  // queued: the fence, and the opening
  int asked = 0;                                     // misses_a_path()
  bool peer_owes() const { return owes; }
  bool misses_a_path() { return ++asked, missed; }
  CallSight fence_call() const { return {true, false, queued}; }
  CallSight opening_call() const { return {true, false, queued || only_opening}; }
  bool only_opening = false;
};

/// A search that is looked at every millisecond.
struct Searching {
  PathSearch search{kBound, kProven};
  Sight sight;
  uint64_t now = 1000 * kMs;
  Searching() { search.begin(now, 1); }
  /// For so many milliseconds, or until it fails; how many there were.
  uint64_t goes_on(uint64_t for_ms, Phase phase = Phase::kChoosing) {
    for (uint64_t ms = 1; ms <= for_ms; ++ms)
      if (search.look(sight, phase, now += kMs) == SearchAct::kFail) return ms;
    return for_ms;
  }
};

TEST(PathSearch, fails_when_no_path_was_found_within_the_bound) {
  Searching s;
  EXPECT_EQ(s.goes_on(1000), kBound / kMs + 1);
  EXPECT_EQ(s.search.left(), 0u);
}

TEST(PathSearch, looks_for_nothing_while_a_path_carries) {
  Searching s;
  EXPECT_EQ(s.goes_on(1000, Phase::kRunning), 1000u);
  EXPECT_EQ(s.sight.asked, 0);
}

TEST(PathSearch, a_path_is_lacking_until_one_carries) {
  EXPECT_FALSE(lacks_path(Phase::kRunning, false));
  EXPECT_TRUE(lacks_path(Phase::kRunning, true)) << "there has been none yet";
  for (const Phase phase : {Phase::kFencing, Phase::kWaitingForPeer, Phase::kUnfenced, Phase::kChoosing})
    EXPECT_TRUE(lacks_path(phase, false));
}

TEST(PathSearch, time_counts_while_this_end_fences) {
  Searching s;
  EXPECT_EQ(s.goes_on(1000, Phase::kFencing), kBound / kMs + 1);
}

TEST(PathSearch, time_does_not_count_while_the_peer_is_waited_for) {
  for (const Phase phase : {Phase::kWaitingForPeer, Phase::kUnfenced}) {
    Searching s;
    EXPECT_EQ(s.goes_on(1000, phase), 1000u);
    EXPECT_EQ(s.search.left(), kBound);
    EXPECT_EQ(s.goes_on(1000), kBound / kMs + 1) << "and all of the bound is left";
  }
}

TEST(PathSearch, time_does_not_count_while_the_peer_owes_an_answer) {
  Searching s;
  s.sight.owes = true;
  EXPECT_EQ(s.goes_on(1000), 1000u);
  s.sight.owes = false;
  EXPECT_EQ(s.goes_on(1000), kBound / kMs + 1);
}

TEST(PathSearch, time_does_not_count_while_nobody_wants_a_path) {
  Searching s;
  s.sight.missed = false;
  EXPECT_EQ(s.goes_on(1000), 1000u);
  EXPECT_EQ(s.sight.asked, 1000);
  s.sight.missed = true;
  EXPECT_EQ(s.goes_on(1000), kBound / kMs + 1);
}

TEST(PathSearch, time_in_a_drivers_queue_is_told_and_does_not_count) {
  Searching s;
  s.sight.queued = true;
  EXPECT_EQ(s.goes_on(1000), 1000u);
  EXPECT_EQ(s.search.queued(), 1000 * kMs);
  EXPECT_EQ(s.search.left(), kBound);
}

TEST(PathSearch, a_driver_call_is_queued_until_it_begins) {
  EXPECT_TRUE(is_queued({.given = true, .done = false, .queued = true}));
  EXPECT_FALSE(is_queued({.given = true, .done = false, .queued = false})) << "the driver has it";
  EXPECT_FALSE(is_queued({.given = true, .done = true, .queued = true}));
  EXPECT_FALSE(is_queued({.given = false, .done = false, .queued = true})) << "there is none";
}

TEST(PathSearch, each_phase_waits_for_its_own_driver_call) {
  Searching s;
  s.sight.only_opening = true;
  EXPECT_EQ(s.goes_on(1000), 1000u);
  EXPECT_EQ(s.goes_on(1000, Phase::kFencing), kBound / kMs + 1) << "the fence's is under way";
}

TEST(PathSearch, a_path_that_carried_something_ends_the_search) {
  Searching s;
  s.goes_on(60);
  s.search.carries(s.now);
  EXPECT_TRUE(s.search.begin(s.now, 2));
  EXPECT_EQ(s.search.left(), kBound);
}

TEST(PathSearch, a_path_that_held_for_long_ends_the_search) {
  Searching s;
  s.goes_on(60);
  s.search.carries(s.now);
  EXPECT_TRUE(s.search.begin(s.now + kProven + 1, 1)) << "nobody sent anything";
  EXPECT_EQ(s.search.left(), kBound);
}

TEST(PathSearch, a_path_that_broke_at_once_does_not_end_the_search) {
  Searching s;
  s.goes_on(60);
  s.search.carries(s.now);
  EXPECT_FALSE(s.search.begin(s.now += kMs, 1));
  EXPECT_EQ(s.search.left(), kBound - 60 * kMs);
  EXPECT_EQ(s.goes_on(1000), 41u);
}

TEST(PathSearch, the_time_between_two_searches_does_not_count) {
  Searching s;
  s.goes_on(60);
  s.search.carries(s.now);
  s.search.begin(s.now += 10 * kMs, 1);
  EXPECT_EQ(s.search.left(), kBound - 60 * kMs);
}

TEST(PathSearch, a_path_that_brought_the_receiver_something_ends_the_search) {
  Searching s;
  s.search.receiver_has(7);
  s.goes_on(60);
  s.search.carries(s.now);
  EXPECT_FALSE(s.search.begin(s.now, 1)) << "nothing has come back over it";
  s.goes_on(10);
  EXPECT_EQ(s.search.left(), kBound - 70 * kMs);
  s.search.receiver_has(8);
  EXPECT_EQ(s.search.left(), kBound - 10 * kMs) << "since it was left";
  s.search.receiver_has(8);
  EXPECT_EQ(s.search.left(), kBound - 10 * kMs) << "nothing more";
  s.search.receiver_has(9);
  EXPECT_EQ(s.search.left(), kBound - 10 * kMs) << "that time was taken off once";
  EXPECT_EQ(s.goes_on(1000), kBound / kMs - 10 + 1);
}

TEST(PathSearch, a_path_that_brought_the_receiver_nothing_does_not) {
  Searching s;
  s.search.receiver_has(7);
  s.goes_on(60);
  s.search.carries(s.now);
  s.search.begin(s.now, 1);
  s.search.receiver_has(7);
  EXPECT_EQ(s.goes_on(1000), kBound / kMs - 60 + 1);
}

TEST(PathSearch, what_was_queued_before_a_path_carried_is_not_told) {
  Searching s;
  s.sight.queued = true;
  s.goes_on(30);
  s.search.carries(s.now);
  s.search.begin(s.now, 1);
  s.goes_on(5);
  EXPECT_EQ(s.search.queued(), 35 * kMs);
  s.search.receiver_has(1);
  EXPECT_EQ(s.search.queued(), 5 * kMs);
}

TEST(PathSearch, a_new_search_has_waited_for_no_driver) {
  Searching s;
  s.sight.queued = true;
  s.goes_on(30);
  ASSERT_EQ(s.search.queued(), 30 * kMs);
  s.search.carries(s.now);
  EXPECT_TRUE(s.search.begin(s.now, 2));
  EXPECT_EQ(s.search.queued(), 0u);
}

TEST(PathSearch, rails_that_are_untried_share_the_time_that_is_left) {
  const Bounds bounds{2000 * kMs, 50 * kMs};
  const PathSearch search(bounds.fail, bounds.proven());
  const auto others = [](unsigned n) { return [n] { return n; }; };
  EXPECT_EQ(search.first_probe(bounds, 900 * kMs, false, others(9)), bounds.first_probe(900 * kMs))
      << "nobody waits for it";
  EXPECT_EQ(search.first_probe(bounds, 900 * kMs, true, others(0)), 900 * kMs);
  EXPECT_EQ(search.first_probe(bounds, 900 * kMs, true, others(3)), 500 * kMs) << "four share 2 s";
  EXPECT_EQ(search.first_probe(bounds, 900 * kMs, true, others(99)), bounds.first_probe(0))
      << "but each has a chance";
}

TEST(PathSearch, of_the_time_that_is_left_not_of_the_bound) {
  Searching s;
  const Bounds bounds{kBound, 1 * kMs};
  s.goes_on(60);
  const auto none = [] { return 0u; };
  EXPECT_EQ(s.search.first_probe(bounds, kBound, true, none), kBound - 60 * kMs);
  const Bounds slow{kBound, 500 * kMs};
  ASSERT_GT(slow.first_probe(0), 10 * kMs);
  EXPECT_EQ(s.search.first_probe(slow, 10 * kMs, false, none), slow.first_probe(0))
      << "no less than a few probes take";
}

}  // namespace
}  // namespace r2ccl
