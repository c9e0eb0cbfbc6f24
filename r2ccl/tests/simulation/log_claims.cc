// SPDX-License-Identifier: Apache-2.0
#include "r2ccl/tests/simulation/log_claims.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace r2ccl::simulation {
namespace {

using Kind = Fault::Kind;

/// What the log says of a NIC just behind its name, and the faults of which one must have struck it.
struct NicClaim {
  const char* says;
  std::vector<Kind> is_true_after;
};
const NicClaim kNicClaims[] = {{" went down", {Kind::kPortDown, Kind::kRemove, Kind::kPretend}},
                               {" is gone", {Kind::kRemove, Kind::kPretend}},
                               {" has not returned from", {Kind::kDriverSlow, Kind::kDriverHang}}};

}  // namespace

void LogClaims::line(const std::string& text, int process) {
  check_loss(text);
  check_ended(text, process);
  check_migration_time(text);
  check_nics(text, process);
}

// Where the receiver never saw what a NIC has reported, one has lost it, or stands still with it.
void LogClaims::check_loss(const std::string& text) {
  if (text.find("reported completions of messages that the receiver lacks; migrating") != std::string::npos &&
      !faults_.has_happened(Kind::kLoseImmediate) && !faults_.has_happened(Kind::kFreeze))
    findings_.violate("the log says of a NIC that lost nothing: " + text);
}

void LogClaims::check_ended(const std::string& text, int process) {
  const size_t at = text.find(" failed or closed before another path");
  if (at == std::string::npos) return;
  const size_t number = text.rfind(' ', text.rfind(' ', at - 1) - 1) + 1;
  told_ended_[process] += std::atoi(text.c_str() + number);
  if (told_ended_[process] > migrations_.ended_meanwhile(process))
    findings_.violate("the log says of channels that went on: " + text);
}

void LogClaims::check_migration_time(const std::string& text) {
  constexpr std::string_view kAfter = " after ";
  const size_t at = text.find(kAfter, text.find("its traffic migrated to "));
  if (at == std::string::npos || !migrations_.last_took()) return;
  const Time took = *migrations_.last_took();
  const Time said = Time(std::atoll(text.c_str() + at + kAfter.size())) * kMicrosecond;
  if (said > took || took - said >= kMicrosecond) findings_.violate("the log says another time: " + text);
}

// The NIC (over all processes) that ends at `at`; −1: what ends there is something else.
int LogClaims::nic_before(const std::string& text, size_t at, int process) const {
  constexpr std::string_view kNic = "NIC sim", kOf = " of node", kToldBy = "reported by node",
                             kPeers = "the peer's ";
  const size_t nic = text.rfind(kNic, at);
  if (nic == std::string::npos) return -1;
  const size_t behind = nic + kNic.size() + 1;  // one digit
  const size_t told = text.rfind(kToldBy, nic);
  if (text.compare(behind, kOf.size(), kOf) == 0 && behind + kOf.size() + 1 == at)
    process = text[behind + kOf.size()] - '0';
  else if (behind != at)
    return -1;
  else if (told != std::string::npos)
    process = text[told + kToldBy.size()] - '0';
  if (nic >= kPeers.size() && text.compare(nic - kPeers.size(), kPeers.size(), kPeers) == 0)
    process = 1 - process;
  return process * plan_.nics + (text[behind - 1] - '0');
}

void LogClaims::check_nics(const std::string& text, int process) {
  for (const NicClaim& claim : kNicClaims)
    for (size_t at = text.find(claim.says); at != std::string::npos; at = text.find(claim.says, at + 1)) {
      const int nic = nic_before(text, at, process);
      if (nic >= 0 && std::none_of(claim.is_true_after.begin(), claim.is_true_after.end(),
                                   [&](Kind kind) { return faults_.has_struck(nic, kind); }))
        findings_.violate("the log says what did not happen to NIC " + std::to_string(nic) + ": " + text);
    }
}

}  // namespace r2ccl::simulation
