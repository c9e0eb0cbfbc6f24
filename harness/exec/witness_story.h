// SPDX-License-Identifier: Apache-2.0
// What the faults that a command armed did: collected from the board's owner, as JSON and in words.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/launch/message_socket.h"

namespace r2bench {

/// {"schema_version": 1, "fabric", "witnesses_lost", "faults": [{id, name, kind, target, state, armed_ns,
/// triggered_ns, t0_ns, healed_ns, took_effect, effects: [{time_ns, pid, rank, node, nic, qp_num, what}]}]};
/// times are CLOCK_MONOTONIC, 0: has not happened. Asks `owner` (BoardService). Throws ControlError.
nlohmann::json collect_story(MessageSocket& owner, const std::string& fabric,
                             const std::vector<uint32_t>& ids);

/// One line per fault, and its effects below it, at most `effects` of each; all times from its arming.
void tell(const nlohmann::json& story, size_t effects, std::ostream& out);

/// "+1.5 s", "+523 ms" (three digits), of a span in ns.
std::string later_by(uint64_t from_ns, uint64_t time_ns);

}  // namespace r2bench
