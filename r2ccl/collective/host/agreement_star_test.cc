// SPDX-License-Identifier: Apache-2.0
// Two ends of a star in one thread, over a real connection that breaks at chosen moments.
#include "r2ccl/collective/host/agreement_star.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "r2ccl/base/clock.h"
#include "r2ccl/control/interface.h"

namespace r2ccl::collective {
namespace {

constexpr uint64_t kSecond = 1000 * kNsPerMs;
constexpr std::array<std::byte, 8> kWords{};

class AgreementStar : public ::testing::Test {
 protected:
  AgreementStar() {
    StarAddress address;
    address.version = kStarVersion;
    address.token = control::random_token();
    control::InterfaceWish wish;
    wish.names = "lo";
    auto listener = control::listen_any(wish, address.endpoint);
    hub_.emplace(std::move(Star::make(std::move(*listener), address, 0, 2).value()));
    member_.emplace(std::move(Star::make({}, address, 1, 2).value()));
  }

  static bool connected(Star& star) {
    bool any = false;
    for (Star::Event event; star.next(event);) any = any || event.connected;
    return any;
  }

  /// Both ends are tended until both know of a new connection.
  ::testing::AssertionResult connect() {
    bool hub = false, member = false;
    const uint64_t until = now_ns() + 10 * kSecond;
    while (now_ns() < until) {
      const uint64_t due = member_->tend(now_ns());
      hub_->tend(now_ns());
      member = connected(*member_) || member;
      hub = connected(*hub_) || hub;
      if (hub && member) return ::testing::AssertionSuccess();
      member_->wait(std::min(due, now_ns() + kNsPerMs));
      hub_->wait(now_ns() + kNsPerMs);
    }
    return ::testing::AssertionFailure() << "no connection within 10 s";
  }

  std::optional<Star> hub_, member_;
};

TEST_F(AgreementStar, a_connection_that_breaks_is_made_again) {
  ASSERT_TRUE(connect());
  hub_->drop(1);
  EXPECT_TRUE(connect());
}

// What is said meets a connection that has ended, between two looks at the sockets: no descriptor is left that could
// wake this rank, so it has to say itself when it wants to connect again.
TEST_F(AgreementStar, a_connection_that_breaks_under_what_is_said_is_made_again) {
  ASSERT_TRUE(connect());
  hub_->drop(1);
  hub_->tend(now_ns());
  member_->send(0, kWords);  // answered with a reset
  member_->send(0, kWords);
  const uint64_t due = member_->tend(now_ns());
  ASSERT_TRUE(member_->lost_since().has_value());
  EXPECT_LE(due, now_ns() + kSecond);
  EXPECT_TRUE(connect());
}

}  // namespace
}  // namespace r2ccl::collective
