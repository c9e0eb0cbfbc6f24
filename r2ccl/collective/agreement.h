// SPDX-License-Identifier: Apache-2.0
// The rules by which the ranks of a group take new capacities at the same operation, whatever fails
// meanwhile. Pure: messages in, messages out; no clock, no threads, no sockets (host/plan_agreement.h has
// them). Messages may be lost, repeated, delayed and overtake each other; no rank ever begins an operation
// under another view than any other rank.
//
// Rank 0 is the coordinator, and a member as all are. It proposes an epoch with the capacities of all nodes.
// Each member answers READY with the first operation that it will not begin before it hears the decision: its
// hold point, kAhead operations beyond the next one. When all have answered, the coordinator commits: the new
// view holds from operation N on, the largest of the hold points, in each sequence. No operation N or later
// has begun anywhere, and none begins before its rank has heard of N. Until everybody has answered, the
// coordinator may abort: then the old view goes on. A decision is final, and the next proposal waits until
// everybody has confirmed it.
//
// A coordinator that dies after a READY leaves its members at their hold points: they cannot know the
// decision. No collective of the group can complete then, and the owner reports that as an error.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace r2ccl::collective {

/// What is counted: a view holds from an operation number on in each of them.
enum class Sequence : uint8_t {
  kEngine,  ///< operations of the Group, by all_reduce() and its kin
  kTuner,   ///< AllReduces that NCCL asks the tuner about, of the communicator
};
inline constexpr int kSequences = 2;
constexpr uint8_t bit(Sequence sequence) { return uint8_t(1u << unsigned(sequence)); }
inline constexpr uint8_t kAllSequences = (1u << kSequences) - 1;

using Points = std::array<uint64_t, kSequences>;  ///< an operation number in each sequence
inline constexpr uint64_t kNever = ~uint64_t{0};
/// Operations that a rank may still begin after its READY, so that a control round trip stops nobody. (None
/// if the engine has begun none for some time.)
inline constexpr uint64_t kAhead = 4;
/// … of the tuner's, each of which is a whole collective: better the next one waits for a round trip than
/// that it goes the slower way.
inline constexpr uint64_t kTunerAhead = 0;

struct View {
  uint64_t epoch = 0;              ///< 0: from the beginning, all healthy
  std::vector<double> capacities;  ///< of each rank's node, relative to its nominal one: 0 … 1
  /// Of the NICs that the group uses, likewise: those of rank 0 in the group's order, then those of rank 1, …
  /// Empty: all NICs of a node alike.
  std::vector<double> nics;
  /// Of the same NICs: 1 where this is what its links carry (attribution.h), not what its port says. Empty:
  /// of none.
  std::vector<uint8_t> measured;
  /// How fast the host engine is, relative to what is predicted: of the slowest rank (engine_pace.h).
  double engine_pace = 1;
};
using ViewPointer = std::shared_ptr<const View>;

/// A capacity as it travels: all ranks compute with exactly the same numbers.
using CapacityCode = uint16_t;
inline constexpr CapacityCode kNominal = 10'000;
CapacityCode code_of(double relative);
inline double capacity_of(CapacityCode code) { return double(code) / kNominal; }
/// Is the difference worth a new plan? From 3 % of the larger one on.
bool differ(CapacityCode one, CapacityCode other);
/// … of a NIC, or of a link: from 8 % of the larger one on.
bool nics_differ(CapacityCode one, CapacityCode other);
/// In a proposal, beside a NIC's capacity: it is what its links carry, not what its port says.
inline constexpr CapacityCode kMeasured = 0x8000;
constexpr CapacityCode without_reason(CapacityCode code) { return CapacityCode(code & ~kMeasured); }

/// NICs of a node in a group, at most.
inline constexpr size_t kMostNics = 8;
/// What a node can carry now, relative to nominal: as a whole, and on each NIC of the group.
struct NodeCapacity {
  double whole = 1;
  std::array<double, kMostNics> nics;
  double engine_pace = 1;  ///< of this rank's host engine, relative to what is predicted
  NodeCapacity(double of_the_whole = 1) : whole(of_the_whole) { nics.fill(1); }
};
/// The same as it travels: the whole, then each NIC.
using NodeCodes = std::vector<CapacityCode>;
NodeCodes codes_of(const NodeCapacity& capacity, size_t nics);
/// The whole node, or one of its NICs.
bool differ(const NodeCodes& one, const NodeCodes& other);
/// For the log: "node 2 has capacity 0.75 (its NICs 0.00, 1.00, 1.00, 1.00)", or "all nodes are healthy". A NIC
/// whose port does not say so has "0.50 by the rates of its links".
std::string in_words(const View& view);

