// SPDX-License-Identifier: Apache-2.0
// Test support: a coordinator, its ranks and the messages between them, as states that an exploration walks
// through. A Setting says what may happen (loss, repetition, death, a proposal given up) and which rule is off.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/tests/model/explorer.h"

namespace r2ccl::collective {

/// Canonical bytes of the state machines.
struct AgreementInspector {
  std::vector<uint8_t>& out;

  void put(uint64_t value) { out.push_back(value == kNever ? 255 : uint8_t(value)); }
  void put_code(CapacityCode code) {
    out.push_back(uint8_t(without_reason(code) / 100 + (code == without_reason(code) ? 0 : 128)));
  }
  void put(const NodeCodes& codes) {
    for (const CapacityCode code : codes) put_code(code);
  }
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
      put(rank.told);
      put(rank.links);
      put(rank.codes);
      put(rank.sequences);
      put(uint64_t(rank.answered) | uint64_t(rank.took_decision) << 1);
      for (const uint64_t point : rank.points) put(rank.answered ? point : 0);
    }
    for (const NodeCodes& of_nic : coordinator.named_) put(of_nic);
    for (const NodeCodes& codes : coordinator.proposed_) put(codes);
    for (const NodeCodes& codes : coordinator.view_) put(codes);
    put(coordinator.decision_);
  }
};

namespace agreement_model {

using Type = AgreementMessage::Type;

struct Setting {
  int ranks = 2;
  size_t nics = 0;  ///< with them a change is one of a NIC, and the node as a whole stays as it was
  /// Changes are of links: those of node 1's only NIC become slow, one end after the other.
  bool links = false;
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
  std::vector<NodeCodes> capacities;
  std::array<std::vector<int>, kSequences> view_of;  // epoch by operation; -1: nobody has begun it
  int changes, losses, copies, aborts, crashes;
  bool dead = false;  // rank 0
  const char* violation = nullptr;
  std::string step;
};

inline const char* name(Type type) {
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

inline std::string words_of(const Flight& flight) {
  return std::string(name(flight.message.type)) + " " + std::to_string(flight.message.epoch) +
         (flight.to_coordinator ? " of rank " + std::to_string(flight.from)
                                : " to rank " + std::to_string(flight.to));
}

class Model {
 public:
  using State = agreement_model::State;
  static constexpr size_t kMaxBytes = 4096;

  explicit Model(Setting setting) : s_(setting) {}

  State initial() const {
    const auto healthy = std::make_shared<View>();
    State state{Coordinator(s_.ranks, s_.rules, s_.nics),
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
      state.members.emplace_back(s_.rules, s_.nics);
      state.admissions.push_back({Admission(healthy), Admission(healthy)});
      state.capacities.push_back(NodeCodes(1 + s_.nics, kNominal));
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
      put.put(state.capacities[size_t(rank)]);
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
          if (codes_in(*newest, node) != state.capacities[size_t(node)])
            return "not everybody has the newest capacities";
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

  NodeCodes codes_in(const View& view, int node) const {
    NodeCodes codes(1 + s_.nics, kNominal);
    if (view.capacities.empty()) return codes;
    codes[0] = code_of(view.capacities[size_t(node)]);
    for (size_t nic = 0; nic < s_.nics; ++nic) codes[1 + nic] = code_of(view.nics[size_t(node) * s_.nics + nic]);
    return codes;
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
    if (s_.links) return slow_link(std::move(after), number, next);
    const int rank = number % 2 == 0 ? s_.ranks - 1 : 0;
    const CapacityCode code = number == 0 ? 5000 : number == 1 ? 7500 : kNominal;
    NodeCodes& codes = after.capacities[size_t(rank)];
    codes.back() = code;
    after.step = "rank " + std::to_string(rank) + " has capacity " + std::to_string(code);
    tell(after, rank, after.members[size_t(rank)].report(codes, kAllSequences));
    next.push_back(std::move(after));
  }

  /// Rank 0 finds its link to rank 1 slow, then rank 1 that to rank 2: NIC 1 carries half.
  void slow_link(State after, int rank, std::vector<State>& next) const {
    LinkCodes links(size_t(s_.ranks), 0);
    links[size_t(rank + 1)] = 5000;
    if (rank == 1) after.capacities[1] = {5000, 5000};
    after.step = "rank " + std::to_string(rank) + " has a slow link";
    tell(after, rank, after.members[size_t(rank)].report({kNominal, kNominal}, kAllSequences, links));
    next.push_back(std::move(after));
  }

  void tell(State& after, int rank, const AgreementMessage& report) const {
    if (s_.report_at_once) {
      std::vector<Coordinator::Outgoing> taken;
      after.coordinator.on_message(rank, report, taken);
      hear(after, rank, taken[0].message);
    } else {
      answer_to(after, rank, report);
    }
  }

  Setting s_;
};

}  // namespace agreement_model
}  // namespace r2ccl::collective
