// SPDX-License-Identifier: Apache-2.0
// The flows of a QP: which directions of which ports its work passes, at both ends of its way. All functions:
// the caller holds the QP's send_lock.
#pragma once

#include <cstdint>

#include "harness/vhca/process/objects.h"

namespace vhca {

// For the ports that the QP's address leads through; those that it had before are closed.
void open_flows(Qp& qp);
void close_flows(Qp& qp);
// UD: the flow to whoever owns that number at that port. Index in Qp::datagram_flows.
std::uint16_t datagram_flow(Qp& qp, std::uint32_t port, std::uint32_t number);

}  // namespace vhca
