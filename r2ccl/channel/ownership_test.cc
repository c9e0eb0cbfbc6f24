// SPDX-License-Identifier: Apache-2.0
// A channel's functions take the ownership of that channel only.
#include <gtest/gtest.h>

#include <optional>

#include "r2ccl/channel/channel.h"

namespace r2ccl {
namespace {

/// A process without a NIC.
struct Process {
  ProcessContext context;
  Process() {
    context.workers = std::make_unique<NicWorkers>("worker", std::vector<std::string>{}, [] {});
    context.kick = [] {};
  }
};

/// What both ends have in common, and no messages.
class Bare final : public Channel {
 public:
  explicit Bare(Process& process) : Channel(process.context, end_, false, 0, control::Stream(), {}) {}
  using Channel::drain_all;
  using Channel::lanes;
  using Channel::nothing_new;
  ChannelOwnership& ownership() { return ownership_; }

  Result<Request*> post(void*, size_t, Registration*, ProgressThread&) override { return nullptr; }
  Result<TestOutcome> test(Request&, ProgressThread&) override { return TestOutcome{}; }

 private:
  void step_paths(const Tick&) override {}
  void half_made(PathHalf&, const Tick&) override {}
  void carries_on(bool, Owned) override {}
  uint32_t standing_still(Owned) override { return 0; }
  void waited(bool, Owned) override {}
  void on_ack_query(uint64_t, Owned) override {}
  bool peer_fenced(const wire::Fenced&, const Tick&) override { return false; }
  bool lacking(Owned) const override { return false; }
  wire::Close closing_message() const override { return {}; }
  void peer_closed(const wire::Close&, Owned) override {}
  void handle_greeting(wire::Type, const control::Message&, const Tick&) override {}

  MigrationEnd end_{false};
};

TEST(Ownership, of_a_channel_lets_a_thread_touch_that_one) {
  Process process;
  Bare channel(process);
  ASSERT_TRUE(channel.ownership().try_acquire());
  const OwnershipGuard owned(channel.ownership(), std::adopt_lock);
  EXPECT_FALSE(channel.ownership().try_acquire()) << "one thread at a time";
  EXPECT_TRUE(channel.lanes(owned).empty());
  channel.drain_all(owned);
  channel.nothing_new(owned);
}

#ifdef R2CCL_CHECK_OWNERSHIP
TEST(Ownership, of_another_channel_aborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Process process;
  Bare mine(process), other(process);
  const OwnershipGuard owned(mine.ownership());
  EXPECT_DEATH(other.lanes(owned), "without owning it: it owns another channel");
  EXPECT_DEATH(other.nothing_new(owned), "it owns another channel");
  const OwnershipGuard both(other.ownership());
  EXPECT_DEATH(other.lanes(owned), "it owns another channel") << "also by a thread that owns both";
  EXPECT_TRUE(other.lanes(both).empty());
}

TEST(Ownership, that_outlives_its_guard_aborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Process process;
  Bare channel(process);
  std::optional<Owned> kept;
  {
    const OwnershipGuard owned(channel.ownership());
    kept.emplace(owned);
    EXPECT_TRUE(channel.lanes(*kept).empty());
  }
  EXPECT_DEATH(channel.lanes(*kept), "without owning it: it owned the channel before");
}
#else
TEST(Ownership, of_another_channel_aborts) {
  GTEST_SKIP() << "in builds with R2CCL_CHECK_OWNERSHIP only (presets asan, tsan, debug): this one costs "
                  "nothing, and checks nothing";
}
#endif

}  // namespace
}  // namespace r2ccl
