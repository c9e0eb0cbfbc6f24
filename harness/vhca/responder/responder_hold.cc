// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/responder/responder_hold.h"

#include <time.h>

#include <algorithm>

#include "harness/vhca/base/clock.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/limits.h"

namespace vhca {
namespace {

constexpr std::uint64_t kOneHold = 1ull << 32;
constexpr std::uint64_t kStoppedHolderNs = 20'000'000;
constexpr std::uint64_t kLongestWaitNs = 2'000'000'000;
constexpr std::uint64_t kLookAtHolderNs = 1'000'000;
constexpr std::uint64_t kSpinNs = 20'000;

void nap() {
  const timespec length{0, 20'000};
  ::nanosleep(&length, nullptr);
}

}  // namespace

Target::Target(Fabric& fabric, const Qp& initiator, const SendEntry& send, ProcessId self)
    : slot_(fabric.queue_pairs[number_of(initiator, send) & (kMaxQueuePairs - 1)]) {
  if (!answers(fabric, initiator, send)) return;
  std::uint64_t seen = slot_.responder.load();
  if (holder_of(seen) != 0) {
    if (!responder_is_free(fabric, slot_)) {
      busy_ = true;
      return;
    }
    seen = slot_.responder.load();
  }
  hold_ = (seen & ~kHolderMask) + kOneHold + self;
  if (holder_of(seen) != 0 || !slot_.responder.compare_exchange_strong(seen, hold_)) {
    busy_ = true;
    return;
  }
  held_ = true;
  // Again, now that the owner has to wait for us if it wants to change its mind.
  if (!answers(fabric, initiator, send)) release();
}

void Target::release() {
  if (!held_) return;
  held_ = false;
  end_of_use();
  std::uint64_t ours = hold_;
  if (slot_.responder.compare_exchange_strong(ours, hold_ & ~kHolderMask)) return;
  for (auto& revoked : slot_.revoked.words) {
    ours = hold_;
    revoked.compare_exchange_strong(ours, 0);
  }
}

std::uint32_t Target::number_of(const Qp& initiator, const SendEntry& send) {
  return initiator.shared->type == IBV_QPT_UD ? send.datagram.number
                                              : initiator.shared->peer_number.load(std::memory_order_relaxed);
}

// After its first answer a peer counts on, until one of the two begins another life. UC takes up the sequence
// numbers of whatever comes.
bool Target::is_in_sequence(const Qp& initiator) const {
  if (initiator.peer_life != 0) return initiator.peer_life == life_;
  return !initiator.is_reliable() ||
         slot_.rq_psn.load(std::memory_order_relaxed) == (initiator.attr.sq_psn & kPsnMask);
}

bool Target::answers(const Fabric& fabric, const Qp& initiator, const SendEntry& send) {
  const QpSlot& own = *initiator.shared;
  const std::uint32_t word = slot_.state.word();
  life_ = QpState::life_of(word);
  if (slot_.number.load() != number_of(initiator, send) || !receives(QpState::state_of(word)) ||
      slot_.type != own.type || !is_in_sequence(initiator) ||
      slot_.pkey_index.load(std::memory_order_relaxed) != own.pkey_index.load(std::memory_order_relaxed))
    return false;
  if (own.type == IBV_QPT_UD)
    return slot_.port == send.datagram.port &&
           slot_.qkey.load(std::memory_order_relaxed) == send.datagram.qkey;
  const auto packet = std::uint32_t(std::min<std::uint64_t>(send.length, 128u << initiator.attr.path_mtu));
  for (const Port* port : {&fabric.ports[own.port], &fabric.ports[slot_.port]})
    if (const std::uint32_t passes = port->narrow.load(std::memory_order_relaxed);
        passes != 0 && packet > passes)
      return false;
  return slot_.peer_number.load(std::memory_order_relaxed) == initiator.qp_base.qp_num &&
         slot_.port == own.peer_port.load(std::memory_order_relaxed) &&
         slot_.peer_port.load(std::memory_order_relaxed) == own.port;
}

bool responder_is_free(Fabric& fabric, QpSlot& qp) {
  std::uint64_t word = qp.responder.load();
  if (holder_of(word) == 0) return true;
  if (process_liveness(fabric, holder_of(word)) != Liveness::kDead)
    return holder_of(qp.responder.load()) == 0;
  qp.responder.compare_exchange_strong(word, word & ~kHolderMask);
  return holder_of(qp.responder.load()) == 0;
}

// Takes the hold from a holder that does not let go. Not while as many others as there is room for live and
// have not found out that they have lost their own.
static void revoke_hold(Fabric& fabric, QpSlot& qp, std::uint64_t word) {
  for (auto& revoked : qp.revoked.words) {
    std::uint64_t before = revoked.load();
    if (holder_of(before) != 0 && process_liveness(fabric, holder_of(before)) != Liveness::kDead) continue;
    if (!revoked.compare_exchange_strong(before, word)) continue;
    std::uint64_t expected = word;
    if (!qp.responder.compare_exchange_strong(expected, word & ~kHolderMask)) {
      expected = word;
      revoked.compare_exchange_strong(expected, 0);  // it has let go by itself
    }
    return;
  }
}

void wait_until_unused(Fabric& fabric, QpSlot& qp, ProcessId self) {
  const std::uint64_t start = now_ns();
  std::uint64_t looked = start;
  for (;;) {
    const std::uint64_t word = qp.responder.load();
    const ProcessId holder = holder_of(word);
    if (holder == 0) return;
    const std::uint64_t now = now_ns();
    if (now - start > kSpinNs) nap();  // the holder may need this very CPU
    if (holder == self || now - looked < kLookAtHolderNs) continue;
    looked = now;
    const Liveness life = process_liveness(fabric, holder);
    if (life == Liveness::kDead && responder_is_free(fabric, qp)) return;
    if (now - start > (life == Liveness::kStopped ? kStoppedHolderNs : kLongestWaitNs)) {
      revoke_hold(fabric, qp, word);
      return;
    }
  }
}

bool is_at_rest(Fabric& fabric, Qp& qp) {
  QpSlot& slot = *qp.shared;
  const std::uint64_t word = slot.responder.load();
  if (holder_of(word) == 0) return true;
  const std::uint64_t now = now_ns();
  if (qp.held_by != word) {
    qp.held_by = word;
    qp.held_since_ns = now;
  }
  const Liveness life = process_liveness(fabric, holder_of(word));
  if (life == Liveness::kDead) return responder_is_free(fabric, slot);
  if (now - qp.held_since_ns > (life == Liveness::kStopped ? kStoppedHolderNs : kLongestWaitNs))
    revoke_hold(fabric, slot, word);
  return holder_of(slot.responder.load()) == 0;
}

void wait_until_unused_once(Fabric& fabric, QpSlot& qp, ProcessId self) {
  const std::uint64_t word = qp.responder.load();
  const std::uint64_t start = now_ns();
  std::uint64_t looked = start;
  while (holder_of(word) != 0 && qp.responder.load() == word) {
    const std::uint64_t now = now_ns();
    if (now - start > kSpinNs) nap();
    if (holder_of(word) == self || now - looked < kLookAtHolderNs) continue;
    looked = now;
    const Liveness life = process_liveness(fabric, holder_of(word));
    if (life == Liveness::kDead || now - start > kLongestWaitNs) return;
    if (life == Liveness::kStopped && now - start > kStoppedHolderNs) return;
  }
}

}  // namespace vhca
