// SPDX-License-Identifier: Apache-2.0
// Test support: what a coordinator, its ranks and the messages between them may do next, for an exploration.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/report.h"
#include "r2ccl/collective/testing/agreement_inspector.h"
#include "r2ccl/collective/testing/agreement_state.h"
#include "r2ccl/tests/model/explorer.h"

namespace r2ccl::collective {

namespace agreement_model {

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
      state.links.emplace_back(size_t(s_.ranks) * s_.nics);
      state.taken.push_back(*healthy);
    }
    for (auto& views : state.view_of) views.assign(s_.operations, -1);
    if (s_.trial) know_slow_nic(state);
    return state;
  }

  size_t expand(const State& state, std::vector<State>& next) const {
    for (int rank = state.dead ? 1 : 0; rank < s_.ranks; ++rank)
      for (int sequence = 0; sequence < s_.sequences; ++sequence) begin(state, rank, sequence, next);
    for (size_t i = 0; i < state.flights.size(); ++i)
      if (!s_.in_order || first_of_its_way(state, i)) deliver(state, i, false, next);
    for (int rank = state.dead ? 1 : 0; rank < s_.ranks; ++rank)
      if (state.links[size_t(rank)].changed()) report_links(state, rank, next);
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
      put.put(state.links[size_t(rank)]);
      for (const double nic : state.taken[size_t(rank)].nics) put.put_code(code_of(nic));
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
    for (int rank = 0; rank < s_.ranks && !state.dead; ++rank)
      if (AgreementInspector::differ(state.coordinator, rank, state.links[size_t(rank)]))
        return "rank 0 does not know of the links what their rank does";
    const std::vector<NodeCodes> capacities = capacities_now(state);
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
          if (codes_in(*newest, node) != capacities[size_t(node)])
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
    if (decision && decision->view) {
      const View before = std::exchange(state.taken[size_t(rank)], *decision->view);
      state.links[size_t(rank)].forget(links_tried(before, *decision->view, size_t(rank)));
    }
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
    if (s_.links || s_.trial) return change_link(std::move(after), number, next);
    const int rank = number % 2 == 0 ? s_.ranks - 1 : 0;
    const CapacityCode code = number == 0 ? 5000 : number == 1 ? 7500 : kNominal;
    NodeCodes& codes = after.capacities[size_t(rank)];
    codes.back() = code;
    after.step = "rank " + std::to_string(rank) + " has capacity " + std::to_string(code);
    tell(after, rank, after.members[size_t(rank)].report(codes, kAllSequences));
    next.push_back(std::move(after));
  }

  /// A rank finds that its link to another one has another rate.
  struct Found {
    int rank, peer;
    CapacityCode link;
  };
  static constexpr std::array<Found, 2> kSlowNic{{{0, 1, 5000}, {1, 2, 5000}}};  // in a ring: the NIC of rank 1
  static constexpr std::array<Found, 3> kTrial{{{0, 1, kNominal}, {2, 1, 5000}, {0, 1, 5000}}};

  void change_link(State after, int number, std::vector<State>& next) const {
    const Found& found = s_.trial ? kTrial[size_t(number)] : kSlowNic[size_t(number)];
    find(after, found);
    after.step = "rank " + std::to_string(found.rank) + " finds its link to rank " + std::to_string(found.peer) +
                 (found.link == kNominal ? " fast" : " slow");
    next.push_back(std::move(after));
  }
  void find(State& state, const Found& found) const {
    LinkCodes links(size_t(s_.ranks), kLinkUnknown);  // one NIC each
    links[size_t(found.peer)] = found.link;
    state.links[size_t(found.rank)].set(links);
  }

  void report_links(const State& state, int rank, std::vector<State>& next) const {
    State after = state;
    after.step = "rank " + std::to_string(rank) + " reports its links";
    const NodeCodes& codes = after.capacities[size_t(rank)];
    tell(after, rank, after.members[size_t(rank)].report(codes, kAllSequences, after.links[size_t(rank)].tell()));
    next.push_back(std::move(after));
  }

  /// Without anything else that may happen.
  void know_slow_nic(State& state) const {
    for (const int rank : {0, 2}) {
      find(state, {rank, 1, 5000});
      answer_to(state, rank, state.members[size_t(rank)].report(NodeCodes(2, kNominal), kAllSequences, state.links[size_t(rank)].tell()));
    }
    std::vector<State> next;
    for (bool proposed = false; !state.flights.empty() || !proposed; next.clear()) {
      if (state.flights.empty()) {
        propose(state, next);
        proposed = true;
      } else {
        deliver(state, 0, false, next);
      }
      state = next.back();
    }
  }

  /// What all of them together show, whatever was known before.
  std::vector<NodeCodes> capacities_now(const State& state) const {
    if (!s_.links && !s_.trial) return state.capacities;
    Coordinator fresh(s_.ranks, {}, s_.nics);
    std::vector<NodeCodes> codes;
    for (int rank = 0; rank < s_.ranks; ++rank) {
      OwnLinks links = state.links[size_t(rank)];
      std::vector<Coordinator::Outgoing> taken;
      fresh.on_message(rank, Member({}, s_.nics).report(state.capacities[size_t(rank)], kAllSequences, links.tell()), taken);
    }
    for (int rank = 0; rank < s_.ranks; ++rank) {
      codes.push_back(AgreementInspector::codes(fresh, rank));
      for (CapacityCode& code : codes.back()) code = without_reason(code);
    }
    return codes;
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
