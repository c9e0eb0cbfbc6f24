// SPDX-License-Identifier: Apache-2.0
// What the files of the agent share: its device, its queue pairs, and its commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "faultinject/testing/agent/verbs.h"

namespace agent {

/// Reads its arguments from the rest of the line, and returns the answer, one line.
using Command = std::string (*)(std::istringstream& in);
using Commands = std::map<std::string, Command>;

// By topic: one file each.
Commands device_commands();
Commands queue_pair_commands();
Commands work_commands();
Commands traffic_commands();
Commands completion_commands();
Commands event_commands();

struct Pair {
  ibv_qp* qp = nullptr;
  ibv_cq *send_cq = nullptr, *recv_cq = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_srq* srq = nullptr;
  int timeout = 14, retries = 7;
  uint64_t remote_address = 0;
  uint32_t remote_key = 0, remote_number = 0;
  ibv_ah* ah = nullptr;              // UD: where the next datagram goes
  std::vector<ibv_ah*> other_ahs;    // and where those before it went
  bool only_receives_sends = false;  // no access for anybody's writes and reads
};

inline constexpr uint32_t kDatagramKey = 0x11111111;

inline ibv_context* context = nullptr;
inline ibv_pd* pd = nullptr;
inline ibv_mr* mr = nullptr;
inline uint8_t* buffer = nullptr;
inline std::vector<Pair> pairs;

/// The queue pair whose number comes next in the line.
Pair& pair_of(std::istringstream& in);

uint64_t now_ns();
std::string ok_or_errno(int rc);

/// Posts one request with `bytes` of the buffer at `offset` (work.cc). 0, or an errno.
int post(Pair& pair, ibv_wr_opcode opcode, uint64_t wr_id, uint32_t bytes, uint64_t offset, bool signaled,
         bool inlined);

}  // namespace agent
