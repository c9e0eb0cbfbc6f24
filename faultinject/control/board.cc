// SPDX-License-Identifier: Apache-2.0
#include "faultinject/control/board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace faultinject {
namespace {

bool all_zero(const uint8_t gid[16]) {
  return std::all_of(gid, gid + 16, [](uint8_t byte) { return byte == 0; });
}

template <class T>
void raise_to(std::atomic<T>& value, T least) {
  T seen = value.load();
  while (seen < least && !value.compare_exchange_weak(seen, least)) {
  }
}

bool to_fired(FaultEntry& fault, PhaseAndRound seen, uint64_t time_ns) {
  uint64_t none = 0;
  fault.triggered_ns.compare_exchange_strong(none, time_ns);
  // Before it fires: nobody may take an earlier round's time for this one's.
  raise_to(fault.fired_ns, time_ns);
  raise_to(fault.recent_ns[seen.round % kRecentRounds], time_ns);
  const bool fired = fault.phase.move(seen, Phase::kFired);
  if (fired) raise_to(fault.times_fired, seen.round + 1);
  return fired;
}

// Before a round that has fired ends: the process that fired it may have been killed before it had counted
// it.
void count_fired(FaultEntry& fault, PhaseAndRound seen) {
  if (seen.phase == Phase::kFired) raise_to(fault.times_fired, seen.round + 1);
}

bool strikes_used_up(const FaultEntry& fault, uint32_t round) {
  if (fault.limit == 0 || fault.limit == kAllStrikes) return false;
  const uint64_t word = fault.strikes.load();
  return word >> 32 == round && (word & 0xffffffff) >= fault.limit;
}

constexpr uint64_t kLooksAgain = 5000000;  // ns; those that a round waits for may die without a word

// Is nothing left to strike for this process? One that has not answered may have no NIC of the target open,
// or only such that were struck.
bool has_nothing_to_strike(const Board& board, const FaultEntry& fault, uint32_t round,
                           const ProcessEntry& process) {
  const uint32_t node = process.node.load();
  uint64_t nics = process.nics.load() & fault.nic_mask;
  const bool one_strike = fault.selector == SelectorKind::kBusiest || fault.selector == SelectorKind::kRandom;
  for (uint32_t nic = 0; nics != 0; nic++, nics >>= 1) {
    if ((nics & 1) == 0 || !fault.hits(node, nic)) continue;
    if (!one_strike || !claimed(board, strike_key(fault.id, round, node, nic))) return false;
  }
  return true;
}

bool all_have_begun(const Board& board, const FaultEntry& fault, uint32_t round, const ProcessEntry* self) {
  const uint64_t asked = fault.asked.load();
  if (asked >> 32 != uint64_t(round) + 1) return false;
  for (const ProcessEntry& process : board.processes) {
    const int32_t pid = process.pid.load();
    if (pid == 0 || &process == self || process.answered.load() >= (asked & 0xffffffff)) continue;
    if (!has_nothing_to_strike(board, fault, round, process) && !is_dead(pid)) return false;
  }
  return true;
}

// When the trigger of a fault armed for `round` is or was met by time alone; 0: not by time, or not yet
// known.
uint64_t due_of(const Board& board, const FaultEntry& fault, uint32_t round) {
  if (round > 0) return fault.every_ns != 0 ? fault.triggered_ns.load() + round * fault.every_ns : 0;
  if (const uint64_t due = fault.due_ns.load(); due != 0) return due;
  switch (fault.trigger) {
    case TriggerKind::kNow:
      return fault.armed_ns.load() + fault.phase_delay_ns;
    case TriggerKind::kTime: {
      const uint64_t start = fault.since_first_op ? board.first_op_ns.load() : board.start_ns.load();
      return start != 0 ? start + fault.after_ns + fault.phase_delay_ns : 0;
    }
    case TriggerKind::kAfter: {
      if (fault.after_fault == 0 || fault.after_fault > kMaxFaults) return 0;
      const FaultEntry& other = board.faults[fault.after_fault - 1];
      uint64_t when = 0;
      switch (fault.after_state) {
        case AfterState::kEffect:
          when = other.t0_ns.load();
          break;
        case AfterState::kHealed:
          when = other.phase.load() == Phase::kHealed ? other.healed_ns.load() : 0;
          break;
        case AfterState::kTriggered:
          when = other.triggered_ns.load();
          break;
      }
      return when != 0 ? when + fault.after_ns + fault.phase_delay_ns : 0;
    }
    default:
      return 0;
  }
}

}  // namespace

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t name_hash(const char* name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name != 0; name++) hash = (hash ^ uint8_t(*name)) * 0x100000001b3u;
  return mix(hash);
}

