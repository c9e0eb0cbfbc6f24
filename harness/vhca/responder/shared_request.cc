// SPDX-License-Identifier: Apache-2.0
#include "harness/vhca/responder/shared_request.h"

#include <algorithm>

#include "harness/vhca/base/pause_point.h"
#include "harness/vhca/fabric/process_table.h"
#include "harness/vhca/process/objects.h"

namespace vhca {
namespace {

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

}  // namespace

void look_at_limit(Fabric& fabric, SrqSlot& srq) {
  std::uint32_t limit = srq.limit.load();
  if (limit == 0 || srq.posted.load() - srq.taken.load() >= limit) return;
  if (!srq.limit.compare_exchange_strong(limit, 0)) return;
  srq.limit_reached.store(1);
  ring_doorbell(fabric, srq.owner.load());
}

void finish_taking(Fabric& fabric, QpSlot& qp, bool for_owner) {
  const std::uint64_t intent = qp.srq_intent.load();
  if (intent == 0) return;
  SrqSlot& srq = fabric.shared_receive_queues[qp.srq - 1];
  const std::uint64_t index = intent - 1;
  const std::uint64_t mine = index << kTakerBits | taker_id(fabric, qp);
  std::atomic<std::uint64_t>& claim = entry_of(fabric, srq, index).claim;
  std::uint64_t seen = claim.load();
  if (for_owner && qp.revoked.any() && seen == index << kTakerBits &&
      claim.compare_exchange_strong(seen, mine))
    seen = mine;
  if (seen == mine) {
    std::uint64_t completed = qp.recv_completed.load();
    qp.recv_posted.compare_exchange_strong(completed, completed + 1);
    move_on(srq, index);
  }
  qp.srq_intent.store(0);
}

bool take_shared_receive(Fabric& fabric, QpSlot& qp) {
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
      copy_request(entry, srq.max_sge, recv_entry_of(fabric, qp, completed));
      VHCA_PAUSE_POINT(request_copied);
      qp.srq_intent.store(index + 1);
      if (entry.claim.compare_exchange_strong(claim, claim | taker_id(fabric, qp))) {
        VHCA_PAUSE_POINT(claimed);
        // Fails if our hold was revoked: then the owner has done it, or has gone on to another life.
        qp.recv_posted.compare_exchange_strong(completed, completed + 1);
        qp.srq_intent.store(0);
        VHCA_PAUSE_POINT(taken);
        move_on(srq, index);
        look_at_limit(fabric, srq);
        return true;
      }
      qp.srq_intent.store(0);
    }
    move_on(srq, index);
  }
}

}  // namespace vhca
