// SPDX-License-Identifier: Apache-2.0
// Communicators that are ended while the job goes on, and those that come after them: as a framework recovers
// (ncclCommAbort and new ids) or goes on without a rank (ncclCommShrink, ncclCommRevoke).
#include <utility>

#include "harness/workload/nccl/communicators.h"
#include "harness/workload/nccl/waiting.h"

namespace r2bench {

bool Communicators::open() const {
  for (const Lane& lane : lanes_)
    if (driver_.EventQuery(lane.done) == cuda::kNotReady) return true;
  return false;
}

void Communicators::renew(const Communicator& group, bool member) {
  const Renewal& renewal = *options_.renewal;
  const bool at_rest = !renewal.delay;
  if (renewal.by == RenewBy::kRevoke) {
    // All of them before any is waited for: their operations end together.
    for (const Lane& lane : lanes_) nccl_.check(nccl_.CommRevoke(lane.comm, 0), "ncclCommRevoke", lane.comm);
    // A revoked communicator is in progress until it is quiet. What went wrong on it before is its past.
    for (const Lane& lane : lanes_) settle(lane.comm);
  }
  config_.group = group;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const nccl::Comm old = std::exchange(lane.comm, nullptr);
    const bool aborts = renewal.by == RenewBy::kAbort || (!at_rest && renewal.by == RenewBy::kShrink);
    if (!aborts)
      for (void* registration : lane.registrations) nccl_.CommDeregister(old, registration);
    if (renewal.by != RenewBy::kAbort && member) {
      int without = renewal.without;
      const bool quiet = at_rest || renewal.by == RenewBy::kRevoke;
      nccl_.check(nccl_.CommShrink(old, &without, 1, &lane.comm, nullptr,
                                   quiet ? nccl::kShrinkAtRest : nccl::kShrinkAbort),
                  "ncclCommShrink", old);
      prepare(lane);
    }
    if (aborts)
      nccl_.check(nccl_.CommAbort(old), "ncclCommAbort");
    else
      nccl_.check(nccl_.CommDestroy(old), "ncclCommDestroy");
  }
  poll_until([this] { return !open(); }, interrupt_);  // kernels that were told to end
  if (renewal.by == RenewBy::kAbort)
    for (size_t i = 0; i < lanes_.size(); ++i) join(lanes_[i], spare_ids_.at(i));
}

}  // namespace r2bench
