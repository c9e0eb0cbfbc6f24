// SPDX-License-Identifier: Apache-2.0
// How the users of a port share its rate. Each direction of a port is a fluid server (generalised processor
// sharing, Parekh and Gallager 1993): of n flows that have work, each is served at rate/n, whatever the size
// of its messages. The server keeps virtual time V, the service that a flow with work throughout has had; a
// message that begins when V = s (or when the flow's message before it ends) is finished when V has advanced
// by its size. So a message is reserved once, in one step, and nobody has to run for time to pass: an engine
// that wakes late finds the right answer, and no bandwidth is lost.
//
// Must never lock: V and its time change by one 16-byte compare-and-swap; each flow's tag has one writer.
#pragma once

#include <cstdint>

#include "harness/vhca/fabric/layout.h"

namespace vhca {

inline constexpr unsigned kVirtualByteBits = 20;

// rate_bits_per_s = 0: unlimited.
void init_server(RateServer& server, std::uint64_t rate_bits_per_s, std::uint64_t now_ns);

// One QP's use of one server. Index kNoFlow: the server has no limit, or there was no room (then it is not
// paced).
struct Flow {
  static constexpr std::uint32_t kNoFlow = ~0u;
  RateServer* server = nullptr;
  std::uint32_t index = kNoFlow;
  std::uint64_t per_byte = 1ull << kVirtualByteBits;  // what a byte of it costs the server
  std::uint64_t work_of(std::uint64_t bytes) const { return bytes * per_byte; }
  bool paced() const { return index != kNoFlow; }
};

// `percent` of the server's rate is what it gives this flow when nobody else wants any (1..100): its bytes
// take so much more of the server's time, at the cost of all who share it.
Flow open_flow(RateServer& server, std::uint32_t owner_qp, std::uint32_t percent = 100);
void close_flow(Flow& flow);
void release_flows_of(RateServer& server, std::uint32_t owner_qp);

// What a port gives, in percent of its rate, to data of memory on that NUMA node.
inline std::uint32_t percent_of_rate(const Fabric& fabric, const Port& port, std::uint32_t memory_node) {
  return port.memory_node == memory_node || port.memory_node == kNoMemoryNode || memory_node == kNoMemoryNode
             ? 100
             : fabric.cross_percent;
}

// Appends `bytes` to the flow's work at time now; returns the tag at which they begin. They end at tag +
// work_of(bytes).
std::uint64_t reserve(const Flow& flow, std::uint64_t bytes, std::uint64_t now_ns);
// Takes back the part of the flow's work that has not been served yet.
void cancel_rest(const Flow& flow, std::uint64_t now_ns);

// Bytes of the flow's work that have not been served yet; of a message that begins at `begin_tag`, those that
// have.
std::uint64_t unserved_bytes(const Flow& flow, std::uint64_t now_ns);
std::uint64_t served_bytes(const Flow& flow, std::uint64_t begin_tag, std::uint64_t now_ns);

// When the flow will be served up to `tag` if nothing else is posted; 0 if it has been by now.
std::uint64_t time_of_tag(const Flow& flow, std::uint64_t tag, std::uint64_t now_ns);

}  // namespace vhca