void ring(ProcessEntry& process) {
  process.doorbell.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&process.doorbell), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

void ring_all(Board& board) {
  for (ProcessEntry& process : board.processes)
    if (process.pid.load(std::memory_order_relaxed) != 0) ring(process);
}

void wait_for_ring(ProcessEntry& process, uint32_t seen, uint64_t deadline_ns) {
  if (process.doorbell.load() != seen) return;
  timespec deadline{};
  deadline.tv_sec = time_t(deadline_ns / 1000000000u);
  deadline.tv_nsec = long(deadline_ns % 1000000000u);
  // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time, so that a late start does not add up.
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&process.doorbell), FUTEX_WAIT_BITSET, seen,
          deadline_ns == UINT64_MAX ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

bool is_dead(int32_t pid) {
  if (kill(pid, 0) != 0) return errno == ESRCH;
  char path[32], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", int(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT && kill(pid, 0) != 0 && errno == ESRCH;
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return errno == ESRCH;  // it ended between the two
  text[length] = 0;
  const char* name_end = strrchr(text, ')');  // the name may hold anything
  char state = 0;
  long threads = 0;  // field 20 of proc(5)
  if (name_end == nullptr ||
      sscanf(name_end + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld", &state,
             &threads) != 2)
    return false;
  return (state == 'Z' || state == 'X') && threads <= 1;
}

ProcessEntry* enroll(Board& board, int32_t pid) {
  for (ProcessEntry& process : board.processes) {
    int32_t owner = process.pid.load();
    if (owner == pid) return &process;  // opened, closed and opened again, or exec kept the pid
    if ((owner == 0 || is_dead(owner)) && process.pid.compare_exchange_strong(owner, pid)) return &process;
  }
  return nullptr;
}

bool meet_trigger(FaultEntry& fault, PhaseAndRound seen, uint64_t now) {
  if (seen.phase != Phase::kArmed) return false;
  // Met anew in each round, and without a random phase.
  if (fault.rounds > 1 && fault.every_ns == 0) return to_fired(fault, seen, now);
  uint64_t none = 0;
  if (!fault.due_ns.compare_exchange_strong(none, now + fault.phase_delay_ns)) return false;
  if (fault.phase_delay_ns == 0) to_fired(fault, seen, now);
  return true;
}

bool fire_now(FaultEntry& fault, uint64_t now) {
  const PhaseAndRound seen = fault.phase.both();
  return seen.phase == Phase::kArmed && to_fired(fault, seen, now);
}

bool heal_now(FaultEntry& fault, uint64_t now) {
  for (;;) {
    const PhaseAndRound seen = fault.phase.both();
    if (seen.phase != Phase::kArmed && seen.phase != Phase::kFired) return false;
    uint64_t none = 0;
    fault.healed_ns.compare_exchange_strong(none, now);
    count_fired(fault, seen);
    if (fault.phase.move(seen, Phase::kHealed)) return true;
  }
}

bool end_round(FaultEntry& fault, PhaseAndRound seen, uint64_t now) {
  count_fired(fault, seen);
  if (seen.round + 1 < fault.rounds) return fault.phase.next_round(seen);
  uint64_t none = 0;
  fault.healed_ns.compare_exchange_strong(none, now);
  return fault.phase.move(seen, Phase::kHealed);  // or it is healed: there is no later round
}

bool finish_round(FaultEntry& fault, uint32_t round) {
  const PhaseAndRound seen{Phase::kFired, round};
  count_fired(fault, seen);
  return round + 1 < fault.rounds && fault.phase.next_round(seen);
}

// The question comes before the note, so that whoever finds a round with a strike finds its question; and
// after the firing, so that who answers has begun the round, or a later one.
void note_strike(Board& board, FaultEntry& fault, uint32_t round) {
  uint64_t asked = fault.asked.load();
  while (asked >> 32 < uint64_t(round) + 1) {
    const uint64_t question = (uint64_t(round) + 1) << 32 | (board.questions.fetch_add(1) + 1);
    if (fault.asked.compare_exchange_strong(asked, question)) break;
  }
  raise_to(fault.struck_in, round + 1);
}

