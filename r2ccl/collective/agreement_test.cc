// SPDX-License-Identifier: Apache-2.0
// The parts of the agreement by themselves: what a coordinator proposes, and what a member makes of it.
// agreement_model_test.cc explores them together.
#include "r2ccl/collective/agreement.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "r2ccl/collective/attribution.h"
#include "r2ccl/collective/report.h"

namespace r2ccl::collective {
namespace {

using Type = AgreementMessage::Type;

/// Everything that is under way arrives; `decided(rank, view)` of each rank that takes a new one.
template <typename Decided>
void deliver(Coordinator& coordinator, std::vector<Member>& members, std::vector<Coordinator::Outgoing>& out, Decided decided) {
  while (!out.empty()) {
    const auto [to, message] = out.front();
    out.erase(out.begin());
    std::optional<Decision> decision;
    if (const auto answer = members[size_t(to)].on_message(message, {}, decision)) coordinator.on_message(to, *answer, out);
    if (decision && decision->view) decided(size_t(to), *decision->view);
  }
}

TEST(Admission, answers_with_the_view_of_each_operation) {
  const auto view = [](uint64_t epoch) {
    auto made = std::make_shared<View>();
    made->epoch = epoch;
    return made;
  };
  Admission admission(view(0));
  EXPECT_EQ(admission.limit(), kNever);
  EXPECT_EQ(admission.admit(0)->epoch, 0u);
  EXPECT_EQ(admission.hold(2), 3u);
  EXPECT_EQ(admission.admit(1)->epoch, 0u);
  EXPECT_EQ(admission.admit(2)->epoch, 0u);
  EXPECT_EQ(admission.admit(3), nullptr);
  admission.resume(5, view(1));
  EXPECT_EQ(admission.limit(), 5u);
  EXPECT_EQ(admission.admit(3)->epoch, 0u);
  EXPECT_EQ(admission.hold(4), 8u);
  admission.resume(8, view(2));
  EXPECT_EQ(admission.admit(4)->epoch, 0u);
  EXPECT_EQ(admission.admit(5)->epoch, 1u);
  EXPECT_EQ(admission.admit(7)->epoch, 1u);
  EXPECT_EQ(admission.limit(), 8u);
  EXPECT_EQ(admission.admit(8)->epoch, 2u);
  EXPECT_EQ(admission.hold(0), 9u);
  EXPECT_EQ(admission.admit(9), nullptr);
  admission.resume(0, nullptr);  // an abort
  EXPECT_EQ(admission.admit(9)->epoch, 2u);
}

TEST(Capacity, changes_below_three_percent_make_no_difference) {
  EXPECT_FALSE(differ(code_of(1), code_of(0.98)));
  EXPECT_TRUE(differ(code_of(1), code_of(0.97)));
  EXPECT_FALSE(differ(code_of(0.50), code_of(0.49)));
  EXPECT_TRUE(differ(code_of(0.50), code_of(0.48)));
  EXPECT_TRUE(differ(code_of(0), code_of(0.01)));
  EXPECT_FALSE(differ(code_of(0), code_of(-1)));
}

TEST(Capacity, a_nic_makes_a_difference_from_eight_percent_on) {
  NodeCapacity one, other;
  other.nics[1] = 0.93;
  EXPECT_FALSE(differ(codes_of(one, 2), codes_of(other, 2)));
  other.nics[1] = 0.91;
  EXPECT_TRUE(differ(codes_of(one, 2), codes_of(other, 2)));
  EXPECT_FALSE(differ(codes_of(one, 1), codes_of(other, 1)));  // not of the group
  EXPECT_TRUE(differ(codes_of(NodeCapacity(0.97), 2), codes_of(one, 2)));
}

/// Reports of `links[rank]`, each of all ranks on `nics` NICs; then what the coordinator proposes, if anything.
std::vector<CapacityCode> proposed(const std::vector<NodeCodes>& codes, const std::vector<LinkCodes>& links, size_t nics) {
  Coordinator coordinator(int(codes.size()), {}, nics);
  std::vector<Coordinator::Outgoing> out;
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    Member member({}, nics);
    coordinator.on_message(int(rank), member.report(codes[rank], kAllSequences, links[rank]), out);
  }
  out.clear();
  if (!coordinator.due(bit(Sequence::kEngine))) return {};
  coordinator.propose(bit(Sequence::kEngine), out);
  return out.front().message.capacities;
}

TEST(Agreement, proposes_what_links_show_of_a_nic_and_says_that_they_do) {
  // Two NICs per node; the second one of node 1 carries half, its port says nothing of that.
  const NodeCodes well{kNominal, kNominal, kNominal};
  const LinkCodes none(6, kLinkUnknown);
  const auto to = [&](size_t peer, CapacityCode second) {
    LinkCodes links = none;
    links[2 * peer] = kNominal;
    links[2 * peer + 1] = second;
    return links;
  };
  const CapacityCode measured = 5000 | kMeasured;
  EXPECT_EQ(proposed({well, well, well}, {to(1, 5000), to(2, 5000), to(0, kNominal)}, 2),
            (std::vector<CapacityCode>{kNominal, kNominal, kNominal, 7500, kNominal, measured, kNominal, kNominal, kNominal}));
  EXPECT_TRUE(proposed({well, well, well}, {to(1, 5000), none, none}, 2).empty());
  EXPECT_TRUE(proposed({well, well, well}, {none, none, none}, 2).empty());
  // So little that no plan can count on it.
  EXPECT_FALSE(proposed({well, well, well}, {to(1, kLeastByLinks), to(2, kLeastByLinks), none}, 2).empty());
  EXPECT_TRUE(proposed({well, well, well}, {to(1, kLeastByLinks - 1), to(2, kLeastByLinks - 1), none}, 2).empty());
  // The port says as much: then that is the reason.
  const NodeCodes slow_port{7500, kNominal, 5000};
  EXPECT_EQ(proposed({well, slow_port, well}, {to(1, 5000), to(2, 5000), none}, 2)[5], 5000);
  // … or less, or more.
  const NodeCodes lost{5000, kNominal, 0};
  EXPECT_EQ(proposed({well, lost, well}, {to(1, 5000), to(2, 5000), none}, 2)[3], 5000);
  const NodeCodes a_little{9000, kNominal, 8000};
  const auto both = proposed({well, a_little, well}, {to(1, 5000), to(2, 5000), none}, 2);
  EXPECT_EQ(both[5], measured);
  EXPECT_EQ(both[3], 9000 * 15000 / 18000);
}

TEST(Agreement, a_view_says_which_capacities_were_measured) {
  Member member({}, 2);
  AgreementMessage message;
  message.type = AgreementMessage::Type::kPropose;
  message.epoch = 1;
  message.capacities = {7500, kNominal, 5000 | kMeasured, kNominal, 5000, kNominal};
  std::optional<Decision> decision;
  ASSERT_TRUE(member.on_message(message, {}, decision));
  message.type = AgreementMessage::Type::kCommit;
  ASSERT_TRUE(member.on_message(message, {}, decision));
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->view->capacities, (std::vector<double>{0.75, 1}));
  EXPECT_EQ(decision->view->nics, (std::vector<double>{1, 0.5, 0.5, 1}));
  EXPECT_EQ(decision->view->measured, (std::vector<uint8_t>{0, 1, 0, 0}));
}

