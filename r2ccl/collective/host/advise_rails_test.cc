// SPDX-License-Identifier: Apache-2.0
// What the tuner takes where nodes have lost different NICs, and what that gains over NCCL's ring under
// Balance on simulated ports: by plans that count NICs, beside plans by capacities alone whose time the tuner
// multiplies by what their busiest NIC needs.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "r2ccl/collective/host/testing/timed_stream.h"
#include "r2ccl/collective/rail_load.h"
#include "r2ccl/collective/rails.h"

namespace r2ccl::collective {
namespace {

using namespace testing_support;

constexpr double kDefaultMargin = 1.08;  // where several nodes are degraded (margin_of)

/// How many NICs each degraded node has lost, which ones, and where these nodes are.
enum class Lost { kNested, kShifted, kApart };
struct Nodes {
  size_t p;
  std::vector<uint32_t> lost;
  Lost which;
  bool spread;
};

std::vector<double> nics_of(const Nodes& nodes, uint32_t rails) {
  std::vector<double> nics(nodes.p * rails, 1.0);
  std::vector<bool> taken(nodes.p);
  uint32_t before = 0;
  for (size_t i = 0; i < nodes.lost.size(); ++i) {
    size_t node = (nodes.spread ? 1 + i * std::max<size_t>(2, nodes.p / nodes.lost.size()) : 1 + i) % nodes.p;
    while (taken[node]) node = (node + 1) % nodes.p;
    taken[node] = true;
    const uint32_t first = nodes.which == Lost::kNested    ? 0
                           : nodes.which == Lost::kShifted ? uint32_t(i)
                                                           : before;
    for (uint32_t lost = 0; lost < nodes.lost[i]; ++lost) nics[node * rails + (first + lost) % rails] = 0;
    before += nodes.lost[i];
  }
  return nics;
}

/// Every set of lost NICs once, if rails matter.
std::vector<std::vector<double>> all_nics(size_t p, uint32_t rails) {
  const std::vector<std::vector<uint32_t>> patterns{{1, 1},    {1, 2},    {2, 1},    {2, 2},      {3, 1},
                                                    {1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {1, 1, 1, 1}};
  std::vector<std::vector<double>> all;
  for (const auto& lost : patterns)
    for (const Lost which : {Lost::kNested, Lost::kShifted, Lost::kApart})
      for (const bool spread : {false, true}) {
        if (lost.size() >= p) continue;
        std::vector<double> nics = nics_of({p, lost, which, spread}, rails);
        if (rails_differ(nics, p) && std::find(all.begin(), all.end(), nics) == all.end())
          all.push_back(std::move(nics));
      }
  return all;
}

/// What is taken of some cases, and what it gains.
struct Count {
  size_t cases = 0, taken = 0, slower = 0;
  double gain = 0, worst = 0;
  void add(bool takes, double gains) {
    ++cases;
    if (!takes) return;
    ++taken;
    slower += gains < 0 ? 1 : 0;
    gain += gains;
    worst = std::min(worst, gains);
  }
  void add(const Count& other) {
    cases += other.cases, taken += other.taken, slower += other.slower, gain += other.gain;
    worst = std::min(worst, other.worst);
  }
};
/// By capacities alone and with NICs; without a margin and with the default one.
struct Counts {
  Count capacities, nics, capacities_with_margin, nics_with_margin;
  size_t newly = 0;  ///< taken with the default margin, and not by capacities alone
  double newly_gain = 0, newly_least = 1;
};

Counts count(const std::vector<double>& nics, size_t p, uint64_t mib, double gbits, uint32_t rails) {
  const uint64_t bytes = mib << 20, piece = piece_of_operation(bytes);
  Stream stream = degraded(p, 0.25, piece);
  stream.rails = rails;
  stream.nics = nics;
  for (size_t node = 0; node < p; ++node) {
    stream.capacities[node] = 0;
    for (size_t rail = 0; rail < rails; ++rail) stream.capacities[node] += nics[node * rails + rail] / rails;
  }
  stream.rate = gbits * 125e6 * rails;
  stream.operations = (bytes + piece - 1) / piece;
  Speeds speeds{.bytes_per_second = stream.rate, .rails = rails};
  const auto choice = [&](std::span<const double> known) {
    return plan(job_of(stream.capacities, piece, outstanding_for(piece), speeds, known)).value().choice();
  };
  const auto gain = [&](const Schedule& schedule, double balance) {
    size_t lanes = 0;
    for (const auto& of_rank : schedule.lanes) lanes = std::max(lanes, of_rank.size());
    Stream planned_for = stream;
    planned_for.slots = slots_for(lanes, rails);
    return 1 - run(planned_for, schedule) / balance;
  };
  const Job job = job_of(stream.capacities, piece, outstanding_for(piece), speeds);
  const Candidate natural = choice({}), other = choice(stream.nics);
  const Schedule by_capacities = build(job, natural), by_nics = build(job, other);
  const EngineAdvice alone = advise(stream.capacities, bytes, speeds);
  const double half = *std::min_element(stream.capacities.begin(), stream.capacities.end()) < 0.55 ? 1.12 : 1;
  const double needs = half * rails_need(by_capacities, stream.nics, rails) * alone.predicted_seconds;
  bool takes[2][2];
  for (const bool margin : {false, true}) {
    speeds.margin = margin ? kDefaultMargin : 1;
    takes[0][margin] =
        natural.algorithm != Algorithm::kRing && speeds.margin * needs < 0.97 * alone.ring_seconds;
    takes[1][margin] = advise(stream.capacities, bytes, speeds, stream.nics).engine;
  }
  const double first = takes[0][0] ? gain(by_capacities, alone.ring_seconds) : 0;
  const double second = takes[1][0] ? gain(by_nics, alone.ring_seconds) : 0;
  Counts counts;
  counts.capacities.add(takes[0][0], first);
  counts.nics.add(takes[1][0], second);
  counts.capacities_with_margin.add(takes[0][1], first);
  counts.nics_with_margin.add(takes[1][1], second);
  if (takes[1][1] && !takes[0][1]) counts.newly = 1, counts.newly_gain = counts.newly_least = second;
  return counts;
}

void add(Counts& all, const Counts& some) {
  all.capacities.add(some.capacities);
  all.nics.add(some.nics);
  all.capacities_with_margin.add(some.capacities_with_margin);
  all.nics_with_margin.add(some.nics_with_margin);
  all.newly += some.newly, all.newly_gain += some.newly_gain;
  all.newly_least = std::min(all.newly_least, some.newly_least);
}

void print(const std::string& title, const Counts& counts) {
  const auto line = [&](const char* margin, const Count& before, const Count& after) {
    std::printf(
        "%s, margin %s: %zu cases, taken %zu -> %zu, slower than Balance %zu -> %zu (worst %.3f -> %.3f), "
        "mean gain of all cases %.4f -> %.4f\n",
        title.c_str(), margin, after.cases, before.taken, after.taken, before.slower, after.slower,
        before.worst, after.worst, before.gain / double(before.cases), after.gain / double(after.cases));
  };
  line("1.00", counts.capacities, counts.nics);
  line("1.08", counts.capacities_with_margin, counts.nics_with_margin);
  if (counts.newly > 0)
    std::printf("%s, newly taken with margin 1.08: %zu, gain %.3f on average, %.3f at least\n", title.c_str(),
                counts.newly, counts.newly_gain / double(counts.newly), counts.newly_least);
  std::fflush(stdout);
}

Counts grid(const std::vector<size_t>& sizes, const std::vector<uint64_t>& mibs,
            const std::vector<double>& rates, uint32_t rails) {
  Counts all;
  for (const size_t p : sizes) {
    Counts of_size;
    for (const std::vector<double>& nics : all_nics(p, rails))
      for (const uint64_t mib : mibs)
        for (const double gbits : rates) add(of_size, count(nics, p, mib, gbits, rails));
    print(std::to_string(p) + " nodes of " + std::to_string(rails) + " NICs", of_size);
    add(all, of_size);
  }
  print("all", all);
  return all;
}

TEST(AdviseRails, more_is_taken_and_gains_more) {
  const Counts counts = grid({3, 4, 5}, {64}, {2.5}, 4);
  EXPECT_GT(counts.nics_with_margin.taken, counts.capacities_with_margin.taken + 15);
  EXPECT_EQ(counts.nics_with_margin.slower, 0u);
  EXPECT_GT(counts.nics_with_margin.gain, 1.2 * counts.capacities_with_margin.gain);
  EXPECT_GT(counts.nics.gain, 1.19 * counts.capacities.gain);
  EXPECT_GT(counts.newly_least, 0.1);
}

/// A row of the table in collective/README.md.
struct Row {
  uint32_t rails;
  bool margin;
  size_t taken_by_capacities, taken_by_nics, slower_by_capacities, slower_by_nics;
  double gain_by_capacities, gain_by_nics;  // mean of all cases
  double worst_by_nics;                     // of what is taken
};
constexpr Row kRows[] = {{4, true, 1164, 1214, 7, 4, 0.144, 0.152, -0.034},
                         {4, false, 1559, 1656, 43, 41, 0.165, 0.176, -0.238},
                         {8, true, 272, 286, 2, 2, 0.027, 0.028, -0.063},
                         {8, false, 518, 531, 64, 65, 0.033, 0.033, -0.136}};

/// About half an hour on one core.
Counts gains_what_the_page_says(uint32_t rails) {
  const Counts counts = grid({3, 4, 5, 6, 7, 8, 16}, {4, 16, 64}, {2.5, 10, 50}, rails);
  EXPECT_EQ(counts.nics.cases, 2223u);
  for (const Row& row : kRows) {
    if (row.rails != rails) continue;
    const Count& before = row.margin ? counts.capacities_with_margin : counts.capacities;
    const Count& after = row.margin ? counts.nics_with_margin : counts.nics;
    const auto where = testing::Message() << rails << " NICs, margin " << row.margin;
    EXPECT_NEAR(double(before.taken), double(row.taken_by_capacities), 5) << where;
    EXPECT_NEAR(double(after.taken), double(row.taken_by_nics), 5) << where;
    EXPECT_NEAR(double(before.slower), double(row.slower_by_capacities), 2) << where;
    EXPECT_LE(after.slower, row.slower_by_nics) << where;
    EXPECT_NEAR(before.gain / double(before.cases), row.gain_by_capacities, 0.0015) << where;
    EXPECT_NEAR(after.gain / double(after.cases), row.gain_by_nics, 0.0015) << where;
    EXPECT_GT(after.worst, row.worst_by_nics - 0.001) << where;
  }
  return counts;
}

TEST(AdviseRails, Long_gains_what_the_page_says_with_four_nics) {
  const Counts counts = gains_what_the_page_says(4);
  EXPECT_GE(counts.newly, 58u);
  EXPECT_GT(counts.newly_gain / double(counts.newly), 0.24);
  EXPECT_GT(counts.newly_least, 0.175);
}

TEST(AdviseRails, Long_gains_what_the_page_says_with_eight_nics) { gains_what_the_page_says(8); }

}  // namespace
}  // namespace r2ccl::collective
