// SPDX-License-Identifier: Apache-2.0
// What stands behind the handles that a program holds: contexts, PDs, MRs, completion queues and channels,
// QPs. These live in the process; what other processes need to see lies in the fabric's slots that they refer
// to.
//
// Locks, in this order: Qp::send_lock, Runtime's own, Cq::lock, Channel::lock, Context::async_lock. None of
// them is ever waited for by another process.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "harness/vhca/fabric/layout.h"
#include "harness/vhca/fabric/port_clock.h"

// Macros of verbs.h in the way of our definitions.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace vhca {

class Runtime;

struct Context {
  verbs_context verbs{};  // first: its last member is the ibv_context that the program holds
  Runtime* runtime = nullptr;
  std::uint32_t id = 0;          // unique in the fabric
  std::uint32_t first_port = 0;  // index in the fabric of the device's port 1
  std::uint32_t port_count = 1;
  // The eventfd that ibv_context::async_fd is when the device is opened. As in rdma-core, where the kernel
  // has it, events reach it whatever descriptor a layer above (the fault injector) lets the program see in
  // that field.
  int async_eventfd = -1;
  std::mutex async_lock;
  std::deque<ibv_async_event> async_events;  // each stands for one count in async_eventfd

  ibv_context* handle() { return &verbs.context; }
  static Context& of(ibv_context* context) {
    return *reinterpret_cast<Context*>(reinterpret_cast<char*>(context) - offsetof(verbs_context, context));
  }
};

struct Pd : ibv_pd {
  std::uint32_t id = 0;  // unique in the fabric
  std::atomic<int> users{0};
};

struct Mr : ibv_mr {
  std::size_t slot = 0;
  // Of a dma-buf: where its pages are mapped for as long as the region lives.
  void* mapping = nullptr;
  std::size_t mapped = 0;
};

struct Cq;

// CQs with events that nobody has read are a list through the CQs themselves: the engine adds to it, and must
// not allocate (a thread's first allocation maps an arena of its own).
struct Channel : ibv_comp_channel {
  std::mutex lock;
  Cq* first_with_events = nullptr;
  Cq* last_with_events = nullptr;
};

struct Qp;

struct SendCompletion {
  ibv_wc wc;
  Qp* qp;
  std::uint64_t send_index;
};

// An extended CQ begins as an ordinary one does, so that each can be given out as the other.
static_assert(offsetof(ibv_cq_ex, cqe) == offsetof(ibv_cq, cqe) &&
              offsetof(ibv_cq_ex, async_events_completed) == offsetof(ibv_cq, async_events_completed));

struct Cq : ibv_cq_ex {
  Context* owner = nullptr;
  std::size_t slot = 0;
  CqSlot* shared = nullptr;
  std::mutex lock;
  std::vector<SendCompletion> sent;  // ring, a power of two that holds cqe
  std::uint64_t sent_head = 0;       // next to be written
  std::uint64_t sent_tail = 0;       // next to be polled
  std::vector<Qp*> receivers;        // by bit
  std::atomic<int> users{0};
  std::uint32_t events_reported = 0;        // guarded by the ibv_cq's mutex
  std::uint32_t async_events_reported = 0;  // likewise
  bool overrun_reported = false;
  // Guarded by the channel's lock. Each event stands for one count in the channel's eventfd.
  std::size_t unread_events = 0;
  Cq* next_with_events = nullptr;
  std::size_t next_receiver_word = 0;
  std::atomic<std::uint32_t> takings{0};  // how often a poll has begun or ended to take receives
  std::mutex walk_lock;  // from ibv_start_poll to ibv_end_poll
  ibv_wc walked{};       // what ibv_wc_read_* speak of

  ibv_cq* handle_as_cq() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }
};

