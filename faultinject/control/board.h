// The fault board: plain data in shared memory, written by its creator and by every injected process at once.
// There are no locks on it, so a process that is killed or stopped anywhere can hold up nobody: each step is
// one atomic operation, and a step begun and not ended (a witness claimed, not written) is only left out.
#pragma once

#include <atomic>
#include <cstdint>

namespace faultinject {

constexpr uint64_t kBoardMagic = 0x4452414f42494646;  // "FFIBOARD"
constexpr uint32_t kBoardVersion = 1;
constexpr uint32_t kMaxNodes = 256;
constexpr uint32_t kMaxNics = 64;
constexpr uint32_t kMaxFaults = 4096;
constexpr uint32_t kMaxProcesses = 1024;
constexpr uint32_t kMaxAddresses = 16384;
constexpr uint32_t kMaxClaims = 65536;
constexpr uint32_t kMaxWitnesses = 65536;
constexpr uint32_t kNameBytes = 32;

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "the board needs atomics that work between processes");

enum class Phase : uint32_t { kEmpty, kArmed, kFired, kHealed };

// Mirrors Trigger::Kind and QpSelector::Kind of plan/plan.h, which the preloaded library does not link.
enum class TriggerKind : uint32_t { kManual, kNow, kTime, kEvent, kWr, kBytes };
enum class SelectorKind : uint32_t { kBusiest, kAll, kRandom, kIndex };

struct FaultEntry {
  // Written once by arm(), before phase becomes kArmed; constant afterwards.
  uint32_t kind;  // FaultKind
  uint32_t id;
  uint64_t node_mask[kMaxNodes / 64];  // the target is the product of both masks
  uint64_t nic_mask;
  SelectorKind selector;
  uint32_t qp_index;
  TriggerKind trigger;
  uint32_t since_first_op;
  uint64_t after_ns;
  char event[kNameBytes];
  uint32_t has_value, value_is_least;
  uint64_t value;
  uint64_t count;
  uint64_t phase_delay_ns;  // drawn when armed
  uint64_t duration_ns;     // 0: until healed
  uint64_t seed;            // of the choices that processes make for this fault
  uint32_t events, query, after_retries, reserved;
  uint64_t rate_bits_per_s, delay_ns, jitter_ns, min_bytes;

  std::atomic<Phase> phase;           // kArmed -> kFired -> kHealed, or kArmed -> kHealed
  std::atomic<uint64_t> armed_ns;
  std::atomic<uint64_t> due_ns;       // trigger met: fires then
  std::atomic<uint64_t> triggered_ns;
  std::atomic<uint64_t> t0_ns;        // the least time anybody reported
  std::atomic<uint64_t> healed_ns;
  std::atomic<uint64_t> progress;     // kWr, kBytes
  std::atomic<uint64_t> witnesses;

  bool hits(uint32_t node, uint32_t nic) const {
    return node < kMaxNodes && nic < kMaxNics && (node_mask[node / 64] >> (node % 64) & 1) && (nic_mask >> nic & 1);
  }
};

struct NodeEntry {
  char name[kNameBytes];
  uint32_t nics;
};

struct ProcessEntry {
  std::atomic<int32_t> pid;        // 0: free
  std::atomic<uint32_t> doorbell;  // the futex on which its injector thread sleeps
};

// Which NIC a GID or LID belongs to: how a process knows that its peer's port is the one that is down.
struct AddressEntry {
  std::atomic<uint32_t> ready;
  uint16_t node, nic;
  uint32_t port, lid;
  uint8_t gid[16];  // all zero: an entry for a LID
};

// The virtual clocks of a throttled port: until when its bandwidth is given away. [0] out, [1] in.
struct PortEntry {
  std::atomic<uint64_t> busy_until_ns[2];
};

struct WitnessEntry {
  std::atomic<uint32_t> ready;
  uint32_t fault_id;
  uint64_t time_ns;
  int32_t pid;
  uint16_t node, nic;
  uint32_t qp_num;
  uint32_t effect;
  uint64_t value;
  char rank[24];
};

struct Board {
  uint64_t magic;
  uint32_t version;
  uint32_t node_count;
  uint64_t bytes;
  uint64_t seed;
  std::atomic<uint64_t> start_ns;
  std::atomic<uint64_t> first_op_ns;  // 0: nobody has posted a send yet
  std::atomic<uint64_t> event_bits;   // bit hash(name) % 64 is set while a fault may wait for that event
  std::atomic<uint32_t> fault_count;
  std::atomic<uint32_t> address_count;
  std::atomic<uint64_t> witness_count;  // claimed; those beyond kMaxWitnesses are lost
  NodeEntry nodes[kMaxNodes];
  ProcessEntry processes[kMaxProcesses];
  PortEntry ports[kMaxNodes][kMaxNics];
  FaultEntry faults[kMaxFaults];
  AddressEntry addresses[kMaxAddresses];
  std::atomic<uint64_t> claims[kMaxClaims];
  WitnessEntry log[kMaxWitnesses];
};

uint64_t monotonic_ns();
uint64_t name_hash(const char* name);
uint64_t mix(uint64_t x);  // splitmix64: a good 64-bit hash, and with x += step a generator

// Wakes the injector thread of every process, or of one.
void ring(ProcessEntry& process);
void ring_all(Board& board);

// Sleeps until the doorbell differs from `seen` or until `deadline_ns` (UINT64_MAX: no deadline).
void wait_for_ring(ProcessEntry& process, uint32_t seen, uint64_t deadline_ns);

// A free slot for this process (slots of dead processes are taken over), or nullptr.
ProcessEntry* enroll(Board& board, int32_t pid);

// The trigger of an armed fault is met at `now`: it fires after its random phase, or at once when that is 0.
// False if it was met before.
bool meet_trigger(FaultEntry& fault, uint64_t now);

// Fires now, whatever the trigger says. False unless the fault was armed.
bool fire_now(FaultEntry& fault, uint64_t now);

// Ends it. False if it had ended.
bool heal_now(FaultEntry& fault, uint64_t now);

// Lets time act on all faults: time triggers, random phases, durations. Returns the next moment at which it
// could act again (UINT64_MAX: none). `changed` is set when a fault fired or healed.
uint64_t advance(Board& board, uint64_t now, bool& changed);

// An event of somebody's; true if it met a trigger.
bool offer_event(Board& board, const char* name, uint64_t value, uint64_t now);

// The first send posted by anybody starts the clock of 'since: first_op'.
void note_first_op(Board& board, uint64_t now);

// t0 becomes the least of the times reported.
void took_effect(FaultEntry& fault, uint64_t time_ns);

// True for exactly one caller per key.
bool claim(Board& board, uint64_t key);

struct WitnessFields {
  uint32_t fault_id;
  uint64_t time_ns;
  int32_t pid;
  const char* rank;
  uint32_t node, nic, qp_num, effect;
  uint64_t value;
};
void add_witness(Board& board, const WitnessFields& fields);

struct NicAddress {
  uint32_t node, nic;
};
void add_address(Board& board, NicAddress owner, uint32_t port, uint32_t lid, const uint8_t gid[16]);
// By GID if `gid` is not null and known, else by LID (not 0). False: not one of ours.
bool find_address(const Board& board, const uint8_t* gid, uint32_t lid, NicAddress& owner);

}  // namespace faultinject
