// SPDX-License-Identifier: Apache-2.0
// Gate under two threads: nothing begins at or beyond a hold point before the decision, and every operation
// has the view of its number.
#include "r2ccl/collective/host/gate.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace r2ccl::collective {
namespace {

ViewPointer view(uint64_t epoch) {
  auto made = std::make_shared<View>();
  made->epoch = epoch;
  return made;
}

TEST(Gate, answers_without_a_hold) {
  Gate gate(view(0));
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(gate.view_for(i).value()->epoch, 0u);
  EXPECT_EQ(gate.next(), 100u);
}

TEST(Gate, a_failed_agreement_is_an_error_where_it_holds) {
  Gate gate(view(0));
  EXPECT_EQ(gate.hold(1), 1u);
  EXPECT_TRUE(gate.view_for(0).value());
  EXPECT_EQ(gate.view_for(1).value(), nullptr);
  gate.fail(Error{ErrorCode::kPeerGone, "rank 0 is gone"});
  EXPECT_EQ(gate.view_for(1).error().code, ErrorCode::kPeerGone);
  gate.resume(1, view(1));  // it has come all the same
  EXPECT_EQ(gate.view_for(1).value()->epoch, 1u);
}

/// Stops between the two steps of view_for().
struct SteppedGate : Gate {
  using Gate::announce;
  using Gate::announced;
  using Gate::Gate;
};

// The first operation of a view is announced, then the next agreement holds, and only then the limit is read.
TEST(Gate, the_first_operation_of_a_view_has_it_although_the_next_hold_comes_in_between) {
  SteppedGate gate(view(0));
  EXPECT_EQ(gate.hold(2), 2u);
  gate.resume(2, view(1));
  for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(gate.view_for(i).value()->epoch, 0u);
  gate.announce(2);
  EXPECT_EQ(gate.hold(4), 7u);
  EXPECT_EQ(gate.announced(2).value()->epoch, 1u);
  for (uint64_t i = 3; i < 7; ++i) EXPECT_EQ(gate.view_for(i).value()->epoch, 1u);
  EXPECT_EQ(gate.view_for(7).value(), nullptr);
  gate.resume(8, view(2));
  EXPECT_EQ(gate.view_for(7).value()->epoch, 1u);
  EXPECT_EQ(gate.view_for(8).value()->epoch, 2u);
}

TEST(Gate, a_view_from_the_first_operation_on_is_that_of_the_first_operation) {
  Gate gate(view(0));
  EXPECT_EQ(gate.hold(0), 0u);
  gate.resume(0, view(1));
  EXPECT_EQ(gate.view_for(0).value()->epoch, 1u);
  EXPECT_EQ(gate.view_for(1).value()->epoch, 1u);
}

TEST(Gate, no_operation_slips_through_a_hold) {
  constexpr uint64_t kHolds = 1000;
  Gate gate(view(0));
  std::vector<uint64_t> starts{0};  // by epoch: where it begins
  std::atomic<uint64_t> begun{0};   // operations that have begun
  std::atomic<bool> stop{false};
  std::vector<std::pair<uint64_t, uint64_t>> seen{{0, 0}};  // operation, epoch, where the epoch changes
  std::thread operations([&] {
    uint64_t epoch = 0;
    for (uint64_t i = 0; !stop; ++i) {
      auto got = gate.view_for(i);
      while (got && !*got && !stop) {
        if (i % 3 == 0) std::this_thread::yield();
        got = gate.view_for(i);
      }
      if (!got || !*got) break;
      begun = i + 1;
      if ((*got)->epoch == epoch) continue;
      epoch = (*got)->epoch;
      seen.emplace_back(i, epoch);
    }
  });
  uint64_t beyond = 0;
  for (uint64_t epoch = 1; epoch <= kHolds; ++epoch) {
    const uint64_t point = *gate.hold(epoch % 4);
    // Sometimes all that may begin has begun before the decision, sometimes not.
    if (epoch % 2 == 0)
      while (begun < point) std::this_thread::yield();
    if (begun > point) ++beyond;
    const bool abort = epoch % 5 == 0;
    gate.resume(point + epoch % 3, abort ? nullptr : view(epoch));
    if (!abort) starts.push_back(point + epoch % 3);
    while (begun <= point + 3) std::this_thread::yield();
  }
  stop = true;
  operations.join();
  EXPECT_EQ(beyond, 0u);
  ASSERT_EQ(seen.size(), starts.size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].first, starts[i]);
}

}  // namespace
}  // namespace r2ccl::collective
