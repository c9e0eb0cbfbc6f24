// SPDX-License-Identifier: Apache-2.0
// What lies in the fabric's shared memory, and where. Every process of the fabric maps it, at different
// addresses: no pointers, only offsets and numbers. Everything here is changed with single atomic operations,
// never under a lock, so that a process that is killed or stopped at any instruction holds up nobody.
//
// Ownership: each slot and page carries the id of the process that owns it (0 = free). Ids are never reused,
// so whoever reclaims a dead process's property with compare-and-swap cannot take a new owner's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "harness/vhca/base/handover.h"
#include "harness/vhca/fabric/qp_state.h"

namespace vhca {

inline constexpr std::uint64_t kFabricMagic = 0x3142'4146'4143'4856;  // "VHCAFAB1"
inline constexpr std::uint32_t kLayoutVersion = 18;

inline constexpr std::size_t kMaxNodes = 64;
inline constexpr std::size_t kMaxNicsPerNode = 16;
inline constexpr std::size_t kMaxPortsPerNic = 4;
inline constexpr std::size_t kMaxPorts = 512;
inline constexpr std::size_t kMaxProcesses = 512;
inline constexpr std::uint32_t kProcessSlotBits = 9;
inline constexpr std::size_t kMaxQueuePairs = 32768;
inline constexpr std::uint32_t kQpSlotBits = 15;
inline constexpr std::size_t kMaxCompletionQueues = 32768;
inline constexpr std::size_t kMaxSharedReceiveQueues = 1024;
inline constexpr std::size_t kMaxMemoryRegions = 1 << 17;
inline constexpr std::uint32_t kMrSlotBits = 17;
inline constexpr std::size_t kFlowsPerServer = 2048;
inline constexpr std::size_t kArenaPageBytes = 4096;
inline constexpr std::size_t kArenaPages = 1 << 20;  // 4 GiB, sparse
inline constexpr std::size_t kReadyWords = 64;       // 4096 QPs per CQ

static_assert(kMaxProcesses == 1u << kProcessSlotBits);
static_assert(kMaxQueuePairs == 1u << kQpSlotBits);
static_assert(kMaxMemoryRegions == 1u << kMrSlotBits);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

using ProcessId = std::uint32_t;  // generation << kProcessSlotBits | slot; 0 = nobody
inline constexpr std::uint32_t kNoPort = ~0u;
inline constexpr std::uint32_t kNoMemoryNode = ~0u;  // of a port or process: nobody said where it is
inline constexpr std::uint32_t kMaxMemoryNodes = 64;
inline constexpr std::size_t slot_of_process(ProcessId id) { return id & (kMaxProcesses - 1); }

// One direction of one port, shared by the flows (one per QP and direction) that use it. See port_clock.h.
struct RateServer {
  struct alignas(16) Clock {
    std::uint64_t time_ns;        // CLOCK_MONOTONIC up to which the work has been computed
    std::uint64_t virtual_bytes;  // service that every always-busy flow has had, in 2^-20 bytes; wraps
  };
  Clock clock;                            // changed by 16-byte compare-and-swap only
  std::uint64_t rate;                     // 2^-20 bytes per nanosecond; 0 = unlimited
  std::atomic<std::uint32_t> taken_back;  // how often work was taken back: others are served sooner then
  std::atomic<std::uint32_t> words_used;  // words of `active` that were ever needed
  std::atomic<std::uint64_t> active[kFlowsPerServer / 64];
  std::atomic<std::uint32_t> flow_owner[kFlowsPerServer];  // QP number, 0 = free
  std::atomic<std::uint64_t> finish_tag[kFlowsPerServer];  // written by the flow's own QP only
};

struct alignas(64) Port {
  std::uint32_t node;
  std::uint32_t nic;
  std::uint32_t number;       // within the NIC, from 1
  std::uint32_t lid;          // 0 on Ethernet
  std::uint32_t mtu;          // bytes
  std::uint32_t memory_node;  // the NUMA node it hangs on, or kNoMemoryNode
  // Bytes; 0: all. Larger packets of RC vanish on their way to and from this port without a word, as in a
  // switch whose MTU is smaller than the ports'.
  std::atomic<std::uint32_t> narrow;
  std::uint64_t rate_bits_per_s;
  std::uint64_t latency_ns;
  std::uint64_t guid;  // host order
  alignas(64) std::atomic<std::uint64_t> tx_bytes;
  std::atomic<std::uint64_t> tx_messages;
  alignas(64) std::atomic<std::uint64_t> rx_bytes;
  std::atomic<std::uint64_t> rx_messages;
  std::atomic<std::uint64_t> rnr_naks;
  std::atomic<std::uint64_t> retry_exhausted;
  std::atomic<std::uint64_t> dropped;  // UC and UD messages that reached nobody, counted at the sender
  alignas(64) RateServer tx;
  alignas(64) RateServer rx;
};

struct Node {
  char name[32];
  std::uint32_t first_port;
  std::uint32_t nic_count;
  std::uint32_t ports_per_nic;
};

struct alignas(128) ProcessSlot {
  // pid << 32 | generation << 1 | 1 while taken: the pid is part of the word that claims the slot, so a
  // process that dies right after the claim is still recognised as dead. No two claims have the same
  // generation.
  std::atomic<std::uint64_t> claim;
  std::atomic<std::uint32_t> generation;
  std::atomic<ProcessId> id;  // 0 until the slot is complete
  // /proc/pid/stat field 22, under the low 16 bits of the claim that it belongs to; for another claim it is
  // not known yet.
  std::atomic<std::uint64_t> start_time;
  std::atomic<std::uint64_t> beacon_address;  // in that process: an 8-byte word that holds beacon_value
  std::atomic<std::uint64_t> beacon_value;
  std::uint32_t node;
  std::uint32_t memory_node;  // NUMA node of all its memory, or kNoMemoryNode
  std::atomic<std::uint64_t>
      staged_requests[kMaxProcesses / 64];  // slots of processes that want data moved here; see staging.h
  // Low half: who carries out an atomic operation in this process's memory right now; high half: counts the
  // operations.
  std::atomic<std::uint64_t> atomic_holder;
  alignas(64) std::atomic<std::uint32_t> doorbell;  // futex of the process's engine
  std::atomic<std::uint32_t> engine_sleeps;
  std::atomic<std::uint32_t> flags_raised;  // somebody has written what the engine is to look at
};

// A receive work request and, once it is used, its completion: the initiator completes it in place, so no
// ring between processes has more than one writer on either side.
struct RecvSge {
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t lkey;
};
struct RecvEntry {
  std::uint64_t wr_id;
  std::uint32_t sge_count;
  std::uint32_t status;  // ibv_wc_status; from here on written by the initiator
  std::uint32_t opcode;  // ibv_wc_opcode
  std::uint32_t byte_count;
  std::uint32_t wc_flags;
  std::uint32_t imm_data;  // network order, as it was given
  std::uint32_t source_qp;
  std::uint16_t slid;
  std::uint8_t sl;
  std::uint8_t reserved;
  RecvSge sge[];  // max_recv_sge of them
};

// Holds of a QP that the owner has revoked while their holders live; 0 when the holder has found out. Until
// then it may still write to the receive ring that it had found, and the slot is not given away. Each is the
// word that the holder had put into QpSlot::responder.
struct RevokedHolds {
  static constexpr std::size_t kMost = 8;
  std::atomic<std::uint64_t> words[kMost];
  bool any() const {
    for (const auto& word : words)
      if (word.load() != 0) return true;
    return false;
  }
};

struct alignas(64) QpSlot {
  std::atomic<ProcessId> owner;
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> number;  // 0 while not alive
  QpState state;
  // Id of the process that is placing data or a completion through this QP right now. Taken before `state` is
  // looked at a second time; whoever moves the QP to ERR waits until it is 0 or its holder is dead, and
  // revokes the hold of one that is stopped.
  std::atomic<std::uint64_t> responder;  // low half: that id; high half: counts the holds
  QpEvents events;
  std::atomic<std::uint32_t> access;  // ibv_access_flags; without responder resources no READs and atomics
  std::atomic<std::uint32_t> peer_number;
  std::atomic<std::uint32_t> peer_port;
  std::atomic<std::uint32_t> min_rnr_timer;
  std::atomic<std::uint32_t> qkey;
  std::atomic<std::uint32_t> pkey_index;  // in the table that all ports of the fabric have
  std::atomic<std::uint32_t> rq_psn;      // RC: the first sequence number that it expects
  std::atomic<std::uint32_t> path_mtu;    // ibv_mtu
  // SRQ only. What a holder is about to take. Tells the next holder whether one that was killed had taken it,
  // and a holder that was revoked that it may not. High half: the number of the hold, as in `responder`. Low
  // half: see responder/shared_request.h.
  std::atomic<std::uint64_t> srq_intent;
  std::atomic<std::uint32_t> type;  // ibv_qp_type; this and `port` are read before the hold
  std::atomic<std::uint32_t> port;
  // slot + 1; 0 = a receive queue of its own. This and `recv_cq` are also read by threads that destroy such
  // an object, of any QP that a holder may come back to.
  std::atomic<std::uint32_t> srq;
  std::uint32_t pd;
  std::uint32_t recv_pd;               // whose keys the receive requests use
  std::atomic<std::uint32_t> recv_cq;  // slot
  std::uint32_t recv_cq_bit;           // which bit of that CQ's `ready`
  std::uint32_t recv_depth;            // power of two, ring size
  std::uint32_t recv_stride;
  std::uint64_t recv_ring;  // offset in the fabric
  std::uint32_t max_recv_sge;
  RevokedHolds revoked;  // behind what each message reads
  // No index comes back in the life of the slot's owner, not even after RESET: a step from index to index + 1
  // (compare-and-swap) by a holder that was revoked meanwhile fails.
  alignas(64) std::atomic<std::uint64_t> recv_posted;  // by the owner; with an SRQ by the holder
  alignas(
      64) std::atomic<std::uint64_t> recv_completed;  // by the holder of `responder`; flushed: by the owner
};

// An initiator's hold of a target QP: the word that it has put into QpSlot::responder.
struct Hold {
  const std::atomic<std::uint64_t>& responder;
  std::uint64_t word;
  bool is_valid() const { return responder.load() == word; }
};

// A receive request of an SRQ. It moves into the ring of the QP that takes it.
struct SrqEntry {
  std::atomic<std::uint64_t> claim;  // its index << 16 | who took it (slot of the QP + 1; 0 = nobody yet)
  std::uint64_t wr_id;
  std::uint64_t sge_count;
  RecvSge sge[];  // max_sge of them
};

// SrqSlot::limit: below how many requests the owner is to be told (0 = not armed), and that its engine must
// tell the program. One word: who finds the limit reached disarms the queue and leaves the event in one step,
// so that an initiator which dies right after it takes no event with it. High half: how often it was armed,
// so that one that comes late does not fire what was armed anew.
inline constexpr std::uint64_t kLimitMask = 0x7fff'ffff;
inline constexpr std::uint64_t kLimitReached = 1ull << 31;
inline constexpr std::uint64_t kOneArming = 1ull << 32;

struct alignas(64) SrqSlot {
  std::atomic<ProcessId> owner;
  std::uint32_t pd;
  std::uint32_t depth;  // power of two
  std::uint32_t stride;
  std::uint32_t max_sge;
  std::uint64_t ring;                             // offset in the fabric
  std::atomic<std::uint64_t> limit;               // kLimit… below
  alignas(64) std::atomic<std::uint64_t> posted;  // by the owner
  alignas(64) std::atomic<std::uint64_t> taken;   // by whoever takes or sees that one was taken
};

// CqSlot::notify: what the CQ is armed for, and whether the owner's engine must tell the channel.
inline constexpr std::uint32_t kArmedForAny = 1;
inline constexpr std::uint32_t kArmedForSolicited = 2;
inline constexpr std::uint32_t kArmedMask = 3;
inline constexpr std::uint32_t kEventPending = 4;

struct alignas(64) CqSlot {
  std::atomic<ProcessId> owner;
  std::atomic<std::uint32_t> capacity;
  // kArmed… below. One word: a completion disarms the CQ and leaves the event to be delivered in one step, so
  // that an initiator which dies right after it takes no event with it.
  std::atomic<std::uint32_t> notify;
  std::atomic<std::uint32_t> overrun;
  // Receive completions, flushed ones included, that are not polled; may be too low after a kill, never too
  // high.
  std::atomic<std::int64_t> outstanding;
  std::atomic<std::uint32_t> sends;  // send completions that are not polled; written by the owner
  alignas(64) std::atomic<std::uint64_t> ready_summary;
  std::atomic<std::uint64_t> ready[kReadyWords];  // QPs with receive completions
};

struct alignas(64) MrSlot {
  std::atomic<ProcessId> owner;
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> key;      // 0 while not valid
  std::atomic<std::uint32_t> context;  // Context::id
  std::uint32_t pd;
  std::uint32_t access;
  std::uint64_t iova;
  std::uint64_t length;
  std::uint64_t address;  // in the owner's address space; of GPU memory: a reference, see gpu_memory.h
};

// What others need to reach a region in GPU memory; of the memory region of the same slot, valid with its
// key.
struct GpuRegion {
  unsigned char ipc_handle[64];  // of the allocation, by cuIpcGetMemHandle
  unsigned char gpu[16];         // the GPU's UUID: its number differs between processes
  std::uint64_t address;         // in the owner's process
  std::uint64_t base;            // … of the allocation
  std::uint64_t bytes;           // … of the allocation
  std::uint64_t shadow;   // where visibility is delayed (gpu_delay.h), else 0: in the owner's address space
  std::uint64_t pending;  // the region's PendingTable, offset in the fabric
  std::uint32_t nic;      // any number that tells the owner's NICs apart
};

// A write into GPU memory that is complete and not visible yet.
struct PendingWrite {
  std::atomic<std::uint64_t> word;  // 0: free; low half: whose write, high half: 1 when it is complete
  std::uint64_t offset;             // in the region
  std::uint64_t bytes;
  std::uint64_t since_ns;
};
struct PendingTable {
  std::atomic<std::uint64_t> asked, answered;  // flushes that others want of the owner; those that are done
  PendingWrite writes[510];
};

// One request to another process's engine per process; used only where cross-memory access is refused.
inline constexpr std::size_t kStagingBytes = 256 * 1024;
inline constexpr std::size_t kStagingPieces = 40;
struct alignas(4096) StagingSlot {
  std::atomic<std::uint32_t> state;
  std::atomic<ProcessId> owner;
  std::atomic<ProcessId> target;
  std::uint32_t to_target;
  std::uint32_t pieces;
  // The hold under which the owner writes; 0: none. See Hold.
  std::uint64_t hold_offset;  // in the fabric, in bytes
  std::uint64_t hold_word;
  struct {
    std::uint64_t address;
    std::uint64_t bytes;
  } piece[kStagingPieces];
  alignas(4096) char data[kStagingBytes];
};

inline void raise_mark(std::atomic<std::uint32_t>& mark, std::size_t least) {
  std::uint32_t seen = mark.load();
  while (seen < least && !mark.compare_exchange_weak(seen, static_cast<std::uint32_t>(least))) {
  }
}

// A table whose slots are claimed by writing the owner's id. Slots beyond `used_slots` were never touched: a
// look through the table does not bring the whole of it into memory.
template <typename Slot, std::size_t n>
struct SlotTable {
  struct Range {
    Slot* first;
    Slot* last;
    Slot* begin() const { return first; }
    Slot* end() const { return last; }
  };

