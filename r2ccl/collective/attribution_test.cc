// SPDX-License-Identifier: Apache-2.0
// Which NICs are named from which links: all rings and full meshes of 3 to 8 nodes, with one slow NIC and with
// two, in both directions and in one; single slow links, congestion that moves, recovery link by link; and
// against a search of all sets of NICs.
#include "r2ccl/collective/attribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace r2ccl::collective {
namespace {

struct NicRates {
  double out = 1, in = 1;
};

bool has_link(bool ring, size_t nodes, size_t from, size_t to) {
  return ring ? to == (from + 1) % nodes : from != to;
}

/// What the senders of a rail see when its NICs carry this.
RailLinks seen(bool ring, const std::vector<NicRates>& nics) {
  RailLinks links(nics.size());
  for (size_t from = 0; from < nics.size(); ++from)
    for (size_t to = 0; to < nics.size(); ++to)
      if (has_link(ring, nics.size(), from, to)) links.at(from, to) = code_of(std::min(nics[from].out, nics[to].in));
  return links;
}

std::vector<CapacityCode> attributed(const RailLinks& links) { return attribute(links, {}); }

std::vector<CapacityCode> nominal(size_t nodes) { return std::vector<CapacityCode>(nodes, kNominal); }

TEST(Attribution, healthy_nics_and_unknown_links_name_nobody) {
  for (size_t nodes = 1; nodes <= 8; ++nodes) {
    EXPECT_EQ(attributed(RailLinks(nodes)), nominal(nodes));
    for (const bool ring : {true, false})
      EXPECT_EQ(attributed(seen(ring, std::vector<NicRates>(nodes))), nominal(nodes));
  }
}

TEST(Attribution, one_slow_nic_is_named_in_every_ring_and_mesh_of_three_nodes_and_more) {
  for (const bool ring : {true, false})
    for (size_t nodes = 3; nodes <= 8; ++nodes)
      for (size_t slow = 0; slow < nodes; ++slow)
        for (const double rate : {0.02, 0.25, 0.5, 0.75, 0.92}) {
          std::vector<NicRates> nics(nodes);
          nics[slow] = {rate, rate};
          auto wanted = nominal(nodes);
          wanted[slow] = code_of(rate);
          EXPECT_EQ(attributed(seen(ring, nics)), wanted) << nodes << " nodes, " << slow << " slow";
        }
}

TEST(Attribution, of_two_nodes_nothing_can_be_said) {
  for (const NicRates rates : {NicRates{0.5, 0.5}, NicRates{0.5, 1}, NicRates{1, 0.5}})
    EXPECT_EQ(attributed(seen(true, {rates, {}})), nominal(2));
}

// In a mesh all peers see it. In a ring it has one link in that direction, which the other end explains as well.
TEST(Attribution, a_nic_that_is_slow_in_one_direction) {
  for (size_t nodes = 3; nodes <= 8; ++nodes)
    for (size_t slow = 0; slow < nodes; ++slow)
      for (const NicRates rates : {NicRates{0.5, 1}, NicRates{1, 0.5}}) {
        std::vector<NicRates> nics(nodes);
        nics[slow] = rates;
        auto wanted = nominal(nodes);
        EXPECT_EQ(attributed(seen(true, nics)), wanted);
        wanted[slow] = code_of(0.5);
        EXPECT_EQ(attributed(seen(false, nics)), wanted);
      }
}

TEST(Attribution, the_slower_direction_is_what_a_nic_carries) {
  std::vector<NicRates> nics(4);
  nics[2] = {0.4, 0.7};
  EXPECT_EQ(attributed(seen(true, nics))[2], code_of(0.4));
  EXPECT_EQ(attributed(seen(false, nics))[2], code_of(0.4));
}

// Unless other NICs explain the same links: with three nodes any two of them do; in a ring of four, two
// that are opposite do as well as the two others.
TEST(Attribution, two_slow_nics) {
  for (const bool ring : {true, false})
    for (size_t nodes = 3; nodes <= 8; ++nodes)
      for (size_t one = 0; one < nodes; ++one)
        for (size_t other = one + 1; other < nodes; ++other) {
          std::vector<NicRates> nics(nodes);
          nics[one] = {0.5, 0.5};
          nics[other] = {0.25, 0.25};
          auto wanted = nominal(nodes);
          const bool ambiguous = nodes == 3 || (ring && nodes == 4 && other - one == 2);
          if (!ambiguous) wanted[one] = code_of(0.5), wanted[other] = code_of(0.25);
          EXPECT_EQ(attributed(seen(ring, nics)), wanted) << nodes << " nodes, " << one << " and " << other;
        }
}

TEST(Attribution, a_single_slow_link_names_nobody) {
  for (const bool ring : {true, false})
    for (size_t nodes = 2; nodes <= 8; ++nodes)
      for (size_t from = 0; from < nodes; ++from)
        for (size_t to = 0; to < nodes; ++to) {
          if (!has_link(ring, nodes, from, to)) continue;
          RailLinks links = seen(ring, std::vector<NicRates>(nodes));
          links.at(from, to) = code_of(0.3);
          EXPECT_EQ(attributed(links), nominal(nodes));
          RailLinks alone(nodes);
          alone.at(from, to) = code_of(0.3);
          EXPECT_EQ(attributed(alone), nominal(nodes));
        }
}

TEST(Attribution, congestion_that_moves_from_link_to_link_names_nobody) {
  std::mt19937 random(7);
  for (const bool ring : {true, false})
    for (size_t nodes = 3; nodes <= 8; ++nodes) {
      auto before = nominal(nodes);
      for (int step = 0; step < 200; ++step) {
        RailLinks links = seen(ring, std::vector<NicRates>(nodes));
        const size_t from = random() % nodes, to = ring ? (from + 1) % nodes : (from + 1 + random() % (nodes - 1)) % nodes;
        links.at(from, to) = code_of(0.2 + 0.1 * double(random() % 7));
        before = attribute(links, before);
        EXPECT_EQ(before, nominal(nodes));
      }
    }
}

// … and that of other links does not hide it, in a mesh.
TEST(Attribution, congestion_beside_a_slow_nic_of_a_mesh_leaves_it_named) {
  std::mt19937 random(8);
  for (size_t nodes = 4; nodes <= 8; ++nodes) {
    std::vector<NicRates> nics(nodes);
    nics[1] = {0.5, 0.5};
    auto wanted = nominal(nodes);
    wanted[1] = code_of(0.5);
    auto before = attribute(seen(false, nics), {});
    ASSERT_EQ(before, wanted);
    for (int step = 0; step < 200; ++step) {
      RailLinks links = seen(false, nics);
      size_t from = 1, to = 1;
      while (from == 1) from = random() % nodes;
      while (to == 1 || to == from) to = random() % nodes;
      links.at(from, to) = code_of(0.6);
      before = attribute(links, before);
      EXPECT_EQ(before, wanted) << from << " to " << to;
    }
  }
}

// One end notices before the other, and the first report of the two says nothing yet.
TEST(Attribution, begins_with_the_second_link_and_ends_with_the_last_one) {
  for (const size_t nodes : {3, 4, 8}) {
    std::vector<NicRates> nics(nodes);
    nics[1] = {0.5, 0.5};
    RailLinks links = seen(true, std::vector<NicRates>(nodes));
    auto slow = nominal(nodes);
    slow[1] = code_of(0.5);
    links.at(0, 1) = code_of(0.5);
    auto now = attribute(links, nominal(nodes));
    EXPECT_EQ(now, nominal(nodes));
    links.at(1, 2) = code_of(0.5);
    now = attribute(links, now);
    EXPECT_EQ(now, slow);
    links.at(0, 1) = kNominal;
    now = attribute(links, now);
    EXPECT_EQ(now, slow) << "a NIC that recovers is plan for plan the same until both its links are fast";
    links.at(1, 2) = kNominal;
    EXPECT_EQ(attribute(links, now), nominal(nodes));
  }
}

TEST(Attribution, what_is_certain_replaces_what_was_named_before) {
  std::vector<NicRates> nics(5);
  nics[2] = {0.5, 0.5};
  auto before = nominal(5);
  before[1] = code_of(0.3);  // has recovered at the moment at which the next one became slow
  auto wanted = nominal(5);
  wanted[2] = code_of(0.5);
  EXPECT_EQ(attribute(seen(true, nics), before), wanted);
}

TEST(Attribution, links_that_nobody_uses_do_not_count) {
  RailLinks links(4);
  links.at(0, 1) = links.at(1, 2) = code_of(0.5);  // the others are unknown
  auto wanted = nominal(4);
  wanted[1] = code_of(0.5);
  EXPECT_EQ(attributed(links), wanted);
}

TEST(Attribution, a_fast_link_clears_the_direction_of_both_its_nics) {
  RailLinks links(4);
  links.at(0, 1) = links.at(2, 1) = code_of(0.5);
  auto wanted = nominal(4);
  wanted[1] = code_of(0.5);
  EXPECT_EQ(attributed(links), wanted);
  links.at(3, 1) = kNominal;  // NIC 1 takes as much as it should: the senders are slow, with one link each
  EXPECT_EQ(attributed(links), nominal(4));
}

TEST(Attribution, many_slow_nics_are_left_alone_in_bounded_time) {
  const size_t nodes = 64;
  std::mt19937 random(9);
  RailLinks links(nodes);
  for (CapacityCode& link : links.link) link = random() % 2 != 0 ? code_of(0.5) : kNominal;
  EXPECT_EQ(attributed(links), nominal(nodes));
  for (CapacityCode& link : links.link) link = code_of(0.5);
  EXPECT_EQ(attributed(links), nominal(nodes));
}

// --- against all sets ---

bool explains(const RailLinks& links, unsigned set) {
  const size_t n = links.nodes;
  std::vector<bool> out(n, true), in(n, true);
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b)
      if (a != b && is_fast(links.at(a, b))) out[a] = in[b] = false;
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b)
      if (a != b && is_slow(links.at(a, b)) && !((set >> a & 1) && out[a]) && !((set >> b & 1) && in[b])) return false;
  return true;
}