TEST(Agreement, a_recovered_nic_leads_to_a_new_proposal) {
  Coordinator coordinator(3, {}, 1);
  std::vector<Member> members(3, Member({}, 1));
  std::vector<Coordinator::Outgoing> out;
  const auto report = [&](int rank, CapacityCode link) {
    LinkCodes links(3, kLinkUnknown);
    links[size_t(rank + 1) % 3] = link;
    coordinator.on_message(rank, members[size_t(rank)].report({kNominal, kNominal}, kAllSequences, links), out);
  };
  const auto agree = [&] { deliver(coordinator, members, out, [](size_t, const View&) {}); };
  const uint8_t engine = bit(Sequence::kEngine);
  report(0, 5000), report(1, 5000), report(2, kNominal);
  ASSERT_TRUE(coordinator.due(engine));
  coordinator.propose(engine, out);
  agree();
  EXPECT_FALSE(coordinator.due(engine));
  report(0, 5200), report(1, 5300);  // a little more: no new plan
  EXPECT_FALSE(coordinator.due(engine));
  report(0, kNominal);  // one end of it: not yet
  EXPECT_FALSE(coordinator.due(engine));
  report(1, kNominal);
  EXPECT_TRUE(coordinator.due(engine));
}

// Of a job's ranks the slowest engine counts; it is tried again when all have given up their reason.
TEST(Agreement, the_slowest_engine_counts) {
  Coordinator coordinator(3);
  std::vector<Member> members(3);
  std::vector<Coordinator::Outgoing> out;
  std::vector<double> paces(3, 1);
  const auto report = [&](int rank, CapacityCode pace) {
    coordinator.on_message(rank, members[size_t(rank)].report({kNominal}, kAllSequences, {}, pace), out);
  };
  const auto agree = [&] {
    const bool due = coordinator.due(kAllSequences);
    if (due) coordinator.propose(kAllSequences, out);
    deliver(coordinator, members, out, [&](size_t rank, const View& view) {
      paces[rank] = view.engine_pace;
      EXPECT_EQ(view.capacities, std::vector<double>(3, 1));
    });
    return due;
  };
  for (int rank = 0; rank < 3; ++rank) report(rank, kNominal);
  agree();
  report(2, 5000);
  EXPECT_TRUE(agree());
  EXPECT_EQ(paces, std::vector<double>(3, 0.5));
  report(0, 8000);
  EXPECT_FALSE(agree());
  report(2, 4900);
  EXPECT_FALSE(agree()) << "a difference that is worth no new view";
  report(1, 2500);
  EXPECT_TRUE(agree());
  EXPECT_EQ(paces, std::vector<double>(3, 0.25));
  report(1, kNominal);
  EXPECT_TRUE(agree());
  EXPECT_EQ(paces, std::vector<double>(3, 0.49));
  report(2, kNominal);
  EXPECT_TRUE(agree());
  EXPECT_EQ(paces, std::vector<double>(3, 0.8));
  report(0, kNominal);
  EXPECT_TRUE(agree());
  EXPECT_EQ(paces, std::vector<double>(3, 1));
}