  std::atomic<std::uint32_t> used_slots;
  std::atomic<std::uint32_t> next;  // where to look first; spreads the reuse of numbers
  Slot slots[n];

  Range used() { return {slots, slots + used_slots.load()}; }
  Slot& operator[](std::size_t i) { return slots[i]; }
  const Slot& operator[](std::size_t i) const { return slots[i]; }

  // Index of a slot that now belongs to `owner`, or n when all are taken.
  std::size_t claim(ProcessId owner) {
    // Among the slots in use first, so that the table stays as small as what it holds, with some slack for
    // old numbers.
    for (std::size_t size = used_slots.load();;) {
      const std::size_t start = size ? next.fetch_add(1) % size : 0;
      for (std::size_t k = 0; k < size; ++k) {
        const std::size_t i = (start + k) % size;
        ProcessId expected = 0;
        if (slots[i].owner.load(std::memory_order_relaxed) == 0 &&
            slots[i].owner.compare_exchange_strong(expected, owner)) {
          taken_over();
          return i;
        }
      }
      if (size == n) return n;
      size = size + 64 < n ? size + 64 : n;
      raise_mark(used_slots, size);
    }
  }
};

struct Fabric {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t node_count;
  std::uint32_t port_count;
  std::uint32_t is_infiniband;  // link layer of all ports; else Ethernet (RoCE)
  std::uint32_t cross_percent;  // what a port carries of its rate from or to memory of another NUMA node
  std::uint64_t bytes;
  std::atomic<std::uint32_t> next_pd;       // ids of PDs and contexts
  std::atomic<std::uint32_t> next_page;     // where to look for free pages first
  std::atomic<std::uint32_t> pages_used;    // pages at and above were never claimed
  std::atomic<std::uint64_t> reclaimed_ns;  // when somebody last looked for dead processes
  Node nodes[kMaxNodes];
  ProcessSlot processes[kMaxProcesses];
  SlotTable<QpSlot, kMaxQueuePairs> queue_pairs;
  SlotTable<CqSlot, kMaxCompletionQueues> completion_queues;
  SlotTable<SrqSlot, kMaxSharedReceiveQueues> shared_receive_queues;
  SlotTable<MrSlot, kMaxMemoryRegions> memory_regions;
  GpuRegion gpu_regions[kMaxMemoryRegions];  // sparse: written for GPU memory only
  std::atomic<ProcessId> page_owner[kArenaPages];
  Port ports[kMaxPorts];
  StagingSlot staging[kMaxProcesses];
};

inline constexpr std::uint64_t kArenaOffset =
    (sizeof(Fabric) + 2 * 1024 * 1024 - 1) & ~(2ull * 1024 * 1024 - 1);
inline constexpr std::uint64_t kFabricBytes = kArenaOffset + kArenaPages * kArenaPageBytes;

}  // namespace vhca