bool finish_when_all_have(Board& board, FaultEntry& fault, uint32_t round, const ProcessEntry* self,
                          uint64_t now) {
  const PhaseAndRound seen = fault.phase.both();
  if (seen.phase != Phase::kFired || seen.round != round || round + 1 >= fault.rounds) return false;
  if (fault.struck_in.load() != round + 1) return false;
  const bool waited = now >= fault.fired_ns.load() + kWaitsForProcesses;
  return (waited || all_have_begun(board, fault, round, self)) && finish_round(fault, round);
}

bool take_strike(FaultEntry& fault, uint32_t in_round, bool& last) {
  last = false;
  if (fault.limit == kAllStrikes) return true;
  const uint64_t round = in_round;
  uint64_t word = fault.strikes.load();
  uint64_t taken = 0;
  do {
    taken = word >> 32 == round ? word & 0xffffffff : 0;
    if (word >> 32 > round) return false;
    if (taken >= fault.limit) {
      finish_round(fault, in_round);  // whoever took the last strike may have been killed before it did
      return false;
    }
  } while (!fault.strikes.compare_exchange_weak(word, round << 32 | (taken + 1)));
  last = taken + 1 == fault.limit;
  return true;
}

bool owner_is_gone(const Board& board) { return board.owner_pid > 0 && is_dead(board.owner_pid); }

uint64_t advance(Board& board, uint64_t now, bool& changed) {
  uint64_t next = UINT64_MAX;
  const uint32_t count = std::min(board.fault_count.load(), kMaxFaults);
  for (uint32_t i = 0; i < count; i++) {
    FaultEntry& fault = board.faults[i];
    PhaseAndRound seen = fault.phase.both();
    if (seen.phase == Phase::kArmed) {
      const uint64_t due = due_of(board, fault, seen.round);
      if (due == 0) continue;
      if (due > now) {
        next = std::min(next, due);
        continue;
      }
      changed |= to_fired(fault, seen, now);
      seen = fault.phase.both();
    }
    if (seen.phase == Phase::kFired && strikes_used_up(fault, seen.round) &&
        finish_round(fault, seen.round)) {
      changed = true;
      next = now;  // it may have become due anew
      continue;
    }
    if (seen.phase == Phase::kFired && seen.round + 1 < fault.rounds &&
        fault.struck_in.load() == seen.round + 1) {
      if (finish_when_all_have(board, fault, seen.round, nullptr, now)) {
        changed = true;
        next = now;
        continue;
      }
      next = std::min(next, now + kLooksAgain);
    }
    if (seen.phase == Phase::kFired && fault.duration_ns != 0) {
      // The first round lasts from its effect on, later ones from their firing on.
      const uint64_t t0 = fault.t0_ns.load();
      const uint64_t from = seen.round == 0 && t0 != 0 ? t0 : fault.fired_ns.load();
      const uint64_t end = from + fault.duration_ns;
      if (end <= now) {
        changed |= end_round(fault, seen, now);
        next = now;  // it may have become due anew, or others with it
      } else {
        next = std::min(next, end);
      }
    }
  }
  return next;
}

bool offer_event(Board& board, const char* name, uint64_t value, uint64_t now) {
  const uint64_t bits = board.event_bits.load(std::memory_order_relaxed);
  if (bits == 0 || !(bits >> (name_hash(name) % 64) & 1)) return false;
  bool met = false;
  const uint32_t count = std::min(board.fault_count.load(), kMaxFaults);
  for (uint32_t i = 0; i < count; i++) {
    FaultEntry& fault = board.faults[i];
    const PhaseAndRound seen = fault.phase.both();
    if (seen.phase != Phase::kArmed || fault.trigger != TriggerKind::kEvent) continue;
    if (strncmp(fault.event, name, kNameBytes) != 0) continue;
    if (fault.has_value && (fault.value_is_least ? value < fault.value : value != fault.value)) continue;
    met |= meet_trigger(fault, seen, now);
  }
  return met;
}

void note_first_op(Board& board, uint64_t now) {
  uint64_t none = 0;
  board.first_op_ns.compare_exchange_strong(none, now);
}