// A late proposal that is over comes between a new one and its decision.
TEST(Agreement, a_view_has_the_pace_of_its_own_proposal) {
  Member member;
  AgreementMessage first, second, decided;
  first.type = second.type = Type::kPropose;
  first.epoch = 1;
  second.epoch = decided.epoch = 2;
  first.capacities = second.capacities = {kNominal, kNominal};
  first.engine_pace = 9000;
  second.engine_pace = 5000;
  decided.type = Type::kCommit;
  std::optional<Decision> decision;
  ASSERT_TRUE(member.on_message(second, {}, decision));
  member.on_message(first, {}, decision);
  ASSERT_TRUE(member.on_message(decided, {}, decision));
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->view->engine_pace, 0.5);
}

// All messages of an epoch have one pace; what is reported meanwhile is for the next one.
TEST(Agreement, a_pace_that_is_reported_during_an_agreement_is_for_the_next_one) {
  Coordinator coordinator(2);
  std::vector<Member> members(2);
  std::vector<Coordinator::Outgoing> out;
  const auto report = [&](CapacityCode pace) {
    return members[1].report({kNominal}, kAllSequences, {}, pace);
  };
  coordinator.on_message(0, members[0].report({kNominal}, kAllSequences), out);
  const AgreementMessage overtaken = report(2000);
  coordinator.on_message(1, report(5000), out);
  coordinator.on_message(1, overtaken, out);
  ASSERT_TRUE(coordinator.due(kAllSequences));
  out.clear();
  coordinator.propose(kAllSequences, out);
  ASSERT_EQ(out.size(), 2u);
  std::vector<Coordinator::Outgoing> answers, again;
  coordinator.on_message(1, report(2500), answers);  // the proposal is lost, and sent again
  coordinator.unanswered(1, again);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].message.engine_pace, 5000);
  std::vector<double> paces;
  deliver(coordinator, members, out, [&](size_t, const View& view) { paces.push_back(view.engine_pace); });
  EXPECT_EQ(paces, (std::vector<double>{0.5, 0.5}));
  EXPECT_TRUE(coordinator.due(kAllSequences));
}

