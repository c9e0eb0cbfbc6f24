// SPDX-License-Identifier: Apache-2.0
// The fault board: plain data in shared memory, written by its creator and by every injected process at once.
// There are no locks on it, so a process that is killed or stopped anywhere can hold up nobody: each step is
// one atomic operation, and a step begun and not ended (a witness claimed, not written) is only left out.
#pragma once

#include <atomic>
#include <cstdint>

#include "faultinject/plan/kind.h"

namespace faultinject {

constexpr uint64_t kBoardMagic = 0x4452414f42494646;  // "FFIBOARD"
constexpr uint32_t kBoardVersion = 8;
constexpr uint32_t kMaxNodes = 256;
constexpr uint32_t kMaxNics = 64;
constexpr uint32_t kMaxFaults = 4096;
constexpr uint32_t kMaxProcesses = 1024;
constexpr uint32_t kMaxAddresses = 16384;
constexpr uint32_t kMaxClaims = 65536;
constexpr uint32_t kMaxClocks = 65536;
constexpr uint32_t kMaxWitnesses = 65536;
// Witnesses of one fault's strikes, of a process and device; beyond them only the first strike of each round.
constexpr uint32_t kMostStrikeRecords = 256;
constexpr uint32_t kRecentRounds = 16;  // whose times of firing a fault keeps
constexpr uint32_t kNameBytes = 32;
constexpr uint32_t kMaxRateSteps = 16;
constexpr uint64_t kAllStrikes = UINT64_MAX;
constexpr uint64_t kWaitsForProcesses =
    1000000000;  // ns from the firing of a round; see finish_when_all_have

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "the board needs atomics that work between processes");

enum class Phase : uint32_t { kEmpty, kArmed, kFired, kHealed };

// One round of one fault: what an effect is recorded for, however late in or after that round it comes.
struct FaultRound {
  uint32_t id = 0;     // of the fault; 0: of none
  uint32_t round = 0;  // from 0
};

// The phase of a fault and the round it is in (from 0): a fault that repeats goes from kFired back to kArmed,
// a round further. Both are one word. Whoever decides anything reads it once, and moves it only from what was
// read: so each step is taken by exactly one process, and by none that decided for an earlier round.
struct PhaseAndRound {
  Phase phase;
  uint32_t round;
};

class PhaseWord {
 public:
  PhaseAndRound both() const {
    const uint64_t word = word_.load();
    return {Phase(word & 0xff), uint32_t(word >> 8)};
  }
  Phase load() const { return both().phase; }
  void store(Phase phase) { word_.store(uint64_t(phase)); }
  bool move(PhaseAndRound seen, Phase to) { return exchange(seen, {to, seen.round}); }
  bool next_round(PhaseAndRound seen) { return exchange(seen, {Phase::kArmed, seen.round + 1}); }

 private:
  static uint64_t word_of(PhaseAndRound both) { return uint64_t(both.round) << 8 | uint64_t(both.phase); }
  bool exchange(PhaseAndRound seen, PhaseAndRound to) {
    uint64_t word = word_of(seen);
    return word_.compare_exchange_strong(word, word_of(to));
  }

  std::atomic<uint64_t> word_;
};

// Mirrors Trigger::Kind, Trigger::Until and QpSelector::Kind of plan/plan.h, which the preloaded library does
// not link.
enum class TriggerKind : uint32_t { kManual, kNow, kTime, kEvent, kWr, kBytes, kProbability, kAfter };
enum class AfterState : uint32_t { kEffect, kHealed, kTriggered };
enum class SelectorKind : uint32_t { kBusiest, kAll, kRandom, kIndex };

struct RateEntry {
  uint64_t bits_per_s;  // 0: not limited
  uint64_t lasts_ns;    // 0: it stays
};

struct FaultEntry {
  // Written once by arm(), before phase becomes kArmed; constant afterwards.
  char kind[kNameBytes];  // the name of its FaultKind
  uint32_t id;
  uint64_t node_mask[kMaxNodes / 64];  // the target is the product of both masks
  uint64_t nic_mask;
  uint64_t peer_node_mask[kMaxNodes / 64];  // only queue pairs connected to these, where has_peer
  uint64_t peer_nic_mask;
  uint32_t has_peer;
  uint32_t port;      // 0: all ports
  uint32_t opcodes;   // a bit per ibv_wr_opcode; 0: all
  uint32_t rounds;    // how often it fires; 0 counts as 1
  uint64_t every_ns;  // 0: a round begins when the trigger is met again
  SelectorKind selector;
  uint32_t qp_index;
  TriggerKind trigger;
  uint32_t since_first_op;
  uint64_t after_ns;
  char event[kNameBytes];
  uint32_t has_value, value_is_least;
  uint64_t value;
  uint64_t count;
  uint64_t probability;  // of 2^64
  uint32_t after_fault;  // id
  AfterState after_state;
  uint64_t phase_delay_ns;  // drawn when armed
  uint64_t duration_ns;     // 0: until healed
  uint64_t seed;            // of the choices that processes make for this fault
  uint32_t events, query, receive;
  int32_t error, status, event_type;
  uint64_t limit;  // strikes per round; kAllStrikes: no limit
  uint64_t rate_bits_per_s, delay_ns;
  OwnValues own;        // of the parameters that its kind has alone
  uint32_t rate_steps;  // 0: rate_bits_per_s throughout
  RateEntry schedule[kMaxRateSteps];

