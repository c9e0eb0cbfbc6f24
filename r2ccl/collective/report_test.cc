// SPDX-License-Identifier: Apache-2.0
// What a member reports, and when.
#include "r2ccl/collective/report.h"

#include <gtest/gtest.h>

#include <vector>

namespace r2ccl::collective {
namespace {

TEST(ReportPacer, bursts_are_one_report_and_small_changes_become_rare) {
  constexpr uint64_t kMs = 1'000'000;
  ReportPacer pacer(10 * kMs);
  EXPECT_EQ(pacer.due({kNominal}, {kNominal}, 0), kNever);
  EXPECT_EQ(pacer.due({5000}, {kNominal}, 100 * kMs), 110 * kMs);
  EXPECT_EQ(pacer.due({4000}, {kNominal}, 105 * kMs), 110 * kMs);  // still the same burst
  pacer.done(110 * kMs);
  EXPECT_EQ(pacer.due({4000}, {4000}, 110 * kMs), kNever);
  EXPECT_EQ(pacer.due({kNominal}, {4000}, 111 * kMs), 160 * kMs);  // a large change waits for the least pause
  EXPECT_EQ(pacer.due({4000}, {4000}, 112 * kMs), kNever);         // and has gone by itself
  uint64_t now = 1000 * kMs, last = 0;
  for (int i = 0; i < 10; ++i) {
    const uint64_t when = pacer.due({4200}, {4000}, now);
    EXPECT_GE(when - now, last);
    last = when - now;
    now = when;
    pacer.done(now);
  }
  EXPECT_EQ(last, 2000 * kMs);
  EXPECT_EQ(pacer.due({9000}, {4000}, now + kMs), now + 50 * kMs);  // a failure does not wait for that
  EXPECT_EQ(pacer.due({4000}, {4000}, now + kMs), kNever);
  now += 20'000 * kMs;
  EXPECT_EQ(pacer.due({4200}, {4000}, now), now + 10 * kMs);
  pacer.done(now + 10 * kMs);
  EXPECT_EQ(pacer.due({4000}, {4200}, now + 11 * kMs),
            now + 60 * kMs);  // all quiet since: as in the beginning
}

TEST(ReportPacer, links_are_reported_ever_more_rarely_while_they_change) {
  constexpr uint64_t kMs = 1'000'000;
  ReportPacer pacer(10 * kMs);
  EXPECT_EQ(pacer.due({kNominal}, {kNominal}, 100 * kMs, true), 110 * kMs);
  pacer.done(110 * kMs);
  uint64_t now = 111 * kMs, last = 0;
  for (int i = 0; i < 10; ++i) {
    const uint64_t when = pacer.due({kNominal}, {kNominal}, now, true);
    EXPECT_GE(when - now + 1 * kMs, last);
    last = when - now;
    now = when;
    pacer.done(now);
  }
  EXPECT_EQ(last, 2000 * kMs);
  EXPECT_EQ(pacer.due({0}, {kNominal}, now + kMs, true), now + 50 * kMs);  // a failure does not wait for that
}

TEST(Links, a_difference_is_one_of_slow_links) {
  const auto differ_of = [](LinkCodes one, LinkCodes other) { return links_differ(one, other); };
  EXPECT_FALSE(differ_of({}, {}));
  EXPECT_FALSE(differ_of({0, kNominal}, {kNominal, 0}));  // unknown, or found to be fast
  EXPECT_FALSE(differ_of({}, {kNominal, kNominal}));
  EXPECT_TRUE(differ_of({}, {kNominal, 5000}));
  EXPECT_TRUE(differ_of({5000}, {kNominal}));
  EXPECT_TRUE(differ_of({5000}, {0}));
  EXPECT_FALSE(differ_of({5000}, {5300}));
  EXPECT_TRUE(differ_of({5000}, {5500}));
}

TEST(OwnLinks, what_is_forgotten_is_told_again) {
  OwnLinks links(3);
  EXPECT_FALSE(links.changed());
  links.set({5000, kNominal, 6000});
  EXPECT_TRUE(links.changed());
  EXPECT_EQ(links.told(), LinkCodes(3, kLinkUnknown));
  EXPECT_EQ(links.tell(), (LinkCodes{5000, kNominal, 6000}));
  EXPECT_FALSE(links.changed());
  links.forget(std::vector<size_t>{2});
  EXPECT_EQ(links.told(), (LinkCodes{5000, kNominal, kLinkUnknown}));
  EXPECT_FALSE(links.changed());
  links.set({5000, kNominal, 6000});
  EXPECT_TRUE(links.changed());
}

}  // namespace
}  // namespace r2ccl::collective
