// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario/rank_fault.h"

#include <csignal>

#include "harness/scenario/scenario.h"

namespace r2bench {

const std::vector<RankFaultInfo>& rank_fault_kinds() {
  static const std::vector<RankFaultInfo> all = {
      {.kind = RankFaultKind::kSigstop,
       .name = "sigstop",
       .what = "the rank's process is stopped; its NICs stay alive",
       .past = "was stopped, its NICs alive",
       .present = "is stopped, its NICs alive",
       .lasts = true,
       .signal = SIGSTOP,
       .engines = {Engine::kCpu, Engine::kNccl},
       .why_not = "a command can only be killed"},
      {.kind = RankFaultKind::kReceiverSleep,
       .name = "receiver_sleep",
       .what = "the rank does not call its net plugin for a while",
       .past = "slept without polling",
       .present = "sleeps without polling",
       .lasts = true,
       .signal = 0,
       .engines = {Engine::kCpu},
       .why_not = "the threads of NCCL or of a command that call the plugin cannot be paused"},
      {.kind = RankFaultKind::kKill,
       .name = "kill",
       .what = "the rank's process is killed",
       .past = "was killed",
       .present = "is killed",
       .lasts = false,
       .signal = SIGKILL,
       .engines = {Engine::kCpu, Engine::kNccl, Engine::kExec},
       .why_not = ""},
  };
  return all;
}

const RankFaultInfo& rank_fault_info(RankFaultKind kind) { return rank_fault_kinds().at(size_t(kind)); }

const RankFaultInfo* find_rank_fault_kind(std::string_view name) {
  for (const RankFaultInfo& kind : rank_fault_kinds())
    if (kind.name == name) return &kind;
  return nullptr;
}

std::vector<std::string> rank_fault_kind_names() {
  std::vector<std::string> names;
  for (const RankFaultInfo& kind : rank_fault_kinds()) names.emplace_back(kind.name);
  return names;
}

const char* name(RankFaultKind kind) { return rank_fault_info(kind).name; }

}  // namespace r2bench
