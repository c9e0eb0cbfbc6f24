// SPDX-License-Identifier: Apache-2.0
// How many queues a receiver looks at until it has a message that the sender's splitter has cut.
#include "r2ccl/balance/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

namespace r2ccl::balance {
namespace {

/// Looks per message of `bytes`, which has come before the receiver looks.
double looks(const std::vector<LaneShare>& shares, uint32_t bytes) {
  constexpr int kMessages = 1000;
  Splitter splitter;
  splitter.set(shares);
  Arrivals arrivals;
  size_t count = 0;
  for (int m = 0; m < kMessages; ++m) {
    std::array<Piece, kMaxRails> pieces;
    const size_t parts = splitter.split(0, bytes, pieces);
    std::set<size_t> missing;
    for (size_t i = 0; i < parts; ++i) missing.insert(pieces[i].lane);
    for (unsigned test = 0; !missing.empty() && test < Arrivals::kElsewhere; ++test)
      arrivals.look(shares.size(), [&](size_t at) {
        ++count;
        const bool brings = missing.erase(at) > 0;
        return missing.empty() ? Looked::kMessage : brings ? Looked::kSomething : Looked::kNothing;
      });
    EXPECT_TRUE(missing.empty()) << "message " << m;
  }
  return double(count) / kMessages;
}

std::vector<LaneShare> equal(size_t lanes) { return {lanes, LaneShare{1.0 / double(lanes), false}}; }

TEST(Arrivals, tiny_messages_and_those_of_equal_lanes_take_one_look) {
  for (size_t lanes = 1; lanes <= kMaxRails; ++lanes) {
    EXPECT_NEAR(looks(equal(lanes), 8), 1, 0.01) << lanes;
    EXPECT_NEAR(looks(equal(lanes), Splitter::kTiny), 1, 0.01) << lanes;
    std::vector<LaneShare> nearly = equal(lanes);
    nearly.front().share *= 1.005;
    nearly.back().share *= 0.995;
    EXPECT_LT(looks(nearly, 16 << 10), 1.1) << lanes;
  }
  // … wherever the tiny ones travel.
  EXPECT_NEAR(looks({{0.2, false}, {0.2, false}, {0.6, false}}, 8), 1, 0.01);
}

TEST(Arrivals, messages_in_several_parts_take_a_look_at_each_lane) {
  EXPECT_EQ(looks(equal(4), 1 << 20), 4);
  EXPECT_EQ(looks(equal(kMaxRails), 1 << 20), double(kMaxRails));
}

TEST(Arrivals, unequal_shares_take_no_more_looks_than_there_are_lanes) {
  const double mean = looks({{0.5, false}, {0.2, false}, {0.2, false}, {0.1, false}}, 16 << 10);
  EXPECT_GE(mean, 1);
  EXPECT_LT(mean, 3);
}

struct Looks {
  Arrivals arrivals;
  size_t carriers;
  std::vector<size_t> seen;  ///< where the last test looked, in order