  // Its trigger is in the sends themselves, so that it must see all of them.
  bool counts_sends() const {
    return trigger == TriggerKind::kWr || trigger == TriggerKind::kBytes || trigger == TriggerKind::kProbability;
  }

  PhaseWord phase;  // kArmed -> kFired -> kHealed, or kArmed -> kHealed; kFired -> kArmed for the next round
  std::atomic<uint64_t> armed_ns;
  std::atomic<uint64_t> due_ns;        // trigger met: fires then
  std::atomic<uint64_t> triggered_ns;  // of the first round
  std::atomic<uint64_t> fired_ns;      // of this round
  std::atomic<uint64_t> t0_ns;         // the least time anybody reported
  std::atomic<uint64_t> healed_ns;
  std::atomic<uint64_t> progress;  // kWr, kBytes
  std::atomic<uint64_t> strikes;   // round << 32 | how often it has struck in that round
  std::atomic<uint64_t> witnesses;
  std::atomic<uint64_t>
      asked;  // by the round's first strike: (round + 1) << 32 | which question of the board
  std::atomic<uint32_t>
      struck_in;  // the last round, from 1, with a strike, of a fault that strikes in each process
  std::atomic<uint32_t> times_fired;
  std::atomic<uint64_t> recent_ns[kRecentRounds];  // when a round fired, by its number modulo their number

  bool hits(uint32_t node, uint32_t nic) const {
    return node < kMaxNodes && nic < kMaxNics && (node_mask[node / 64] >> (node % 64) & 1) &&
           (nic_mask >> nic & 1);
  }
  bool hits_peer(uint32_t node, uint32_t nic) const {
    return node < kMaxNodes && nic < kMaxNics && (peer_node_mask[node / 64] >> (node % 64) & 1) &&
           (peer_nic_mask >> nic & 1);
  }
  bool takes_opcode(uint32_t opcode) const {
    return opcodes == 0 || (opcode < 32 && (opcodes >> opcode & 1) != 0);
  }
};

struct NodeEntry {
  char name[kNameBytes];
  uint32_t nics;
};

struct ProcessEntry {
  std::atomic<int32_t> pid;        // 0: free
  std::atomic<uint32_t> doorbell;  // the futex on which its injector thread sleeps
  std::atomic<uint32_t> node;
  std::atomic<uint64_t> nics;      // those of its node that it has open
  std::atomic<uint64_t> answered;  // the last question of the board after which it has looked at all faults
};

// Which NIC a GID or LID belongs to: how a process knows that its peer's port is the one that is down.
struct AddressEntry {
  std::atomic<uint32_t> ready;
  uint16_t node, nic;
  uint32_t port, lid;
  uint8_t gid[16];  // all zero: an entry for a LID
};

// The virtual clocks of one port under one throttle: until when its bandwidth is given away. [0] out, [1] in.
struct ClockEntry {
  std::atomic<uint64_t> key;  // 0: free
  std::atomic<uint64_t> busy_until_ns[2];
};