/// What a rank's links carry, relative to those of its other NICs to the same peer (attribution.h): to rank 0
/// on each NIC of the group, then to rank 1, … Empty: nothing is known of any.
using LinkCodes = std::vector<CapacityCode>;

struct AgreementMessage {
  enum class Type : uint8_t {
    kReport =
        1,  ///< member: its capacity, what its links carry, its engine's pace, the sequences that it counts
    kReportTaken,  ///< coordinator
    kPropose,      ///< coordinator: everybody's capacities, and the sequences that the view is for
    kReady,        ///< member: its hold points
    kCommit,       ///< coordinator: where the view begins
    kAbort,        ///< coordinator
    kDone,         ///< member: has taken the decision
  };
  Type type = Type::kReport;
  uint8_t sequences = 0;  ///< kReport, kPropose
  uint64_t epoch = 0;     ///< of kReport and kReportTaken: the report's number
  Points points{};        ///< kReady, kCommit
  uint64_t heard = 0;     ///< kReport: the newest epoch whose decision the member had heard when it reported
  CapacityCode engine_pace = kNominal;  ///< kReport: the rank's; kPropose: that of the slowest
  /// kReport: a node's codes, then its links to each rank on each NIC; kPropose: the codes of all ranks in
  /// turn
  std::vector<CapacityCode> capacities;

  bool operator==(const AgreementMessage&) const = default;
};

/// Switched off one at a time by the explorer, which shows that each is needed. Nobody else does.
struct AgreementRules {
  bool the_largest_point = true;      ///< N is the largest hold point, not the smallest
  bool everybody_is_ready = true;     ///< one READY is not enough
  bool answers_of_this_epoch = true;  ///< a READY of another epoch does not count
  bool points_are_kept = true;        ///< a repeated proposal gets the same READY
  bool one_at_a_time = true;          ///< no proposal before everybody has the last decision
  bool decisions_are_final = true;    ///< no abort after the commit
  bool commits_count_once = true;     ///< a repeated commit changes nothing
  bool ended_epochs_stay = true;      ///< a proposal that comes after its own decision is passed over
  bool unanswered_is_repeated = true;
  bool trials_end_reports =
      true;  ///< what was measured before a NIC's trial does not count when it comes later
};

/// One sequence on one rank: which operations may begin, and under which view.
class Admission {
 public:
  friend struct AgreementInspector;  // the explorer's

  explicit Admission(ViewPointer first) : views_{{0, std::move(first)}} {}

  /// The view of operation `number`, which begins with this; nullptr: it is held. Numbers grow.
  ViewPointer admit(uint64_t number);
  /// Every number below this one and not below the last one admitted has that one's view.
  uint64_t limit() const;
  /// From now on nothing at or beyond the returned number begins, until resume().
  uint64_t hold(uint64_t ahead);
  /// `view` is for operation `from` and later ones; nullptr or kNever: nothing changes.
  void resume(uint64_t from, ViewPointer view);
  /// An operation that has begun without asking, under the last view that was answered.
  void begun_until(uint64_t next);

  bool holding() const { return hold_ != kNever; }
  uint64_t next() const { return next_; }
  const ViewPointer& newest() const { return views_.back().view; }
  /// That of the first operation that has not begun, unless a later one begins with it.
  const ViewPointer& oldest() const { return views_.front().view; }

 private:
  struct From {
    uint64_t number;
    ViewPointer view;
  };
  uint64_t next_ = 0;  // first operation that has not begun
  uint64_t hold_ = kNever;
  std::vector<From> views_;  // in the order of their epochs; the first is that of next_
};

/// What a member has heard: `view` nullptr for an abort.
struct Decision {
  uint64_t epoch = 0;
  Points from{};
  ViewPointer view;
};

class Member {
 public:
  friend struct AgreementInspector;

  /// `nics`: that each node tells of.
  explicit Member(AgreementRules rules = {}, size_t nics = 0) : rules_(rules), nics_(nics) {}