  /// A test. `brings`: the carrier that has the message, none: it has not come; `something`: one that has
  /// something else.
  void test(std::optional<size_t> brings = std::nullopt, std::optional<size_t> something = std::nullopt) {
    seen.clear();
    arrivals.look(carriers, [&](size_t at) {
      seen.push_back(at);
      return at == brings ? Looked::kMessage : at == something ? Looked::kSomething : Looked::kNothing;
    });
  }
  /// Tests until one looks at `at`, which has the message; kElsewhere + 1: none did.
  unsigned tests_until(size_t at) {
    unsigned tests = 1;
    for (test(at); seen.back() != at && tests <= Arrivals::kElsewhere; test(at)) ++tests;
    return tests;
  }
  void trust() {
    for (unsigned m = 0; m < Arrivals::kMostTrusted + 2; ++m) test(0);
  }
  std::vector<size_t> after(std::vector<size_t> brought) {
    for (const size_t at : brought) test(at);
    test();
    return seen;
  }
};

TEST(Arrivals, what_has_not_come_is_looked_for_everywhere_once) {
  using Order = std::vector<size_t>;
  Looks looks{.carriers = 3};
  EXPECT_EQ(looks.after({}), (Order{0, 1, 2}));
  EXPECT_EQ(looks.after({1}), (Order{2, 0, 1})) << "in turn, until something else is known";
  EXPECT_EQ(looks.after({1}), (Order{1, 2, 0})) << "1 has followed 1";
  EXPECT_EQ(looks.after({0, 1}), (Order{0, 1, 2})) << "0 has followed 1";
  looks.carriers = 2;
  EXPECT_EQ(looks.after({}), (Order{0, 1})) << "that lane is gone";
  for (size_t carriers : {size_t{0}, 2 * kMaxRails, 2 * kMaxRails + 1}) {
    looks.carriers = carriers;
    EXPECT_EQ(looks.after({}).size(), carriers);
  }
}

// Seven carriers, of which two carry nothing.
TEST(Arrivals, carriers_that_bring_nothing_are_passed_over) {
  Looks looks{.carriers = 7};
  for (int m = 0; m < 50; ++m) {
    const size_t at = std::array{1, 2, 3, 5, 6}[size_t(m) % 5];
    looks.test(at);
    if (m >= 5) {
      EXPECT_EQ(looks.seen, std::vector<size_t>{at}) << m;
    }
  }
}

// The others are looked at in vain as rarely as that, and the order of the looks stays.
TEST(Arrivals, a_trusted_guess_is_looked_at_alone_in_most_tests) {
  Looks looks{.carriers = 7};
  looks.after({0, 0});  // only then is it known that 0 follows 0
  for (unsigned m = 0; m < 16; ++m) {
    looks.test();
    EXPECT_EQ(looks.seen.size(), 7u) << "not trusted before message " << m;
    looks.test(0);
    EXPECT_EQ(looks.seen, std::vector<size_t>{0}) << m;
  }
  for (unsigned t = 1; t <= 40; ++t) {
    looks.test();
    EXPECT_EQ(looks.seen.front(), 0u);
    EXPECT_EQ(looks.seen.size(), t % 8 == 0 ? 7u : 1u) << t;
  }
}

// The worst that a change of pattern costs.
TEST(Arrivals, what_is_not_where_a_trusted_guess_says_is_found_a_few_tests_later) {
  for (size_t elsewhere = 1; elsewhere < 7; ++elsewhere) {
    Looks looks{.carriers = 7};
    looks.trust();
    EXPECT_LE(looks.tests_until(elsewhere), 8u);
    looks.test();
    EXPECT_EQ(looks.seen.size(), 7u) << "one wrong guess ends the trust";
  }
}

TEST(Arrivals, a_guess_that_was_trusted_and_wrong_has_to_be_right_twice_as_often) {
  Looks looks{.carriers = 3};
  const auto right_until_trusted = [&] {
    looks.after({0, 0, 0});  // it is known again that 0 follows 0
    for (unsigned right = 1;; ++right) {
      looks.test();
      if (looks.seen.size() == 1 || right > 20'000) return right;
      looks.test(0);
    }
  };
  EXPECT_NEAR(right_until_trusted(), 16, 3);
  for (unsigned needed = 32; needed <= 4096; needed *= 2) {
    EXPECT_LE(looks.tests_until(1), 8u);
    EXPECT_NEAR(right_until_trusted(), needed, 3);
  }
  EXPECT_LE(looks.tests_until(1), 8u);
  EXPECT_NEAR(right_until_trusted(), 4096, 3) << "no more than that";
}

// A message in parts, or a younger one: it is not alone that is at the guess.
TEST(Arrivals, anything_that_comes_elsewhere_ends_the_trust) {
  Looks looks{.carriers = 3};
  looks.trust();
  for (unsigned t = 0; t < 8; ++t) looks.test(std::nullopt, 2);
  looks.test();
  EXPECT_EQ(looks.seen.size(), 3u);
}

TEST(Arrivals, a_part_at_a_trusted_guess_is_looked_for_further_at_once) {
  Looks looks{.carriers = 3};
  looks.trust();
  looks.test(2, 0);
  EXPECT_EQ(looks.seen, (std::vector<size_t>{0, 1, 2}));
}

// Receives that are tested out of order: messages that are where the guess says do not hide one that is not.
TEST(Arrivals, a_message_elsewhere_is_found_although_others_come_as_guessed) {
  Looks looks{.carriers = 3};
  looks.trust();
  unsigned tests = 0;
  for (bool found = false; !found && tests < 100; ++tests) {
    looks.test(2);  // an old message
    found = looks.seen.back() == 2;
    if (!found) looks.test(0);  // a younger one
  }
  EXPECT_LE(tests, 8u);
}

TEST(Arrivals, trust_ends_when_the_carriers_change) {
  Looks looks{.carriers = 7};
  looks.trust();
  looks.carriers = 6;
  looks.test();
  EXPECT_EQ(looks.seen.size(), 6u);
}

// Beyond the table there is no guess to be right.
TEST(Arrivals, a_carrier_beyond_the_table_ends_the_trust) {
  Looks looks{.carriers = 2 * kMaxRails + 1};
  looks.trust();
  EXPECT_LE(looks.tests_until(2 * kMaxRails), 8u);
  looks.test();
  EXPECT_EQ(looks.seen.size(), looks.carriers);
}

// Messages of which each comes elsewhere than the one before it are never waited for at one carrier.
TEST(Arrivals, guesses_that_are_wrong_now_and_then_are_not_trusted) {
  Looks looks{.carriers = 3};
  for (unsigned m = 0; m < 200; ++m) {
    looks.test();
    EXPECT_EQ(looks.seen.size(), 3u) << m;
    looks.test(m % 16 == 0 ? 1 + m / 16 % 2 : 0);
  }
}

}  // namespace
}  // namespace r2ccl::balance