struct WitnessEntry {
  std::atomic<uint32_t> ready;
  FaultRound fault;
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
  int32_t owner_pid;                // when it is gone nobody can heal: what is blocked then goes on
  std::atomic<uint32_t> followers;  // faults that wait for another one
  std::atomic<uint32_t>
      questions;  // asked so far, whether every process has begun a round (FaultEntry::asked)
  std::atomic<uint64_t> start_ns;
  std::atomic<uint64_t> first_op_ns;  // 0: nobody has posted a send yet
  std::atomic<uint64_t> event_bits;   // bit hash(name) % 64 is set while a fault may wait for that event
  std::atomic<uint32_t> fault_count;
  std::atomic<uint32_t> address_count;
  std::atomic<uint64_t> witness_count;  // claimed; those beyond kMaxWitnesses are lost
  std::atomic<uint64_t> claims_lost;    // that found `claims` full: what they were for was not done
  NodeEntry nodes[kMaxNodes];
  ProcessEntry processes[kMaxProcesses];
  FaultEntry faults[kMaxFaults];
  AddressEntry addresses[kMaxAddresses];
  std::atomic<uint64_t> claims[kMaxClaims];
  ClockEntry clocks[kMaxClocks];
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

// Has the process ended? True for a zombie, too; not for a process of which only the first thread has ended.
bool is_dead(int32_t pid);

// A free slot for this process (slots of dead processes are taken over), or nullptr.
ProcessEntry* enroll(Board& board, int32_t pid);

// The trigger of a fault that was seen armed is met at `now`: it fires after its random phase, or at once
// when that is 0. False if it was met before, or if the fault is no longer as it was seen.
bool meet_trigger(FaultEntry& fault, PhaseAndRound seen, uint64_t now);

// Fires now, whatever the trigger says. False unless the fault was armed.
bool fire_now(FaultEntry& fault, uint64_t now);

// Ends it, with all the rounds that it has left. False if it had ended.
bool heal_now(FaultEntry& fault, uint64_t now);

// Ends the round that was seen at work: the fault is armed for the next one, or healed after the last. False
// if somebody else did.
bool end_round(FaultEntry& fault, PhaseAndRound seen, uint64_t now);

// A fault that ends by itself has done all that it does in `round`: armed for the next one, if there is one.
// True if this call armed it. Anybody who knows that the round is used up may call it.
bool finish_round(FaultEntry& fault, uint32_t round);

// For a fault that strikes in each process, or at each NIC: one strike ends no round for the others. So
// whoever has struck notes it (twice does no harm); that asks all processes whether they have begun the
// round. It is over when all have that had a NIC of the target open, and are alive; and 1 s after it fired at
// the latest, since a process may be stopped. `self` is taken to have. True if this call ended the round.
void note_strike(Board& board, FaultEntry& fault, uint32_t round);
bool finish_when_all_have(Board& board, FaultEntry& fault, uint32_t round, const ProcessEntry* self,
                          uint64_t now);

// May it strike once more in `round`? Counts that strike; `last` is set when it was the round's last. A call
// that finds all strikes taken ends the round, because the process that took the last one may be dead.
bool take_strike(FaultEntry& fault, uint32_t round, bool& last);

// Has the owner of the board gone without healing?
bool owner_is_gone(const Board& board);

// Lets time act on all faults: time triggers, random phases, durations. Returns the next moment at which it
// could act again (UINT64_MAX: none). `changed` is set when a fault fired or healed.
uint64_t advance(Board& board, uint64_t now, bool& changed);

// An event of somebody's; true if it met a trigger.
bool offer_event(Board& board, const char* name, uint64_t value, uint64_t now);

// The first send posted by anybody starts the clock of 'since: first_op'.
void note_first_op(Board& board, uint64_t now);

// t0 becomes the least of the times reported. The entry must lie on a board: faults that wait for it are
// woken.
void took_effect(FaultEntry& fault, uint64_t time_ns);

// True for exactly one caller per key. When kMaxClaims keys are known, false for each new one, and counted in
// claims_lost. claimed(): has anybody called?
bool claim(Board& board, uint64_t key);
bool claimed(const Board& board, uint64_t key);

// The key of the strike at a NIC in one round of a fault.
constexpr uint64_t strike_key(uint32_t fault_id, uint32_t round, uint32_t node, uint32_t nic) {
  static_assert(kMaxFaults < 1 << 16 && kMaxNodes <= 1 << 8 && kMaxNics <= 1 << 8);  // a round has 32 bits
  return uint64_t(fault_id) << 48 | uint64_t(round) << 16 | uint64_t(node) << 8 | nic;
}

struct WitnessFields {
  FaultRound fault;
  uint64_t time_ns;
  int32_t pid;
  const char* rank;
  uint32_t node, nic, qp_num, effect;
  uint64_t value;
};
void add_witness(Board& board, const WitnessFields& fields);

struct NicAddress {
  uint32_t node = 0, nic = 0, port = 0;
};
// The clocks of a port under a fault, the same for all processes. Where the table is full, several share
// some.
ClockEntry& clocks_of(Board& board, uint32_t fault_id, NicAddress port);

void add_address(Board& board, NicAddress owner, uint32_t port, uint32_t lid, const uint8_t gid[16]);
// By GID if `gid` is not null and known, else by LID (not 0). False: not one of ours.
bool find_address(const Board& board, const uint8_t* gid, uint32_t lid, NicAddress& owner);

}  // namespace faultinject
