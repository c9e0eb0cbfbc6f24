// SPDX-License-Identifier: Apache-2.0
// What the injector knows of one queue pair and one completion queue of the program. Plain data; its owner is
// the Context, and everything here is guarded by the Context's mutex.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "faultinject/control/board.h"
#include "faultinject/preload/waker.h"

namespace faultinject {

constexpr uint32_t kVendorRetryExceeded = 0x81;  // what ConnectX cards report with RETRY_EXC_ERR

// A send WR that is on its way: posted by the program, its completion not yet shown to it.
struct Sent {
  uint64_t wr_id = 0;
  uint64_t bytes = 0;
  uint64_t posted_ns = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool signaled = true;
  bool lost = false;      // of an unreliable queue pair: it goes nowhere, and completes all the same
  int spoiled = 0;        // not 0: it was made to fail, and its completion is to have this status …
  FaultRound spoiled_by;  // … by this fault
};

// The send WR that its provider refused last, most likely because the queue was full: the next one of its
// queue pair is the same, posted again, or takes its place.
struct RefusedSend {
  std::vector<uint32_t> met;  // the faults whose triggers it has met, and does not meet again
  bool has_met(uint32_t fault_id) const { return std::find(met.begin(), met.end(), fault_id) != met.end(); }
  Sent struck;                // spoiled != 0: what a fault has made of it
};

// A send WR kept back, deep copied: its scatter list and its inline data are ours.
struct HeldWr {
  uint64_t serial = 0;             // unique in its context
  std::optional<NicAddress> peer;  // where it goes: datagrams of one queue pair have different ones
  ibv_send_wr wr{};
  std::vector<ibv_sge> list;
  std::vector<uint8_t> inline_data;
  uint64_t bytes = 0;
  uint64_t posted_ns = 0;
  uint64_t not_before_ns = 0;  // delay
};

struct CompletionQueue {
  ibv_cq* cq = nullptr;
  std::deque<ibv_wc> ready;  // processed; to be shown by the next polls, before anything newer
  std::vector<uint32_t> dead_by;  // ids of the faults that keep it from showing anything
  std::unique_ptr<Waker> waker;
  uint32_t waker_qp_num = 0;  // also when it is gone
  uint32_t wakes = 0;         // its flushes that are still in the real queue
  bool destroyed = false;     // for the program; its device has not heard of it (removal.h)
  bool is_dead() const { return !dead_by.empty(); }
  bool is_dead_by(uint32_t fault_id) const {
    return std::find(dead_by.begin(), dead_by.end(), fault_id) != dead_by.end();
  }
};

// A completion that the program must not see yet.
struct HiddenWc {
  CompletionQueue* cq = nullptr;
  ibv_wc wc{};
  bool silent = false;  // of an unsignaled WR: there is one only if its queue pair fails
};

// ibv_qp::state is what the program reads, without any lock. libibverbs writes it in the program's own
// ibv_modify_qp, before the Context's mutex is taken again; everybody else under that mutex.
inline void show_state(ibv_qp* qp, ibv_qp_state state) {
  __atomic_store_n(&qp->state, state, __ATOMIC_RELAXED);
}

inline ibv_qp_state shown_state(const ibv_qp* qp) { return __atomic_load_n(&qp->state, __ATOMIC_RELAXED); }

// What the program has posted on a queue pair since tracking began: a row for each opcode, the last one for
// all opcodes that verbs.h has no name for.
class Traffic {
 public:
  struct Posted {
    uint64_t sends = 0, bytes = 0, last_ns = 0;
  };

  void add(ibv_wr_opcode opcode, uint64_t bytes, uint64_t now_ns) {
    Posted& row = rows_[std::min(size_t(opcode), rows_.size() - 1)];
    row.sends++;
    row.bytes += bytes;
    row.last_ns = now_ns;
  }

  // Of the sends that the fault counts.
  Posted counted_by(const FaultEntry& entry) const {
    Posted all;
    for (uint32_t opcode = 0; opcode < rows_.size(); opcode++) {
      if (!entry.takes_opcode(opcode)) continue;
      all.sends += rows_[opcode].sends;
      all.bytes += rows_[opcode].bytes;
      all.last_ns = std::max(all.last_ns, rows_[opcode].last_ns);
    }
    return all;
  }

 private:
  std::array<Posted, 16> rows_{};
};

// Does it notice that nothing is acknowledged?
constexpr bool is_reliable(ibv_qp_type type) {
  return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

struct QueuePair {
  // What the program sees of its queue pair.
  enum class Life {
    kWhole,   // nothing was done to it
    kCut,     // its traffic is lost; the program still takes it to be in RTS
    kBroken,  // the program has been, or is being, shown that it failed
  };

  ibv_qp* qp = nullptr;
  uint64_t serial = 0;  // unique in the process: queue pair numbers and addresses come again
  // n-th of this NIC in this process, of the reliable ones or (not selectable) of all others
  uint32_t index = 0;
  ibv_qp_type type = IBV_QPT_RC;
  bool reliable = false;
  bool dying = false;      // the program is in ibv_destroy_qp
  bool destroyed = false;  // for the program; its device has not heard of it (removal.h)
  CompletionQueue *send_cq = nullptr, *recv_cq = nullptr;  // nullptr: it has none (XRC)
  uint32_t max_send_wr = 0;
  bool signal_all = false;

  bool connected = false;  // RTS
  uint32_t port = 0;
  std::optional<NicAddress> peer;
  uint32_t peer_qp_num = 0;
  uint8_t timeout = 0, retry_count = 0;

  std::deque<Sent> sent;  // known only from when tracking began
  RefusedSend refused;
  std::deque<HeldWr> held;
  Traffic posted;

  Life life = Life::kWhole;
  FaultRound struck_by;  // what cut or broke it
  uint64_t cut_ns = 0;
  ibv_qp_state cut_in = IBV_QPS_RTS;  // RTR or RTS: the state that the program sees while it is cut
  uint64_t shown_at_ns = 0;      // kCut: when the emulated retries are exhausted; 0: nothing is outstanding
  bool retry_error_due = false;  // kBroken: the next send completion is the one that shows RETRY_EXC_ERR
  bool acks_lost = false;        // successes of its send queue are not to be believed: they become flushes
  bool receives_lost = false;    // the same for its receive queue
  // What it sends arrives, and no acknowledgement comes back: its successes are hidden until its retries are
  // exhausted, counted from the post or from deaf_from_ns.
  FaultRound deaf_by;
  uint64_t deaf_from_ns = 0;
  FaultRound next_seen_by;   // the fault whose record waits for the next completion that the program sees
  bool failure_due = false;  // … and, where that one is a success, for the first failure, too
  bool success_seen = false;
  std::vector<HiddenWc> hidden_sends, hidden_receives;

  // (retry_cnt + 1) · 4.096 µs · 2^timeout, as in the InfiniBand specification's C9-139 to C9-141; a timeout
  // of 0 is 'for ever'.
  uint64_t retry_window_ns() const {
    if (timeout == 0) return UINT64_MAX / 4;
    return (uint64_t(retry_count) + 1) * (uint64_t(4096) << (timeout & 31));
  }
  // Does the injector have to look at its completions?
  bool special() const {
    return life == Life::kCut || retry_error_due || acks_lost || receives_lost || deaf_by.id != 0 ||
           !hidden_sends.empty() || next_seen_by.id != 0 || dying;
  }
};

}  // namespace faultinject