  /// Its node's codes, the sequences that it counts, and its links, one for each rank and NIC. Returns what
  /// is to be sent to the coordinator.
  AgreementMessage report(NodeCodes codes, uint8_t sequences, std::span<const CapacityCode> links = {},
                          CapacityCode engine_pace = kNominal);
  /// Does `message` ask for hold points? Then the owner holds the message's sequences before on_message().
  bool takes(const AgreementMessage& message) const;
  /// A message of the coordinator; `points` if takes(message): where the sequences are held (kNever: not
  /// counted here). `decision` is set when one is heard for the first time: the owner resumes its sequences.
  std::optional<AgreementMessage> on_message(const AgreementMessage& message, const Points& points,
                                             std::optional<Decision>& decision);
  /// What the coordinator has not answered.
  std::vector<AgreementMessage> unanswered() const;
  /// Holding: a decision is to come.
  bool pending() const { return pending_ != 0; }
  uint64_t epoch() const { return pending_ != 0 ? pending_ : ended_; }

 private:
  AgreementMessage ready() const;
  ViewPointer proposed_view() const;

  AgreementRules rules_;
  size_t nics_;
  uint64_t pending_ = 0;  // epoch answered READY
  uint64_t ended_ = 0;    // newest epoch whose decision was heard
  Points points_{};
  std::vector<CapacityCode> capacities_;  // of the newest proposal
  CapacityCode engine_pace_ = kNominal;   // likewise
  AgreementMessage report_;
  bool report_taken_ = true;
};

class Coordinator {
 public:
  friend struct AgreementInspector;

  struct Outgoing {
    int to;
    AgreementMessage message;
  };

  explicit Coordinator(int ranks, AgreementRules rules = {}, size_t nics = 0);

  /// A message of rank `from`. What is to be sent is appended to `out`.
  void on_message(int from, const AgreementMessage& message, std::vector<Outgoing>& out);
  /// Has something changed that needs a new view, and may one be proposed? `sequences`: that this group
  /// decides for.
  bool due(uint8_t sequences) const;
  void propose(uint8_t sequences, std::vector<Outgoing>& out);
  /// Gives up a proposal that has not been answered by everybody; nothing happens to one that has.
  void abort(std::vector<Outgoing>& out);
  /// What rank `to` has not answered.
  void unanswered(int to, std::vector<Outgoing>& out) const;

  bool idle() const { return phase_ == Phase::kIdle; }
  /// Not decided yet.
  bool collecting() const { return phase_ == Phase::kCollecting; }
  uint64_t epoch() const { return epoch_; }

 private:
  enum class Phase : uint8_t { kIdle, kCollecting, kDeciding };
  struct Rank {
    uint64_t report = 0;  // number of its newest
    NodeCodes told;       // in it
    LinkCodes links;      // in it
    NodeCodes codes;      // what it can carry by all that was told, with the reason
    CapacityCode engine_pace = kNominal;
    uint8_t sequences = 0;
    bool answered = false;
    bool took_decision = false;
    Points points{};
  };
  void decide(AgreementMessage::Type type, std::vector<Outgoing>& out);
  AgreementMessage proposal() const;
  void try_nics();
  void forget_tried(size_t from, uint64_t heard);
  void end_of_decision();
  void assess();
  CapacityCode slowest_engine() const;
  uint8_t counted_by_all() const;

  AgreementRules rules_;
  size_t nics_;
  std::vector<Rank> ranks_;
  std::vector<NodeCodes> named_;  // by NIC of the group: what that of each rank carries, by its links
  bool any_named_ = false;        // less than all of its rate
  /// By rank and NIC: the epoch in which it got its full share again although its links had been slow.
  std::vector<uint64_t> tried_;
  Phase phase_ = Phase::kIdle;
  uint64_t epoch_ = 0;
  uint8_t sequences_ = 0;            // of the proposal
  std::vector<NodeCodes> proposed_;  // by rank
  AgreementMessage decision_;
  std::vector<NodeCodes> view_;      // the newest that was committed
  CapacityCode engine_pace_ = kNominal, proposed_pace_ = kNominal;  // of both
  uint8_t covered_ = kAllSequences;  // … and the sequences that it is for
  bool reported_ = false;            // since it was proposed
};

}  // namespace r2ccl::collective
