// The rules of the agreement, explored: every order in which ranks begin operations and messages arrive, are
// lost, come twice or overtake each other, while capacities change, a proposal is given up and the
// coordinator dies. No operation ever begins under two views; when messages flow again every hold ends and
// everybody has the newest capacities. Each rule is switched off in turn, and the exploration finds what it
// is there for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/tests/model/explorer.h"

namespace r2ccl::collective {

/// Canonical bytes of the state machines.
struct AgreementInspector {
  std::vector<uint8_t>& out;

  void put(uint64_t value) { out.push_back(value == kNever ? 255 : uint8_t(value)); }
  void put_code(CapacityCode code) { out.push_back(uint8_t(code / 100)); }
  void put(const AgreementMessage& message) {
    put(uint64_t(message.type));
    put(message.sequences);
    put(message.epoch);
    for (const uint64_t point : message.points) put(point);
    put(message.capacities.size());
    for (const CapacityCode code : message.capacities) put_code(code);
  }
  void put(const Admission& admission) {
    put(admission.next_);
    put(admission.hold_);
    put(admission.views_.size());
    for (const auto& from : admission.views_) {
      put(from.number);
      put(from.view->epoch);
    }
  }
  void put(const Member& member) {
    put(member.pending_);
    put(member.ended_);
    for (const uint64_t point : member.points_) put(point);
    put(member.capacities_.size());
    for (const CapacityCode code : member.capacities_) put_code(code);
    put(member.report_taken_);
    put(member.report_.epoch);
    if (!member.report_taken_) put(member.report_);
  }
  void put(const Coordinator& coordinator) {
    put(uint64_t(coordinator.phase_));
    put(coordinator.epoch_);
    put(coordinator.covered_);
    put(coordinator.reported_);
    for (const auto& rank : coordinator.ranks_) {
      put(rank.report);
      put_code(rank.capacity);
      put(rank.sequences);
      put(uint64_t(rank.answered) | uint64_t(rank.took_decision) << 1);
      for (const uint64_t point : rank.points) put(rank.answered ? point : 0);
    }
    for (const CapacityCode code : coordinator.proposed_) put_code(code);
    for (const CapacityCode code : coordinator.view_) put_code(code);
    put(coordinator.decision_);
  }
};

namespace {

using Type = AgreementMessage::Type;

struct Setting {
  int ranks = 2;
  int sequences = 1;
  uint64_t operations = 3;  ///< of each sequence
  uint64_t ahead = 0;
  int changes = 2, losses = 0, copies = 0, aborts = 0, crashes = 0;
  bool report_at_once = false;  ///< reports are neither lost nor late
  bool in_order = false;        ///< messages between two ranks do not overtake each other
  bool holds = true;            ///< false: operations begin whatever was promised
  AgreementRules rules{};
};

struct Flight {
  int from, to;  // one of them is the coordinator: to_coordinator says which end
  bool to_coordinator;
  AgreementMessage message;
};

struct State {
  Coordinator coordinator;
  std::vector<Member> members;
  std::vector<std::array<Admission, kSequences>> admissions;
  std::vector<Flight> flights;
  std::vector<CapacityCode> capacities;
  std::array<std::vector<int>, kSequences> view_of;  // epoch by operation; -1: nobody has begun it
  int changes, losses, copies, aborts, crashes;
  bool dead = false;  // rank 0
  const char* violation = nullptr;
  std::string step;
};

const char* name(Type type) {
  switch (type) {
    case Type::kReport:
      return "report";
    case Type::kReportTaken:
      return "report taken";
    case Type::kPropose:
      return "propose";
    case Type::kReady:
      return "ready";
    case Type::kCommit:
      return "commit";
    case Type::kAbort:
      return "abort";
    case Type::kDone:
      return "done";
  }
  return "?";
}

std::string words_of(const Flight& flight) {
  return std::string(name(flight.message.type)) + " " + std::to_string(flight.message.epoch) +
         (flight.to_coordinator ? " of rank " + std::to_string(flight.from)
                                : " to rank " + std::to_string(flight.to));
}

class Model {
 public:
  using State = collective::State;
  static constexpr size_t kMaxBytes = 4096;

  explicit Model(Setting setting) : s_(setting) {}

  State initial() const {
    const auto healthy = std::make_shared<View>();
    State state{Coordinator(s_.ranks, s_.rules),
                {},
                {},
                {},
                {},
                {},
                s_.changes,
                s_.losses,
                s_.copies,
                s_.aborts,
                s_.crashes};
    for (int i = 0; i < s_.ranks; ++i) {
      state.members.emplace_back(s_.rules);
      state.admissions.push_back({Admission(healthy), Admission(healthy)});
      state.capacities.push_back(kNominal);
    }
    for (auto& views : state.view_of) views.assign(s_.operations, -1);
    return state;
  }