struct Srq : ibv_srq {
  Context* owner = nullptr;
  std::size_t slot = 0;
  SrqSlot* shared = nullptr;
  std::uint32_t max_wr = 0;
  std::mutex post_lock;
  std::uint64_t posted = 0;             // guarded by post_lock
  std::atomic<std::uint64_t> freed{0};  // taken and polled, or gone with their QP
  std::atomic<int> users{0};
  std::uint32_t async_events_reported = 0;  // guarded by the ibv_srq's mutex
};

struct AddressHandle : ibv_ah {
  ibv_ah_attr attr{};
  std::uint32_t port = kNoPort;  // index in the fabric of where it leads
  std::uint8_t target_gid = 0;   // index of the destination's GID there
};

struct AtomicOperands {
  std::uint64_t compare_or_add;
  std::uint64_t swap;
};

// Where a datagram goes. What the address handle said, so that the handle may go before the datagram does.
struct DatagramTarget {
  std::uint32_t source_port;  // indices in the fabric
  std::uint32_t port;
  std::uint32_t number;
  std::uint32_t qkey;
  std::uint32_t grh_word;  // version, traffic class, flow label; host order
  std::uint16_t flow;      // index in Qp::datagram_flows; of no use when port is kNoPort
  std::uint8_t sl;
  std::uint8_t hop_limit;
  std::uint8_t source_gid;
  std::uint8_t target_gid;
  bool has_grh;
};

// Whether the bytes of the message travel from the initiator to the target.
inline bool carries_data_to_peer(ibv_wr_opcode opcode) {
  return opcode != IBV_WR_RDMA_READ && opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
         opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}
inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

struct SendEntry {
  std::uint64_t wr_id;
  std::uint64_t remote_address;
  std::uint64_t length;
  std::uint64_t placed;  // bytes that are at their destination
  // Of the sending (0) and the receiving (1) port: the bytes of it that have their place in the port's work,
  // and where the message would begin there if all of it followed the last of them.
  std::uint64_t reserved[2];
  std::uint64_t begin_tag[2];
  std::uint64_t not_before_ns;  // without pacing: when it may be placed
  std::uint64_t
      served_ns;  // when the ports have served the next piece, as known at the last look; 0 = not known
  std::uint32_t taken_back;   // RateServer::taken_back of both ports at that look
  std::uint64_t complete_ns;  // when the acknowledgement is back
  ibv_wr_opcode opcode;
  unsigned flags;
  std::uint32_t imm_data;
  std::uint32_t rkey;
  std::uint32_t sge_count;
  bool is_inline;
  bool dropped;  // UC and UD: the rest of it reaches nobody
  union {
    AtomicOperands atomic;
    DatagramTarget datagram;
  };
};

// What a QP has reserved in the work of one side's ports. See pacing.h.
struct ReservedSide {
  std::uint64_t next = 0;     // the first WR that has not got its whole place
  std::uint64_t touched = 0;  // the first whose `reserved` says nothing yet
  std::uint64_t bytes = 0;    // reserved and not placed
  bool bounded = true;
};

struct DatagramFlow {
  std::uint32_t port;
  std::uint32_t percent;  // of the port's rate that it can get
  Flow flow;
};

struct Qp : ibv_qp_ex {
  Context* owner = nullptr;
  std::size_t slot = 0;
  QpSlot* shared = nullptr;
  ibv_qp_init_attr init{};
  ibv_qp_attr attr{};        // as modified, for query_qp
  bool is_extended = false;  // made with send_ops_flags
  // RC: the life of the peer's QP in which it answered us first; 0: not yet. In another one its sequence
  // numbers are others than ours.
  std::uint32_t peer_life = 0;

