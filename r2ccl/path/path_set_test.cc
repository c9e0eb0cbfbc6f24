// SPDX-License-Identifier: Apache-2.0
// PathSet: which of a channel's paths carry, and where one is that is out of use.
#include "r2ccl/path/path_set.h"

#include <gtest/gtest.h>

#include "r2ccl/base/config.h"
#include "r2ccl/tests/testing/traffic.h"
#include "r2ccl/verbs/device.h"

namespace r2ccl {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

/// Paths 1 to 3 of a NIC, all in use, in a process that has a virtual one.
class Paths {
  // Closed last: a worker gives memory back some time after the paths.
  Result<std::vector<verbs::Device>> devices_;
  const RetiredPaths::Fatals fatals_{};

 public:
  Paths() : devices_(verbs::Device::open_all(*Config::from_environment())) {
    for (uint32_t id = 1; id <= 3; ++id) {
      Job job;
      set.add(std::move(
          *Path::create(id, 0, 0, devices_->front(), ChannelMemory::make(), true, true, false, job)));
    }
  }
  ~Paths() {
    set.destroy_all(workers);
    for (const auto& destruction : set.retired().destructions())
      EXPECT_TRUE(workers.wait(0, *destruction.job));
  }

  NicWorkers workers{"worker", {"nic"}, [] {}};
  PathSet set{fatals_};
  ChannelOwnership ownership;
};

void with_paths(void (*body)(Paths&)) {
  const auto fabric = make_fabric(1, 1);
  const Child child = start(fabric, 0, {}, [body](const Link&) {
    Paths paths;
    body(paths);
  });
  EXPECT_EQ(child.wait(60s), 0);
}

std::vector<uint32_t> ids(const PathSet& set) {
  std::vector<uint32_t> all;
  for (const auto& path : set) all.push_back(path->id());
  return all;
}

TEST(Path, is_flushed_when_both_sentinels_come_back_as_flushes_not_when_they_are_carried_out) {
  with_paths([](Paths& p) {
    Path& path = *p.set.find(1);
    const auto polled = [&path](uint32_t which, ibv_wc_status status) {
      ibv_wc completion{};
      completion.wr_id = Path::work(Path::kWorkSentinel, which);
      completion.status = status;
      path.sentinel(completion);
    };
    polled(1, IBV_WC_SUCCESS);
    polled(2, IBV_WC_SUCCESS);
    EXPECT_FALSE(path.flushed()) << "the queue pair works: its driver alone calls it broken";
    polled(1, IBV_WC_WR_FLUSH_ERR);
    EXPECT_FALSE(path.flushed()) << "of one queue only";
    polled(2, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(path.flushed());
  });
}

TEST(PathSet, a_path_carries_as_the_active_one_or_as_a_lane) {
  with_paths([](Paths& p) {
    const OwnershipGuard owned(p.ownership);
    EXPECT_EQ(p.set.active(), nullptr);
    EXPECT_EQ(p.set.carrying(1), nullptr);
    p.set.activate(*p.set.find(1), owned);
    p.set.add_lane(*p.set.find(2), owned);
    EXPECT_EQ(p.set.active(), p.set.find(1));
    EXPECT_EQ(p.set.carrying(1), p.set.find(1));
    EXPECT_EQ(p.set.carrying(2), p.set.find(2));
    EXPECT_EQ(p.set.carrying(3), nullptr);
    EXPECT_TRUE(p.set.find(1)->carries() && p.set.find(2)->carries());
    EXPECT_FALSE(p.set.find(3)->carries());
  });
}

TEST(PathSet, a_lane_that_becomes_the_active_path_is_no_lane_any_more) {
  with_paths([](Paths& p) {
    const OwnershipGuard owned(p.ownership);
    p.set.activate(*p.set.find(1), owned);
    p.set.add_lane(*p.set.find(2), owned);
    p.set.leave(*p.set.find(1), owned);
    EXPECT_EQ(p.set.active(), nullptr);
    EXPECT_EQ(p.set.find(1)->state, PathState::kFencing);
    p.set.activate(*p.set.find(2), owned);
    EXPECT_TRUE(p.set.lanes().empty());
    EXPECT_EQ(p.set.find(2)->state, PathState::kActive);
  });
}

TEST(PathSet, a_lane_that_is_left_does_not_take_the_active_path_with_it) {
  with_paths([](Paths& p) {
    const OwnershipGuard owned(p.ownership);
    p.set.activate(*p.set.find(1), owned);
    p.set.add_lane(*p.set.find(2), owned);
    p.set.add_lane(*p.set.find(3), owned);
    p.set.leave(*p.set.find(2), owned);
    EXPECT_EQ(p.set.active(), p.set.find(1));
    EXPECT_EQ(p.set.lanes(), std::vector<Path*>{p.set.find(3)});
    p.set.leave_all(owned);
    EXPECT_EQ(p.set.active(), nullptr);
    EXPECT_TRUE(p.set.lanes().empty());
  });
}

TEST(PathSet, a_retired_path_can_be_reclaimed_while_it_is_whole) {
  with_paths([](Paths& p) {
    p.set.retire(2, 100);
    EXPECT_EQ(ids(p.set), (std::vector<uint32_t>{1, 3}));
    EXPECT_EQ(p.set.find(2), nullptr);
    Path* back = p.set.reclaim(2);
    ASSERT_NE(back, nullptr);
    EXPECT_EQ(back->id(), 2u);
    EXPECT_EQ(ids(p.set), (std::vector<uint32_t>{1, 3, 2}));
    EXPECT_EQ(p.set.reclaim(3), p.set.find(3)) << "in use";
    p.set.retire(2, 100);
    p.set.retired().destroy_expired(p.workers, 99, true);
    back = p.set.reclaim(2);
    ASSERT_NE(back, nullptr) << "whole until its time";
    EXPECT_EQ(back, p.set.find(2));
    p.set.retire(2, 100);
    p.set.retired().destroy_expired(p.workers, 101, true);
    EXPECT_EQ(p.set.reclaim(2), nullptr) << "being destroyed";
    EXPECT_EQ(p.set.reclaim(9), nullptr);
  });
}

TEST(PathSet, one_that_could_not_be_fenced_is_out_of_reach_until_it_is_retired) {
  with_paths([](Paths& p) {
    p.set.set_aside(1);
    ASSERT_NE(p.set.aside(), nullptr);
    EXPECT_EQ(p.set.aside()->id(), 1u);
    EXPECT_EQ(p.set.find(1), nullptr);
    EXPECT_EQ(p.set.reclaim(1), nullptr);
    p.set.set_aside(9);  // no such path: nothing changes
    EXPECT_NE(p.set.aside(), nullptr);
    p.set.retire_aside(100);
    EXPECT_EQ(p.set.aside(), nullptr);
    EXPECT_NE(p.set.reclaim(1), nullptr);
  });
}

TEST(PathSet, all_are_destroyed_wherever_they_are) {
  with_paths([](Paths& p) {
    p.set.set_aside(1);
    p.set.retire(2, 100);
    p.set.destroy_all(p.workers);
    EXPECT_EQ(p.set.size(), 0u);
    EXPECT_EQ(p.set.aside(), nullptr);
    EXPECT_TRUE(p.set.retired().retired().empty());
    for (const uint32_t id : {1, 2, 3}) {
      const auto* destruction = p.set.retired().destruction_of(id);
      ASSERT_NE(destruction, nullptr) << id;
      EXPECT_TRUE(p.workers.wait(0, *destruction->job));
      EXPECT_FALSE(destruction->outcome->refused) << id;
    }
  });
}

}  // namespace
}  // namespace r2ccl
