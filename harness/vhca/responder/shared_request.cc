// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/responder/shared_request.h"

#include <algorithm>

#include "harness/vhca/base/pause_point.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/objects.h"

namespace vhca {
namespace {

constexpr std::uint64_t kHoldMask = ~0xffff'ffffull;

std::uint64_t taker_id(const Fabric& fabric, const QpSlot& qp) {
  return static_cast<std::uint64_t>(&qp - fabric.queue_pairs.slots) + 1;
}

void copy_request(const SrqEntry& from, std::uint32_t max_sge, RecvEntry& to) {
  to.wr_id = read_word(from.wr_id);
  to.sge_count = std::min(static_cast<std::uint32_t>(read_word(from.sge_count)), max_sge);
  for (std::uint32_t i = 0; i < to.sge_count; ++i)
    to.sge[i] = {read_word(from.sge[i].address), read_word(from.sge[i].length), read_word(from.sge[i].lkey)};
}

void move_on(SrqSlot& srq, std::uint64_t index) { srq.taken.compare_exchange_strong(index, index + 1); }

// Of the request that a holder is taking: the one near the next that has those last bits.
std::uint64_t index_of(const SrqSlot& srq, std::uint64_t intent) {
  constexpr std::uint64_t kHalf = (kIntentIndexMask + 1) / 2;
  const std::uint64_t base = srq.taken.load() - kHalf;
  return base + ((intent - base) & kIntentIndexMask);
}

// Whether the holder had claimed what it was taking: then its queue pair has it. As long as `intent` stands,
// nothing has been completed behind it.
void move_if_claimed(Fabric& fabric, QpSlot& qp, std::uint64_t intent) {
  SrqSlot& srq = fabric.shared_receive_queues[qp.srq - 1];
  const std::uint64_t index = index_of(srq, intent);
  if (entry_of(fabric, srq, index).claim.load() != (index << kTakerBits | taker_id(fabric, qp))) return;
  VHCA_PAUSE_POINT(claim_seen);
  std::uint64_t completed = qp.recv_completed.load();
  if (qp.srq_intent.load() != intent) return;
  qp.recv_posted.compare_exchange_strong(completed, completed + 1);
  move_on(srq, index);
  look_at_limit(fabric, srq);
}

}  // namespace

void look_at_limit(Fabric& fabric, SrqSlot& srq) {
  std::uint64_t seen = srq.limit.load();
  do {
    const std::uint64_t limit = seen & kLimitMask;
    if (limit == 0 || srq.posted.load() - srq.taken.load() >= limit) return;
    VHCA_PAUSE_POINT(limit_seen);
  } while (!srq.limit.compare_exchange_strong(seen, (seen & ~kLimitMask) | kLimitReached));
  VHCA_PAUSE_POINT(limit_taken);
  ring_doorbell(fabric, srq.owner.load());
}

void finish_taking(Fabric& fabric, QpSlot& qp) {
  std::uint64_t intent = qp.srq_intent.load();
  if ((intent & kTaking) == 0) return;
  move_if_claimed(fabric, qp, intent);
  qp.srq_intent.compare_exchange_strong(intent, intent & kHoldMask);
}

void close_taking(Fabric& fabric, QpSlot& qp) {
  const std::uint64_t closed = (qp.responder.load() & kHoldMask) | kClosedToHolder;
  for (std::uint64_t intent = qp.srq_intent.load(); intent != closed;) {
    if ((intent & kTaking) != 0) {
      SrqSlot& srq = fabric.shared_receive_queues[qp.srq - 1];
      const std::uint64_t index = index_of(srq, intent);
      std::uint64_t unclaimed = index << kTakerBits;
      if (qp.revoked.any())
        entry_of(fabric, srq, index)
            .claim.compare_exchange_strong(unclaimed, unclaimed | taker_id(fabric, qp));
      move_if_claimed(fabric, qp, intent);
    }
    if (qp.srq_intent.compare_exchange_strong(intent, closed)) return;
  }
}

void finish_taking_of(Fabric& fabric, SrqSlot& srq, const SrqEntry& entry) {
  const std::uint64_t claim = entry.claim.load();
  if ((claim & kTakerMask) == 0) return;
  QpSlot& qp = fabric.queue_pairs[(claim & kTakerMask) - 1];
  const std::uint64_t intent = qp.srq_intent.load();
  if ((intent & kTaking) == 0 || index_of(srq, intent) != claim >> kTakerBits) return;
  move_if_claimed(fabric, qp, intent);
}

bool take_shared_receive(Fabric& fabric, QpSlot& qp, const Hold& hold) {
  SrqSlot& srq = fabric.shared_receive_queues[qp.srq - 1];
  for (;;) {
    const std::uint64_t index = srq.taken.load(std::memory_order_acquire);
    if (index == srq.posted.load(std::memory_order_acquire)) return false;
    SrqEntry& entry = entry_of(fabric, srq, index);
    std::uint64_t claim = entry.claim.load(std::memory_order_acquire);
    if (claim >> kTakerBits != index) {
      // It was taken, given back, and posted anew. Whoever took it has gone on, or was killed before that.
      move_on(srq, index);
      continue;
    }
    if ((claim & kTakerMask) == 0) {
      std::uint64_t completed = qp.recv_completed.load(std::memory_order_relaxed);
      RecvEntry& place = recv_entry_of(fabric, qp, completed);
      std::uint64_t before = qp.srq_intent.load();
      // All that was read until here is of the life that we hold, and its owner closes the word before it
      // begins another.
      if (!hold.is_valid()) return false;
      copy_request(entry, srq.max_sge, place);
      VHCA_PAUSE_POINT(request_copied);
      const std::uint64_t none = hold.word & kHoldMask;
      std::uint64_t taking = none | kTaking | (index & kIntentIndexMask);
      if (!qp.srq_intent.compare_exchange_strong(before, taking)) return false;
      VHCA_PAUSE_POINT(request_named);
      if (entry.claim.compare_exchange_strong(claim, claim | taker_id(fabric, qp))) {
        VHCA_PAUSE_POINT(claimed);
        // Fails if somebody has done it for us.
        qp.recv_posted.compare_exchange_strong(completed, completed + 1);
        qp.srq_intent.compare_exchange_strong(taking, none);
        VHCA_PAUSE_POINT(taken);
        move_on(srq, index);
        look_at_limit(fabric, srq);
        return true;
      }
      // Another has it. What was said can stay: nobody will find a claim of this queue pair there.
    }
    move_on(srq, index);
  }
}

}  // namespace vhca