// In a mesh, and then NCCL's ring goes on, in which the NIC's other links carry nothing any more.
TEST(Agreement, what_links_showed_before_a_trial_names_no_nic_again) {
  Coordinator coordinator(4, {}, 1);
  std::vector<Member> members(4, Member({}, 1));
  std::vector<View> views(4);
  std::vector<LinkCodes> links(4, LinkCodes(4, kLinkUnknown));
  std::vector<Coordinator::Outgoing> out;
  const auto report = [&](size_t rank) {
    coordinator.on_message(int(rank), members[rank].report({kNominal, kNominal}, kAllSequences, links[rank]), out);
  };
  const auto agree = [&] {
    deliver(coordinator, members, out, [&](size_t to, const View& view) {
      for (const size_t link : links_tried(std::exchange(views[to], view), views[to], to)) links[to][link] = kLinkUnknown;
    });
  };
  const uint8_t engine = bit(Sequence::kEngine);
  for (const size_t from : {0, 2, 3}) links[from][1] = 5000;
  for (size_t rank = 0; rank < 4; ++rank) report(rank);
  ASSERT_TRUE(coordinator.due(engine));
  coordinator.propose(engine, out);
  agree();
  ASSERT_EQ(views[0].nics, (std::vector<double>{1, 0.5, 1, 1}));
  EXPECT_EQ(links[2][1], 5000);
  // One link is as fast as it should be, so the NIC cannot be slow; two others have not been measured since.
  links[0][1] = kNominal;
  links[0][2] = 5000;  // else a member tells nothing of fast ones
  report(0);
  ASSERT_TRUE(coordinator.due(engine));
  coordinator.propose(engine, out);
  agree();
  ASSERT_EQ(views[2].nics, (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(links[2][1], kLinkUnknown);
  EXPECT_EQ(links[3][1], kLinkUnknown);
  EXPECT_EQ(links[0][2], 5000) << "of another NIC";
  // Rank 0 has no slow link any more, so it does not tell of its fast ones either.
  links[0].assign(4, kLinkUnknown);
  report(0);
  EXPECT_FALSE(coordinator.due(engine));
  // Two links of the NIC are found slow anew.
  links[2][1] = links[3][1] = 4000;
  report(2), report(3);
  EXPECT_TRUE(coordinator.due(engine));
}

// The members hear of a trial one after the other, and what they find meanwhile comes before, between and after that.
TEST(Agreement, links_count_by_the_view_under_which_they_were_measured) {
  const uint8_t engine = bit(Sequence::kEngine);
  LinkCodes slow(4, kLinkUnknown), fast(4, kLinkUnknown);
  slow[1] = 5000;
  fast[1] = kNominal;
  for (const bool late : {false, true}) {
    Coordinator coordinator(4, {}, 1);
    std::vector<Member> members(4, Member({}, 1));
    std::vector<Coordinator::Outgoing> out;
    const auto report = [&](size_t rank, const LinkCodes& links) {
      return members[rank].report({kNominal, kNominal}, kAllSequences, links);
    };
    const auto arrives = [&](size_t rank, const AgreementMessage& message) {
      std::vector<Coordinator::Outgoing> taken;
      coordinator.on_message(int(rank), message, taken);
    };
    for (const size_t rank : {0, 2, 3}) arrives(rank, report(rank, slow));
    coordinator.propose(engine, out);
    deliver(coordinator, members, out, [](size_t, const View&) {});
    arrives(0, report(0, fast));
    ASSERT_TRUE(coordinator.due(engine));
    coordinator.propose(engine, out);
    std::vector<Coordinator::Outgoing> commits;
    std::optional<Decision> decision;
    for (const auto& [to, message] : out)
      coordinator.on_message(to, *members[size_t(to)].on_message(message, {}, decision), commits);
    ASSERT_EQ(commits.size(), 4u);
    const AgreementMessage measured_before = report(3, slow);  // it has not heard of the commit
    if (!late) arrives(3, measured_before);
    std::vector<AgreementMessage> done;
    for (const auto& [to, message] : commits) done.push_back(*members[size_t(to)].on_message(message, {}, decision));
    if (late) arrives(3, measured_before);
    arrives(2, report(2, slow));  // before rank 0 knows that it has heard of the commit
    for (size_t rank = 0; rank < 4; ++rank) arrives(rank, done[rank]);
    EXPECT_TRUE(coordinator.idle());
    EXPECT_FALSE(coordinator.due(engine)) << "only rank 2 has found it slow since";
    arrives(3, report(3, slow));
    EXPECT_TRUE(coordinator.due(engine));
  }
}

// A coordinator's group that does not decide for the tuner, or a rank that does not count its operations: the
// tuner's sequence keeps its view, and gets the newest one as soon as all count.
TEST(Agreement, a_sequence_that_somebody_does_not_count_keeps_its_view) {
  Coordinator coordinator(2);
  Member members[2];
  std::vector<Coordinator::Outgoing> out;
  const auto run = [&](const Points& of_rank_1) {
    std::optional<Decision> last;
    while (!out.empty()) {
      const auto [to, message] = out.front();
      out.erase(out.begin());
      std::optional<Decision> decision;
      const auto answer = members[to].on_message(message, to == 0 ? Points{5, 6} : of_rank_1, decision);
      if (decision) last = decision;
      if (answer) coordinator.on_message(to, *answer, out);
    }
    return last;
  };
  coordinator.on_message(0, members[0].report({kNominal}, kAllSequences), out);
  coordinator.on_message(1, members[1].report({5000}, bit(Sequence::kEngine)), out);
  run({});
  ASSERT_TRUE(coordinator.due(kAllSequences));
  coordinator.propose(kAllSequences, out);
  auto decision = run({3, kNever});
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->from, (Points{5, kNever}));
  EXPECT_FALSE(coordinator.due(kAllSequences));
  coordinator.on_message(1, members[1].report({5000}, kAllSequences), out);
  run({});
  EXPECT_FALSE(coordinator.due(bit(Sequence::kEngine)));
  ASSERT_TRUE(coordinator.due(kAllSequences));
  coordinator.propose(kAllSequences, out);
  decision = run({9, 8});
  EXPECT_EQ(decision->from, (Points{9, 8}));
  EXPECT_FALSE(coordinator.due(kAllSequences));
}

TEST(View, in_words_says_which_nodes_and_nics_are_degraded) {
  View view{.capacities = {1, 1}, .nics = {1, 1, 1, 1}};
  EXPECT_EQ(in_words(view), "all nodes are healthy");
  view.capacities[1] = 0.75;
  view.nics[2] = 0.5;
  EXPECT_EQ(in_words(view), "node 1 has capacity 0.75 (its NICs 0.50, 1.00)");
  view.measured = {0, 0, 1, 0};
  EXPECT_EQ(in_words(view), "node 1 has capacity 0.75 (its NICs 0.50 by the rates of its links, 1.00)");
  EXPECT_EQ(in_words({.capacities = {0.5, 1}}), "node 0 has capacity 0.50");
  EXPECT_EQ(in_words({.capacities = {0.5, 1}, .engine_pace = 0.5}),
            "node 0 has capacity 0.50, the host engine takes 2.00 times as long as predicted");
}

}  // namespace
}  // namespace r2ccl::collective