  size_t expand(const State& state, std::vector<State>& next) const {
    for (int rank = state.dead ? 1 : 0; rank < s_.ranks; ++rank)
      for (int sequence = 0; sequence < s_.sequences; ++sequence) begin(state, rank, sequence, next);
    for (size_t i = 0; i < state.flights.size(); ++i)
      if (!s_.in_order || first_of_its_way(state, i)) deliver(state, i, false, next);
    if (!state.dead && state.coordinator.due(kAllSequences)) propose(state, next);
    if (!state.dead && state.flights.empty()) repeat(state, next);
    const size_t own = next.size();

    if (state.losses > 0)
      for (size_t i = 0; i < state.flights.size(); ++i) {
        State lost = state;
        lost.step = words_of(state.flights[i]) + " is lost";
        lost.flights.erase(lost.flights.begin() + long(i));
        --lost.losses;
        next.push_back(std::move(lost));
      }
    if (state.copies > 0)
      for (size_t i = 0; i < state.flights.size(); ++i) deliver(state, i, true, next);
    if (state.changes > 0 && !state.dead) change(state, next);
    if (state.aborts > 0 && !state.dead && !state.coordinator.idle()) {
      State given_up = state;
      std::vector<Coordinator::Outgoing> out;
      given_up.coordinator.abort(out);
      if (!out.empty()) {
        --given_up.aborts;
        given_up.step = "the coordinator gives up";
        send(given_up, out);
        next.push_back(std::move(given_up));
      }
    }
    if (state.crashes > 0 && !state.dead) {
      State dead = state;
      dead.dead = true;
      --dead.crashes;
      dead.step = "rank 0 dies";
      std::erase_if(dead.flights, [](const Flight& f) { return f.to_coordinator || f.to == 0; });
      next.push_back(std::move(dead));
    }
    return own;
  }

  size_t bytes(const State& state, uint8_t* out) const {
    std::vector<uint8_t> all;
    AgreementInspector put{all};
    put.put(state.coordinator);
    for (int rank = 0; rank < s_.ranks; ++rank) {
      put.put(state.members[size_t(rank)]);
      for (int i = 0; i < s_.sequences; ++i) put.put(state.admissions[size_t(rank)][size_t(i)]);
      put.put_code(state.capacities[size_t(rank)]);
    }
    for (int i = 0; i < s_.sequences; ++i)
      for (const int epoch : state.view_of[size_t(i)]) put.put(uint64_t(epoch + 1));
    for (const int budget : {state.changes, state.losses, state.copies, state.aborts, state.crashes})
      put.put(uint64_t(budget));
    put.put(state.dead);
    std::vector<std::vector<uint8_t>> flights;
    for (const Flight& flight : state.flights) {
      std::vector<uint8_t> one;
      AgreementInspector{one}.put(uint64_t(flight.to_coordinator ? flight.from : 100 + flight.to));
      AgreementInspector{one}.put(flight.message);
      flights.push_back(std::move(one));
    }
    if (!s_.in_order) std::sort(flights.begin(), flights.end());
    for (const auto& flight : flights) all.insert(all.end(), flight.begin(), flight.end());
    if (all.size() > kMaxBytes) std::abort();
    std::copy(all.begin(), all.end(), out);
    return all.size();
  }

  const char* at_end(const State& state) const {
    if (!state.flights.empty()) return nullptr;
    for (int rank = state.dead ? 1 : 0; rank < s_.ranks; ++rank) {
      const Member& member = state.members[size_t(rank)];
      for (int i = 0; i < s_.sequences; ++i) {
        const Admission& admission = state.admissions[size_t(rank)][size_t(i)];
        if (admission.holding() != member.pending()) return "a hold without an agreement";
        if (admission.next() < s_.operations && !admission.holding()) return "an operation does not begin";
        if (state.dead) continue;
        if (admission.next() < s_.operations) return "a hold that does not end";
        const ViewPointer& newest = admission.newest();
        for (int node = 0; node < s_.ranks; ++node) {
          const CapacityCode seen =
              newest->capacities.empty() ? kNominal : code_of(newest->capacities[size_t(node)]);
          if (seen != state.capacities[size_t(node)]) return "not everybody has the newest capacities";
        }
      }
    }
    return nullptr;
  }
  std::string words(const State& state) const { return state.step; }