void took_effect(FaultEntry& fault, uint64_t time_ns) {
  uint64_t t0 = fault.t0_ns.load();
  while ((t0 == 0 || time_ns < t0) && !fault.t0_ns.compare_exchange_weak(t0, time_ns)) {
  }
  if (t0 != 0) return;
  auto* first = reinterpret_cast<char*>(&fault - (fault.id - 1));
  auto& board = *reinterpret_cast<Board*>(first - offsetof(Board, faults));
  if (board.followers.load(std::memory_order_relaxed) != 0) ring_all(board);
}

bool claim(Board& board, uint64_t key) {
  if (key == 0) key = 1;
  for (uint32_t i = 0, at = uint32_t(mix(key) % kMaxClaims); i < kMaxClaims;
       i++, at = (at + 1) % kMaxClaims) {
    uint64_t holder = board.claims[at].load();
    if (holder == 0 && board.claims[at].compare_exchange_strong(holder, key)) return true;
    if (holder == key) return false;
  }
  board.claims_lost.fetch_add(1);
  return false;
}

bool claimed(const Board& board, uint64_t key) {
  if (key == 0) key = 1;
  for (uint32_t i = 0, at = uint32_t(mix(key) % kMaxClaims); i < kMaxClaims;
       i++, at = (at + 1) % kMaxClaims) {
    const uint64_t holder = board.claims[at].load();
    if (holder == 0 || holder == key) return holder == key;
  }
  return false;
}

void add_witness(Board& board, const WitnessFields& fields) {
  board.faults[fields.fault.id - 1].witnesses.fetch_add(1);
  const uint64_t at = board.witness_count.fetch_add(1);
  if (at >= kMaxWitnesses) return;
  WitnessEntry& entry = board.log[at];
  entry.fault = fields.fault;
  entry.time_ns = fields.time_ns;
  entry.pid = fields.pid;
  entry.node = uint16_t(fields.node);
  entry.nic = uint16_t(fields.nic);
  entry.qp_num = fields.qp_num;
  entry.effect = fields.effect;
  entry.value = fields.value;
  strncpy(entry.rank, fields.rank, sizeof entry.rank - 1);
  entry.ready.store(1, std::memory_order_release);
}

ClockEntry& clocks_of(Board& board, uint32_t fault_id, NicAddress port) {
  const uint64_t key =
      uint64_t(fault_id) << 32 | uint64_t(port.node) << 16 | uint64_t(port.nic) << 8 | (port.port & 0xff);
  uint32_t at = uint32_t(mix(key) % kMaxClocks);
  for (uint32_t i = 0; i < kMaxClocks; i++, at = (at + 1) % kMaxClocks) {
    uint64_t holder = board.clocks[at].key.load();
    if (holder == key) break;
    if (holder == 0 && (board.clocks[at].key.compare_exchange_strong(holder, key) || holder == key)) break;
  }
  return board.clocks[at];
}

void add_address(Board& board, NicAddress owner, uint32_t port, uint32_t lid, const uint8_t gid[16]) {
  if (gid != nullptr ? all_zero(gid) : lid == 0) return;
  NicAddress known{};
  if (find_address(board, gid, gid != nullptr ? 0 : lid, known) && known.node == owner.node &&
      known.nic == owner.nic)
    return;
  const uint32_t at = board.address_count.fetch_add(1);
  if (at >= kMaxAddresses) return;
  AddressEntry& entry = board.addresses[at];
  entry.node = uint16_t(owner.node);
  entry.nic = uint16_t(owner.nic);
  entry.port = port;
  entry.lid = lid;
  if (gid != nullptr) memcpy(entry.gid, gid, 16);
  entry.ready.store(1, std::memory_order_release);
}

bool find_address(const Board& board, const uint8_t* gid, uint32_t lid, NicAddress& owner) {
  const uint32_t count = std::min(board.address_count.load(), kMaxAddresses);
  for (uint32_t i = 0; i < count; i++) {
    const AddressEntry& entry = board.addresses[i];
    if (entry.ready.load(std::memory_order_acquire) == 0) continue;
    const bool for_lid = all_zero(entry.gid);
    const bool same = for_lid ? lid != 0 && gid == nullptr && entry.lid == lid
                              : gid != nullptr && memcmp(entry.gid, gid, 16) == 0;
    if (!same) continue;
    owner = {entry.node, entry.nic, entry.port};
    return true;
  }
  return false;
}

}  // namespace faultinject
