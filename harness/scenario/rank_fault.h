// SPDX-License-Identifier: Apache-2.0
// Faults of a whole rank, which the harness does by itself: no verbs fault, so the injector has no part in
// them. What each kind means is told once, in rank_fault.cc.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace r2bench {

enum class Engine;

enum class RankFaultKind {
  kSigstop,        ///< SIGSTOP, after `duration` SIGCONT
  kReceiverSleep,  ///< the rank stops calling its plugin for `duration`, between two polls
  kKill,           ///< SIGKILL
};

/// What a kind means, in the order of RankFaultKind.
struct RankFaultInfo {
  RankFaultKind kind;
  const char* name;             ///< "sigstop"
  const char* what;             ///< one line: "the rank's process is stopped, its NICs stay alive"
  const char* past;             ///< the rank "was stopped, its NICs alive"
  const char* present;          ///< the rank "is stopped, its NICs alive"
  bool lasts;                   ///< needs `for`, after which the rank goes on; else it is struck for good
  int signal;                   ///< sent to the rank; 0: the rank is told, and does it between two polls
  std::vector<Engine> engines;  ///< whose ranks it can strike
  const char* why_not;          ///< it cannot strike those of other engines
};

const std::vector<RankFaultInfo>& rank_fault_kinds();
const RankFaultInfo& rank_fault_info(RankFaultKind kind);
const RankFaultInfo* find_rank_fault_kind(std::string_view name);  ///< nullptr: there is none
std::vector<std::string> rank_fault_kind_names();
const char* name(RankFaultKind kind);

struct RankFault {
  std::string name;  ///< unique in the scenario, as printed
  RankFaultKind kind = RankFaultKind::kSigstop;
  int node = 0;
  int local_rank = 0;                               ///< within the node
  std::optional<int> at_iter;                       ///< exactly one of at_iter and at_time is set
  std::optional<std::chrono::nanoseconds> at_time;  ///< from the first counted iteration
  std::chrono::nanoseconds duration{0};             ///< 0 where the kind does not last
};

}  // namespace r2bench