 private:
  void begin(const State& state, int rank, int sequence, std::vector<State>& next) const {
    const Admission& now = state.admissions[size_t(rank)][size_t(sequence)];
    const uint64_t number = now.next();
    if (number >= s_.operations) return;
    State after = state;
    Admission& admission = after.admissions[size_t(rank)][size_t(sequence)];
    const ViewPointer view = admission.admit(number);
    if (!view) return;
    after.step = "rank " + std::to_string(rank) + " begins operation " + std::to_string(number) +
                 " under view " + std::to_string(view->epoch);
    int& known = after.view_of[size_t(sequence)][number];
    if (known >= 0 && known != int(view->epoch)) after.violation = "an operation under two views";
    known = int(view->epoch);
    next.push_back(std::move(after));
  }

  bool first_of_its_way(const State& state, size_t index) const {
    const Flight& flight = state.flights[index];
    for (size_t i = 0; i < index; ++i) {
      const Flight& before = state.flights[i];
      if (before.to_coordinator == flight.to_coordinator && before.from == flight.from &&
          before.to == flight.to)
        return false;
    }
    return true;
  }

  void deliver(const State& state, size_t index, bool keep, std::vector<State>& next) const {
    State after = state;
    const Flight flight = state.flights[index];
    after.step = words_of(flight) + (keep ? " arrives, and will again" : " arrives");
    if (keep) {
      --after.copies;
    } else {
      after.flights.erase(after.flights.begin() + long(index));
    }
    if (flight.to_coordinator) {
      std::vector<Coordinator::Outgoing> out;
      after.coordinator.on_message(flight.from, flight.message, out);
      send(after, out);
    } else {
      hear(after, flight.to, flight.message);
    }
    next.push_back(std::move(after));
  }

  void hear(State& state, int rank, const AgreementMessage& message) const {
    Member& member = state.members[size_t(rank)];
    auto& admissions = state.admissions[size_t(rank)];
    Points points{};
    points.fill(kNever);
    if (member.takes(message))
      for (int i = 0; i < s_.sequences; ++i)
        points[size_t(i)] =
            s_.holds ? admissions[size_t(i)].hold(s_.ahead) : admissions[size_t(i)].next() + s_.ahead;
    std::optional<Decision> decision;
    const auto answer = member.on_message(message, points, decision);
    if (decision)
      for (int i = 0; i < s_.sequences; ++i)
        admissions[size_t(i)].resume(decision->from[size_t(i)], decision->view);
    if (answer) answer_to(state, rank, *answer);
  }

  void answer_to(State& state, int rank, const AgreementMessage& message) const {
    if (!state.dead) state.flights.push_back({rank, 0, true, message});
  }
  void send(State& state, const std::vector<Coordinator::Outgoing>& out) const {
    for (const auto& one : out) state.flights.push_back({0, one.to, false, one.message});
  }

  void propose(const State& state, std::vector<State>& next) const {
    State after = state;
    std::vector<Coordinator::Outgoing> out;
    after.coordinator.propose(kAllSequences, out);
    after.step = "proposal " + std::to_string(after.coordinator.epoch());
    send(after, out);
    next.push_back(std::move(after));
  }

  void repeat(const State& state, std::vector<State>& next) const {
    State after = state;
    std::vector<Coordinator::Outgoing> out;
    for (int rank = 0; rank < s_.ranks; ++rank) {
      after.coordinator.unanswered(rank, out);
      for (const AgreementMessage& message : after.members[size_t(rank)].unanswered())
        answer_to(after, rank, message);
    }
    send(after, out);
    if (after.flights.empty()) return;
    after.step = "what is not answered is said again";
    next.push_back(std::move(after));
  }

  /// First the last rank degrades, then rank 0; a third time the last one recovers.
  void change(const State& state, std::vector<State>& next) const {
    State after = state;
    const int number = s_.changes - after.changes--;
    const int rank = number % 2 == 0 ? s_.ranks - 1 : 0;
    const CapacityCode code = number == 0 ? 5000 : number == 1 ? 7500 : kNominal;
    after.capacities[size_t(rank)] = code;
    after.step = "rank " + std::to_string(rank) + " has capacity " + std::to_string(code);
    const AgreementMessage report = after.members[size_t(rank)].report(code, kAllSequences);
    if (s_.report_at_once) {
      std::vector<Coordinator::Outgoing> taken;
      after.coordinator.on_message(rank, report, taken);
      hear(after, rank, taken[0].message);
    } else {
      answer_to(after, rank, report);
    }
    next.push_back(std::move(after));
  }

