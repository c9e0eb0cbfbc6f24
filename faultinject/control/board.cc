#include "faultinject/control/board.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace faultinject {
namespace {

bool all_zero(const uint8_t gid[16]) {
  return std::all_of(gid, gid + 16, [](uint8_t byte) { return byte == 0; });
}

void to_fired(FaultEntry& fault, uint64_t time_ns) {
  uint64_t none = 0;
  fault.triggered_ns.compare_exchange_strong(none, time_ns);
  Phase armed = Phase::kArmed;
  fault.phase.compare_exchange_strong(armed, Phase::kFired);
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
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&process.doorbell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
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

ProcessEntry* enroll(Board& board, int32_t pid) {
  for (ProcessEntry& process : board.processes) {
    int32_t owner = process.pid.load();
    if (owner == pid) return &process;  // opened, closed and opened again, or exec kept the pid
    const bool dead = owner != 0 && kill(owner, 0) != 0 && errno == ESRCH;
    if ((owner == 0 || dead) && process.pid.compare_exchange_strong(owner, pid)) return &process;
  }
  return nullptr;
}

bool meet_trigger(FaultEntry& fault, uint64_t now) {
  if (fault.phase.load() != Phase::kArmed) return false;
  uint64_t none = 0;
  if (!fault.due_ns.compare_exchange_strong(none, now + fault.phase_delay_ns)) return false;
  if (fault.phase_delay_ns == 0) to_fired(fault, now);
  return true;
}

bool fire_now(FaultEntry& fault, uint64_t now) {
  if (fault.phase.load() != Phase::kArmed) return false;
  to_fired(fault, now);
  return true;
}

bool heal_now(FaultEntry& fault, uint64_t now) {
  Phase phase = fault.phase.load();
  while (phase == Phase::kArmed || phase == Phase::kFired) {
    uint64_t none = 0;
    fault.healed_ns.compare_exchange_strong(none, now);
    if (fault.phase.compare_exchange_weak(phase, Phase::kHealed)) return true;
  }
  return false;
}

uint64_t advance(Board& board, uint64_t now, bool& changed) {
  uint64_t next = UINT64_MAX;
  const uint32_t count = std::min(board.fault_count.load(), kMaxFaults);
  for (uint32_t i = 0; i < count; i++) {
    FaultEntry& fault = board.faults[i];
    Phase phase = fault.phase.load();
    if (phase == Phase::kArmed) {
      uint64_t due = fault.due_ns.load();
      if (due == 0 && fault.trigger == TriggerKind::kTime) {
        const uint64_t start = fault.since_first_op ? board.first_op_ns.load() : board.start_ns.load();
        if (start != 0) due = start + fault.after_ns + fault.phase_delay_ns;
      } else if (due == 0 && fault.trigger == TriggerKind::kNow) {
        due = fault.armed_ns.load() + fault.phase_delay_ns;
      }
      if (due == 0) continue;
      if (due > now) {
        next = std::min(next, due);
        continue;
      }
      to_fired(fault, now);
      changed = true;
      phase = fault.phase.load();
    }
    if (phase == Phase::kFired && fault.duration_ns != 0) {
      const uint64_t t0 = fault.t0_ns.load();
      const uint64_t end = (t0 != 0 ? t0 : fault.triggered_ns.load()) + fault.duration_ns;
      if (end <= now) {
        changed |= heal_now(fault, now);
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
    if (fault.phase.load() != Phase::kArmed || fault.trigger != TriggerKind::kEvent) continue;
    if (strncmp(fault.event, name, kNameBytes) != 0) continue;
    if (fault.has_value && (fault.value_is_least ? value < fault.value : value != fault.value)) continue;
    met |= meet_trigger(fault, now);
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
}

bool claim(Board& board, uint64_t key) {
  if (key == 0) key = 1;
  for (uint32_t i = 0, at = uint32_t(mix(key) % kMaxClaims); i < kMaxClaims; i++, at = (at + 1) % kMaxClaims) {
    uint64_t holder = board.claims[at].load();
    if (holder == 0 && board.claims[at].compare_exchange_strong(holder, key)) return true;
    if (holder == key) return false;
  }
  return false;
}

void add_witness(Board& board, const WitnessFields& fields) {
  board.faults[fields.fault_id - 1].witnesses.fetch_add(1);
  const uint64_t at = board.witness_count.fetch_add(1);
  if (at >= kMaxWitnesses) return;
  WitnessEntry& entry = board.log[at];
  entry.fault_id = fields.fault_id;
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

void add_address(Board& board, NicAddress owner, uint32_t port, uint32_t lid, const uint8_t gid[16]) {
  if (gid != nullptr ? all_zero(gid) : lid == 0) return;
  NicAddress known{};
  if (find_address(board, gid, gid != nullptr ? 0 : lid, known) && known.node == owner.node && known.nic == owner.nic)
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
    owner = {entry.node, entry.nic};
    return true;
  }
  return false;
}

}  // namespace faultinject