TEST(Attribution, names_a_smallest_explanation_or_nobody) {
  std::mt19937 random(10);
  int named = 0;
  for (int round = 0; round < 20'000; ++round) {
    const size_t n = 3 + random() % 3;
    RailLinks links(n);
    for (size_t a = 0; a < n; ++a)
      for (size_t b = 0; b < n; ++b)
        if (a != b) links.at(a, b) = std::array<CapacityCode, 3>{kLinkUnknown, 5000, kNominal}[random() % 3];
    const auto answer = attributed(links);
    // By component, so a set that explains all may be larger than what is named: what is named is part of each.
    unsigned set = 0;
    for (size_t i = 0; i < n; ++i) set |= unsigned(answer[i] < kNominal) << i;
    if (set == 0) continue;
    ++named;
    int least = 99;
    for (unsigned other = 0; other < 1u << n; ++other)
      if (explains(links, other)) least = std::min(least, __builtin_popcount(other));
    if (least == 99) continue;  // another component has no explanation
    bool part = false;
    for (unsigned other = 0; other < 1u << n; ++other)
      part |= explains(links, other) && __builtin_popcount(other) == least && (other & set) == set;
    EXPECT_TRUE(part);
  }
  EXPECT_GT(named, 1000);
}

}  // namespace
}  // namespace r2ccl::collective