  Setting s_;
};

model::Outcome explored(const Setting& setting, uint64_t limit = 30'000'000) {
  const model::Outcome outcome = model::explore(Model(setting), limit);
  std::printf("%llu states, %llu steps, at most %u in a row, %.1f s: %s\n",
              static_cast<unsigned long long>(outcome.states), static_cast<unsigned long long>(outcome.steps),
              outcome.longest, outcome.seconds,
              outcome.violation.empty() ? "right" : outcome.violation.c_str());
  return outcome;
}

void expect_right(const Setting& setting) {
  const model::Outcome outcome = explored(setting);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_TRUE(outcome.complete);
  EXPECT_GT(outcome.ends, 0u);
  for (const std::string& step : outcome.trace) std::printf("  %s\n", step.c_str());
}

void expect_found(const Setting& setting, const std::string& violation) {
  const model::Outcome outcome = explored(setting);
  EXPECT_EQ(outcome.violation, violation);
}

constexpr const char* kTwoViews = "an operation under two views";

TEST(AgreementModel, two_ranks_two_changes_reordered_messages) {
  expect_right({.ranks = 2, .operations = 3, .changes = 2});
}
TEST(AgreementModel, operations_ahead_of_the_ready) {
  expect_right({.ranks = 2, .operations = 3, .ahead = 1, .changes = 2, .report_at_once = true});
}
TEST(AgreementModel, reports_are_lost_and_repeated) {
  expect_right({.ranks = 2, .operations = 1, .changes = 2, .losses = 1, .in_order = true});
}
TEST(AgreementModel, messages_are_lost) {
  expect_right({.ranks = 2, .operations = 2, .changes = 2, .losses = 1, .report_at_once = true});
}
TEST(AgreementModel, messages_are_repeated) {
  expect_right({.ranks = 2, .operations = 2, .changes = 2, .copies = 1, .report_at_once = true});
}
TEST(AgreementModel, a_proposal_is_given_up) {
  expect_right({.ranks = 2, .operations = 2, .changes = 1, .losses = 1, .aborts = 1, .report_at_once = true});
}
TEST(AgreementModel, the_coordinator_dies) {
  expect_right(
      {.ranks = 2, .operations = 2, .changes = 2, .losses = 1, .crashes = 1, .report_at_once = true});
}
TEST(AgreementModel, two_sequences) {
  expect_right({.ranks = 2, .sequences = 2, .operations = 2, .changes = 2, .report_at_once = true});
}
TEST(AgreementModel, three_ranks) {
  expect_right({.ranks = 3, .operations = 2, .changes = 1, .copies = 1, .report_at_once = true});
}
TEST(AgreementModel, three_ranks_the_coordinator_dies) {
  expect_right({.ranks = 3, .operations = 2, .changes = 1, .crashes = 1, .report_at_once = true});
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

TEST(ReportPacer, bursts_are_one_report_and_small_changes_become_rare) {
  constexpr uint64_t kMs = 1'000'000;
  ReportPacer pacer(10 * kMs);
  EXPECT_EQ(pacer.due(kNominal, kNominal, 0), kNever);
  EXPECT_EQ(pacer.due(5000, kNominal, 100 * kMs), 110 * kMs);
  EXPECT_EQ(pacer.due(4000, kNominal, 105 * kMs), 110 * kMs);  // still the same burst
  pacer.done(110 * kMs);
  EXPECT_EQ(pacer.due(4000, 4000, 110 * kMs), kNever);
  EXPECT_EQ(pacer.due(kNominal, 4000, 111 * kMs), 160 * kMs);  // a large change waits for the least pause
  EXPECT_EQ(pacer.due(4000, 4000, 112 * kMs), kNever);         // and has gone by itself
  uint64_t now = 1000 * kMs, last = 0;
  for (int i = 0; i < 10; ++i) {
    const uint64_t when = pacer.due(4200, 4000, now);
    EXPECT_GE(when - now, last);
    last = when - now;
    now = when;
    pacer.done(now);
  }
  EXPECT_EQ(last, 2000 * kMs);
  EXPECT_EQ(pacer.due(9000, 4000, now + kMs), now + 50 * kMs);  // a failure does not wait for that
  EXPECT_EQ(pacer.due(4000, 4000, now + kMs), kNever);
  now += 20'000 * kMs;
  EXPECT_EQ(pacer.due(4200, 4000, now), now + 10 * kMs);
  pacer.done(now + 10 * kMs);
  EXPECT_EQ(pacer.due(4000, 4200, now + 11 * kMs), now + 60 * kMs);  // all quiet since: as in the beginning
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
  coordinator.on_message(0, members[0].report(kNominal, kAllSequences), out);
  coordinator.on_message(1, members[1].report(5000, bit(Sequence::kEngine)), out);
  run({});
  ASSERT_TRUE(coordinator.due(kAllSequences));
  coordinator.propose(kAllSequences, out);
  auto decision = run({3, kNever});
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->from, (Points{5, kNever}));
  EXPECT_FALSE(coordinator.due(kAllSequences));
  coordinator.on_message(1, members[1].report(5000, kAllSequences), out);
  run({});
  EXPECT_FALSE(coordinator.due(bit(Sequence::kEngine)));
  ASSERT_TRUE(coordinator.due(kAllSequences));
  coordinator.propose(kAllSequences, out);
  decision = run({9, 8});
  EXPECT_EQ(decision->from, (Points{9, 8}));
  EXPECT_FALSE(coordinator.due(kAllSequences));
}

// Deeper: minutes.
TEST(DeepAgreementModel, every_fault_at_once) {
  expect_right({.ranks = 2,
                .operations = 2,
                .changes = 1,
                .losses = 1,
                .copies = 1,
                .aborts = 1,
                .crashes = 1,
                .report_at_once = true});
}
TEST(DeepAgreementModel, two_lost_messages) {
  expect_right({.ranks = 2, .operations = 3, .changes = 2, .losses = 2, .report_at_once = true});
}
TEST(DeepAgreementModel, three_ranks_a_lost_message) {
  expect_right({.ranks = 3, .operations = 2, .changes = 1, .losses = 1, .report_at_once = true});
}
TEST(DeepAgreementModel, two_changes_and_a_proposal_given_up) {
  expect_right({.ranks = 2, .operations = 2, .changes = 2, .copies = 1, .aborts = 1, .report_at_once = true});
}
TEST(DeepAgreementModel, three_changes) {
  expect_right({.ranks = 2, .operations = 3, .ahead = 1, .changes = 3, .report_at_once = true});
}
TEST(DeepAgreementModel, three_ranks_two_changes) {
  expect_right({.ranks = 3, .operations = 1, .changes = 2, .report_at_once = true});
}

// Each rule is needed: without it the exploration finds an execution that is wrong.
Setting without(bool AgreementRules::*rule, Setting setting) {
  setting.rules.*rule = false;
  return setting;
}
constexpr Setting kPlain{.ranks = 2, .operations = 3, .changes = 2, .report_at_once = true};
constexpr Setting kCopies{.ranks = 2, .operations = 3, .changes = 2, .copies = 1, .report_at_once = true};
constexpr Setting kAborts{.ranks = 2, .operations = 3, .changes = 2, .aborts = 1, .report_at_once = true};

TEST(AgreementRule, operations_are_held) {
  Setting setting = kPlain;
  setting.holds = false;
  expect_found(setting, kTwoViews);
}
TEST(AgreementRule, the_largest_point) {
  expect_found(without(&AgreementRules::the_largest_point, kPlain), kTwoViews);
}
TEST(AgreementRule, everybody_is_ready) {
  expect_found(without(&AgreementRules::everybody_is_ready, kPlain), kTwoViews);
}
TEST(AgreementRule, answers_of_this_epoch) {
  expect_found(without(&AgreementRules::answers_of_this_epoch, kAborts), kTwoViews);
}
TEST(AgreementRule, points_are_kept) {
  Setting setting = kCopies;
  setting.operations = 4;
  setting.ahead = 1;
  expect_found(without(&AgreementRules::points_are_kept, setting), kTwoViews);
}
TEST(AgreementRule, one_at_a_time) {
  // The commit that a member has lost would never be repeated.
  const Setting setting{.ranks = 2, .operations = 1, .changes = 2, .losses = 1, .report_at_once = true};
  expect_found(without(&AgreementRules::one_at_a_time, setting), "a run that goes on for ever");
}
TEST(AgreementRule, decisions_are_final) {
  expect_found(without(&AgreementRules::decisions_are_final, kAborts), kTwoViews);
}
TEST(AgreementRule, commits_count_once) {
  expect_found(without(&AgreementRules::commits_count_once, kCopies), kTwoViews);
}
TEST(AgreementRule, ended_epochs_stay) {
  expect_found(without(&AgreementRules::ended_epochs_stay,
                       {.ranks = 2, .operations = 1, .changes = 1, .copies = 1, .report_at_once = true}),
               "a run that goes on for ever");
}
TEST(AgreementRule, unanswered_is_repeated) {
  expect_found(without(&AgreementRules::unanswered_is_repeated,
                       {.ranks = 2, .changes = 1, .losses = 1, .report_at_once = true}),
               "a hold that does not end");
}

}  // namespace
}  // namespace r2ccl::collective
