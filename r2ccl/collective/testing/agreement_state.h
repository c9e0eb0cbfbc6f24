// SPDX-License-Identifier: Apache-2.0
// Test support: a coordinator, its ranks and the messages between them, as a state of an exploration. A
// Setting says what may happen (loss, repetition, death, a proposal given up) and which rule is off.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "r2ccl/collective/agreement.h"
#include "r2ccl/collective/report.h"

namespace r2ccl::collective::agreement_model {

using Type = AgreementMessage::Type;

struct Setting {
  int ranks = 2;
  size_t nics = 0;  ///< with them a change is one of a NIC, and the node as a whole stays as it was
  /// Changes are of links: those of node 1's only NIC become slow, one end after the other.
  bool links = false;
  /// Changes are of links, of 3 ranks: node 1's NIC is known to be slow, by the links of ranks 0 and 2 to it.
  /// Then that of rank 0 is fast, so the NIC gets its full share; rank 2 finds its link slow once more, and
  /// then rank 0 does.
  bool trial = false;
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
  std::vector<OwnLinks> links;                       // by rank
  std::vector<View> taken;                           // by rank: the newest view
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

}  // namespace r2ccl::collective::agreement_model