  // Send side. Guarded by send_lock, but send_tail (written when completions are polled).
  std::mutex send_lock;
  std::vector<SendEntry> sends;  // ring of send_mask + 1
  std::vector<ibv_sge> send_sges;
  std::vector<char> inline_data;
  std::uint64_t send_mask = 0;
  std::uint64_t send_head = 0;  // next to be posted
  std::uint64_t send_next = 0;  // next to be placed
  std::uint64_t send_ack = 0;   // next to be completed
  std::atomic<std::uint64_t> send_tail{0};
  std::uint64_t peer_latency_ns = 0;
  std::uint64_t own_latency_ns = 0;
  ReservedSide reserved[2];  // at the sending and the receiving ports
  std::uint64_t window_bytes = 0;
  std::uint64_t in_flight_bytes = 0;  // the most that both sides have served and that is not there yet
  bool is_paced = false;              // some port that it uses has a rate
  std::uint64_t balanced_ns = 0;      // when the two sides were compared last
  std::uint64_t busy_since_ns = 0;    // since when another initiator is at the target; 0 = none is
  bool reserves_next_only = false;    // that has lasted: see wait_for_target
  Flow write_flows[2];                // own port's tx, peer's rx
  Flow read_flows[2];                 // peer's tx, own port's rx
  std::uint32_t rnr_done = 0;
  std::uint32_t waits_done = 0;
  std::uint64_t stalled_until_ns = 0;        // RNR or retry timer; 0 = none
  std::vector<DatagramFlow> datagram_flows;  // UD: rx of each port that was ever sent to
  std::uint64_t drain_end = 0;               // SQD: what was posted from here on waits
  bool drain_notify = false;                 // SQD: an event is owed when all before is done

  // ibv_wr_*: what has been built since ibv_wr_start, which holds send_lock until it is posted or given up.
  std::uint64_t built_head = 0;
  int build_error = 0;

  // Receive side, owner's part.
  std::mutex recv_lock;
  std::uint64_t recv_head = 0;              // next to be posted
  std::atomic<std::uint64_t> recv_tail{0};  // next to be polled
  // In ERR: receives from here on, and before there, were given their room in the CQ as flushed ones. Guarded
  // by the recv CQ's lock.
  std::uint64_t flush_begin = 0;
  std::uint64_t flush_end = 0;
  // In ERR: who is placing something through it, and since when. Guarded by the recv CQ's lock.
  std::uint64_t held_by = 0;
  std::uint64_t held_since_ns = 0;

  // Runtime's bookkeeping.
  std::atomic<std::uint64_t> due_ns{~0ull};
  std::atomic<bool> gathers{
      false};  // what is posted waits for more of its kind; run when a poller finds nothing
  bool is_active = false;
  int pins = 0;
  std::uint32_t async_events_reported = 0;  // guarded by the ibv_qp's mutex

  SendEntry& send_entry(std::uint64_t index) { return sends[index & send_mask]; }
  RecvEntry& recv_entry(Fabric& fabric, std::uint64_t index);
  bool is_reliable() const { return shared->type == IBV_QPT_RC; }
  std::uint32_t state() const { return shared->state.load(std::memory_order_acquire); }
};

inline RecvEntry& recv_entry_of(Fabric& fabric, const QpSlot& qp, std::uint64_t index) {
  return *reinterpret_cast<RecvEntry*>(reinterpret_cast<char*>(&fabric) + qp.recv_ring +
                                       (index & (qp.recv_depth - 1)) * qp.recv_stride);
}
inline RecvEntry& Qp::recv_entry(Fabric& fabric, std::uint64_t index) {
  return recv_entry_of(fabric, *shared, index);
}

inline Pd& pd_of(ibv_pd* pd) { return *static_cast<Pd*>(pd); }
inline Cq& cq_of(ibv_cq_ex* cq) { return *static_cast<Cq*>(cq); }
inline Cq& cq_of(ibv_cq* cq) { return cq_of(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline Qp& qp_of(ibv_qp_ex* qp) { return *static_cast<Qp*>(qp); }
inline Qp& qp_of(ibv_qp* qp) { return qp_of(reinterpret_cast<ibv_qp_ex*>(qp)); }
inline Srq& srq_of(ibv_srq* srq) { return *static_cast<Srq*>(srq); }
inline Context& context_of(const Qp& qp) { return *qp.owner; }
inline bool has_port(ibv_context* context, std::uint32_t number) {
  return number >= 1 && number <= Context::of(context).port_count;
}

}  // namespace vhca
