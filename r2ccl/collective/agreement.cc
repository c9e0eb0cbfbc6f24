// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/collective/agreement.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "r2ccl/collective/attribution.h"

namespace r2ccl::collective {

using Type = AgreementMessage::Type;

CapacityCode code_of(double relative) {
  if (!(relative > 0)) return 0;
  return CapacityCode(std::lround(std::min(relative, 1.0) * kNominal));
}

bool differ(CapacityCode one, CapacityCode other) {
  const int larger = std::max(one, other);
  return std::abs(int(one) - int(other)) * 100 >= larger * 3 && one != other;
}

bool nics_differ(CapacityCode one, CapacityCode other) {
  return std::abs(int(one) - int(other)) * 100 >= std::max(one, other) * 8 && one != other;
}

NodeCodes codes_of(const NodeCapacity& capacity, size_t nics) {
  NodeCodes codes{code_of(capacity.whole)};
  for (size_t i = 0; i < std::min(nics, kMostNics); ++i) codes.push_back(code_of(capacity.nics[i]));
  return codes;
}

bool differ(const NodeCodes& one, const NodeCodes& other) {
  if (differ(one[0], other[0])) return true;
  for (size_t i = 1; i < one.size(); ++i)
    if (nics_differ(without_reason(one[i]), without_reason(other[i]))) return true;
  return false;
}

std::string in_words(const View& view) {
  std::string words;
  const size_t ranks = view.capacities.size(), nics = view.nics.size() / std::max<size_t>(1, ranks);
  char one[64];
  for (size_t i = 0; i < ranks; ++i) {
    NodeCapacity node(view.capacities[i]);
    for (size_t nic = 0; nic < nics; ++nic) node.nics[nic] = view.nics[i * nics + nic];
    if (!differ(codes_of(node, nics), codes_of({}, nics))) continue;
    std::snprintf(one, sizeof one, "%snode %zu has capacity %.2f", words.empty() ? "" : ", ", i, node.whole);
    words += one;
    for (size_t nic = 0; nic < nics; ++nic) {
      const bool measured = i * nics + nic < view.measured.size() && view.measured[i * nics + nic] != 0;
      std::snprintf(one, sizeof one, "%s%.2f%s", nic == 0 ? " (its NICs " : ", ", node.nics[nic],
                    measured ? " by the rates of its links" : "");
      words += one;
    }
    if (nics > 0) words += ")";
  }
  if (words.empty()) words = "all nodes are healthy";
  if (view.engine_pace < 1) {
    std::snprintf(one, sizeof one, ", the host engine takes %.2f times as long as predicted",
                  1 / view.engine_pace);
    words += one;
  }
  return words;
}

// --- one sequence ---

ViewPointer Admission::admit(uint64_t number) {
  if (number >= hold_) return nullptr;
  begun_until(number + 1);
  return views_.front().view;
}

void Admission::begun_until(uint64_t next) {
  next_ = std::max(next_, next);
  while (views_.size() > 1 && views_[1].number < next_) views_.erase(views_.begin());
}

uint64_t Admission::limit() const { return std::min(hold_, views_.size() > 1 ? views_[1].number : kNever); }

uint64_t Admission::hold(uint64_t ahead) { return hold_ = next_ + ahead; }

void Admission::resume(uint64_t from, ViewPointer view) {
  hold_ = kNever;
  if (!view || from == kNever) return;
  // Of two views from the same operation on, the newer one holds. Hold points grow with the operations that
  // have begun, so no newer view begins before an older one.
  while (views_.back().number >= from && views_.size() > 1) views_.pop_back();
  if (from == 0) views_.clear();
  views_.push_back({from, std::move(view)});
}

// --- a member ---

AgreementMessage Member::report(NodeCodes codes, uint8_t sequences, std::span<const CapacityCode> links,
                                CapacityCode engine_pace) {
  report_.type = Type::kReport;
  report_.sequences = sequences;
  ++report_.epoch;
  report_.heard = ended_;
  report_.engine_pace = engine_pace;
  report_.capacities = std::move(codes);
  report_.capacities.insert(report_.capacities.end(), links.begin(), links.end());
  report_taken_ = false;
  return report_;
}

bool Member::takes(const AgreementMessage& message) const {
  if (message.type != Type::kPropose) return false;
  if (pending_ != 0) return !rules_.points_are_kept && message.epoch == pending_;
  return message.epoch > ended_ || !rules_.ended_epochs_stay;
}

AgreementMessage Member::ready() const {
  AgreementMessage answer;
  answer.type = Type::kReady;
  answer.epoch = pending_;
  answer.points = points_;
  return answer;
}

ViewPointer Member::proposed_view() const {
  auto view = std::make_shared<View>();
  view->engine_pace = capacity_of(engine_pace_);
  for (size_t i = 0; i < capacities_.size(); ++i) {
    const CapacityCode code = without_reason(capacities_[i]);
    if (i % (1 + nics_) == 0) {
      view->capacities.push_back(capacity_of(code));
    } else {
      view->nics.push_back(capacity_of(code));
      view->measured.push_back(code != capacities_[i]);
    }
  }
  return view;
}

std::optional<AgreementMessage> Member::on_message(const AgreementMessage& message, const Points& points,
                                                   std::optional<Decision>& decision) {
  decision.reset();
  AgreementMessage done;
  done.type = Type::kDone;
  done.epoch = message.epoch;
  switch (message.type) {
    case Type::kPropose:
      if (takes(message)) {
        pending_ = message.epoch;
        points_ = points;
        capacities_ = message.capacities;
        engine_pace_ = message.engine_pace;
      }
      if (message.epoch != pending_) return std::nullopt;
      return ready();
    case Type::kCommit:
      if (message.epoch == pending_ || (message.epoch <= ended_ && !rules_.commits_count_once)) {
        auto view = std::make_shared<View>(*proposed_view());
        view->epoch = message.epoch;
        decision = Decision{message.epoch, message.points, std::move(view)};
        ended_ = std::max(ended_, message.epoch);
        pending_ = 0;
        return done;
      }
      if (message.epoch <= ended_) return done;
      return std::nullopt;
    case Type::kAbort:
      if (message.epoch == pending_) {
        decision = Decision{message.epoch, {}, nullptr};
        pending_ = 0;
      }
      if (pending_ != 0 && message.epoch > pending_) return std::nullopt;
      ended_ = std::max(ended_, message.epoch);  // its proposal may still be under way
      return done;
    case Type::kReportTaken:
      if (message.epoch == report_.epoch) report_taken_ = true;
      return std::nullopt;
    case Type::kReport:
    case Type::kReady:
    case Type::kDone:
      break;
  }
  return std::nullopt;
}

std::vector<AgreementMessage> Member::unanswered() const {
  std::vector<AgreementMessage> out;
  if (!rules_.unanswered_is_repeated) return out;
  if (!report_taken_) out.push_back(report_);
  if (pending_ != 0) out.push_back(ready());
  return out;
}

// --- the coordinator ---

Coordinator::Coordinator(int ranks, AgreementRules rules, size_t nics)
    : rules_(rules),
      nics_(nics),
      ranks_(size_t(ranks)),
      named_(nics, NodeCodes(size_t(ranks), kNominal)),
      tried_(size_t(ranks) * nics),
      view_(size_t(ranks), NodeCodes(1 + nics, kNominal)) {
  for (Rank& rank : ranks_) rank.codes = rank.told = NodeCodes(1 + nics, kNominal);
}

// A NIC carries what its port says or what its links do, whichever is less, and its node so much less.
void Coordinator::assess() {
  const auto slow = [](const Rank& rank) { return std::any_of(rank.links.begin(), rank.links.end(), is_slow); };
  const bool any_slow = std::any_of(ranks_.begin(), ranks_.end(), slow);
  if (!any_slow && !any_named_) {  // as a rule
    for (Rank& rank : ranks_) rank.codes = rank.told;
    return;
  }
  any_named_ = false;
  for (size_t nic = 0; nic < nics_; ++nic) {
    RailLinks links(ranks_.size());
    for (size_t from = 0; from < ranks_.size(); ++from)
      for (size_t to = 0; to < ranks_.size() && !ranks_[from].links.empty(); ++to)
        if (from != to) links.at(from, to) = ranks_[from].links[to * nics_ + nic];
    NodeCodes named = attribute(links, named_[nic]);
    for (size_t i = 0; i < named.size(); ++i) {  // a rate that was measured is never twice the same
      const CapacityCode before = named_[nic][i];
      if (named[i] < kNominal && before < kNominal && !nics_differ(named[i], before)) named[i] = before;
    }
    named_[nic] = std::move(named);
    any_named_ = any_named_ || named_[nic] != NodeCodes(ranks_.size(), kNominal);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    rank.codes = rank.told;
    uint32_t told = 0, carried = 0;
    for (size_t nic = 0; nic < nics_; ++nic) {
      const CapacityCode by_port = rank.told[1 + nic];
      const CapacityCode by_links = named_[nic][i] < kLeastByLinks ? kNominal : named_[nic][i];
      told += by_port;
      carried += std::min(by_port, by_links);
      if (by_links < by_port) rank.codes[1 + nic] = CapacityCode(by_links | kMeasured);
    }
    if (carried < told) rank.codes[0] = CapacityCode(uint32_t(rank.told[0]) * carried / told);
  }
}

CapacityCode Coordinator::slowest_engine() const {
  CapacityCode slowest = kNominal;
  for (const Rank& rank : ranks_) slowest = std::min(slowest, rank.engine_pace);
  return slowest;
}

uint8_t Coordinator::counted_by_all() const {
  uint8_t all = kAllSequences;
  for (const Rank& rank : ranks_) all &= rank.sequences;
  return all;
}

bool Coordinator::due(uint8_t sequences) const {
  if (phase_ == Phase::kCollecting || (phase_ == Phase::kDeciding && rules_.one_at_a_time)) return false;
  const auto& newest = phase_ == Phase::kDeciding ? proposed_ : view_;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (differ(ranks_[i].codes, newest[i])) return true;
  if (differ(slowest_engine(), phase_ == Phase::kDeciding ? proposed_pace_ : engine_pace_)) return true;
  return reported_ && (counted_by_all() & sequences & ~covered_) != 0;
}

AgreementMessage Coordinator::proposal() const {
  AgreementMessage message;
  message.type = Type::kPropose;
  message.epoch = epoch_;
  message.sequences = sequences_;
  message.engine_pace = proposed_pace_;
  for (const NodeCodes& codes : proposed_)
    message.capacities.insert(message.capacities.end(), codes.begin(), codes.end());
  return message;
}

void Coordinator::propose(uint8_t sequences, std::vector<Outgoing>& out) {
  phase_ = Phase::kCollecting;
  ++epoch_;
  sequences_ = sequences;
  reported_ = false;
  proposed_pace_ = slowest_engine();
  proposed_.clear();
  for (Rank& rank : ranks_) {
    proposed_.push_back(rank.codes);
    rank.answered = rank.took_decision = false;
  }
  for (size_t i = 0; i < ranks_.size(); ++i) out.push_back({int(i), proposal()});
}

void Coordinator::abort(std::vector<Outgoing>& out) {
  if (phase_ == Phase::kIdle || (phase_ == Phase::kDeciding && rules_.decisions_are_final)) return;
  decide(Type::kAbort, out);
}

void Coordinator::decide(Type type, std::vector<Outgoing>& out) {
  phase_ = Phase::kDeciding;
  decision_ = {};
  decision_.type = type;
  decision_.epoch = epoch_;
  if (type == Type::kCommit) {
    const auto smaller = [](uint64_t a, uint64_t b) { return a < b; };
    for (size_t s = 0; s < kSequences; ++s) {
      uint64_t from = ranks_[0].points[s];
      for (const Rank& rank : ranks_) {
        if (!rank.answered) continue;
        from = rules_.the_largest_point ? std::max(from, rank.points[s], smaller)
                                        : std::min(from, rank.points[s], smaller);
      }
      decision_.points[s] = (sequences_ >> s & 1) != 0 ? from : kNever;
    }
    try_nics();
  }
  for (size_t i = 0; i < ranks_.size(); ++i) out.push_back({int(i), decision_});
}

// A member forgets what it measured of these links when it hears of the decision (links_tried), and has heard of none
// yet. What it reports before counts no more, and what it finds afterwards does, although others hear of it later.
void Coordinator::try_nics() {
  const auto slow = [](const NodeCodes& codes, size_t nic) { return (codes[1 + nic] & kMeasured) != 0; };
  bool any = false;
  for (size_t i = 0; i < ranks_.size(); ++i)
    for (size_t nic = 0; nic < nics_; ++nic)
      if (slow(view_[i], nic) && !slow(proposed_[i], nic)) {
        tried_[i * nics_ + nic] = epoch_;
        any = true;
      }
  if (!any) return;
  for (size_t i = 0; i < ranks_.size(); ++i) forget_tried(i, epoch_ - 1);
  assess();
}

// What rank `from` measured before a trial of a NIC that it had not heard of.
void Coordinator::forget_tried(size_t from, uint64_t heard) {
  LinkCodes& links = ranks_[from].links;
  for (size_t link = 0; link < links.size(); ++link)
    if (std::max(tried_[link], tried_[from * nics_ + link % nics_]) > heard) links[link] = kLinkUnknown;
}

void Coordinator::end_of_decision() {
  phase_ = Phase::kIdle;
  if (decision_.type != Type::kCommit) {
    reported_ = true;
    return;
  }
  view_ = proposed_;
  engine_pace_ = proposed_pace_;
  covered_ = 0;
  for (size_t s = 0; s < kSequences; ++s)
    if (decision_.points[s] != kNever) covered_ |= uint8_t(1u << s);
}

void Coordinator::on_message(int from, const AgreementMessage& message, std::vector<Outgoing>& out) {
  Rank& rank = ranks_[size_t(from)];
  switch (message.type) {
    case Type::kReport: {
      const size_t links = ranks_.size() * nics_;
      const bool with_links = message.capacities.size() == rank.told.size() + links;
      if (message.epoch > rank.report && (with_links || message.capacities.size() == rank.told.size())) {
        rank.report = message.epoch;
        const auto end_of_codes = message.capacities.begin() + std::ptrdiff_t(rank.told.size());
        rank.told.assign(message.capacities.begin(), end_of_codes);
        rank.links.assign(end_of_codes, message.capacities.end());
        if (rules_.trials_end_reports) forget_tried(size_t(from), message.heard);
        assess();
        rank.sequences = message.sequences;
        rank.engine_pace = message.engine_pace;
        reported_ = true;
      }
      AgreementMessage taken;
      taken.type = Type::kReportTaken;
      taken.epoch = message.epoch;
      out.push_back({from, taken});
      return;
    }
    case Type::kReady:
      if (phase_ == Phase::kDeciding && message.epoch == epoch_) out.push_back({from, decision_});
      if (phase_ != Phase::kCollecting || (message.epoch != epoch_ && rules_.answers_of_this_epoch)) return;
      rank.answered = true;
      rank.points = message.points;
      if (!rules_.everybody_is_ready ||
          std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.answered; }))
        decide(Type::kCommit, out);
      return;
    case Type::kDone:
      if (phase_ != Phase::kDeciding || message.epoch != epoch_) return;
      rank.took_decision = true;
      if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.took_decision; }))
        end_of_decision();
      return;
    case Type::kPropose:
    case Type::kReportTaken:
    case Type::kCommit:
    case Type::kAbort:
      return;
  }
}

void Coordinator::unanswered(int to, std::vector<Outgoing>& out) const {
  if (!rules_.unanswered_is_repeated) return;
  const Rank& rank = ranks_[size_t(to)];
  if (phase_ == Phase::kCollecting && !rank.answered) out.push_back({to, proposal()});
  if (phase_ == Phase::kDeciding && !rank.took_decision) out.push_back({to, decision_});
}

}  // namespace r2ccl::collective
