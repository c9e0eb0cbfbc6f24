// SPDX-License-Identifier: Apache-2.0
// Sends that do not get through for the time being: they are kept back, as if retransmitted again and again,
// and go when the way is free. A queue pair whose retries are exhausted before that is cut (Context::cut):
// its retry time counts from the post of the oldest send kept back, or from when the way was blocked.
//
// What had been posted before is with the provider already, and passes.
#pragma once

#include <algorithm>
#include <unordered_set>

#include "faultinject/preload/fault.h"
#include "faultinject/preload/context.h"

namespace faultinject {

class Stall : public Fault {
 public:
  using Fault::Fault;

  bool holds(const Context& context, const QueuePair& qp) const override { return stalls(context, qp); }

  uint64_t may_go_at(Context& context, QueuePair& qp, HeldWr& wr, uint64_t now) override {
    if (!stalls_wr(context, qp, wr)) return now;
    if (witnessed_.insert(qp.serial).second)
      struck(context, Effect::kWrWithheld, qp.qp->qp_num, wr.bytes, now);
    const uint64_t end = exhausted_at(qp, wr);
    return end == kNotByTime ? end : std::max(end, now + kLook);  // tick() ends it, not the pump
  }

  uint64_t tick(Context& context, uint64_t now) override {
    uint64_t next = UINT64_MAX;
    context.each_qp([&](QueuePair& qp) {
      if (qp.held.empty() || !qp.connected || !stalls(context, qp) ||
          !stalls_wr(context, qp, qp.held.front()))
        return;
      const uint64_t end = exhausted_at(qp, qp.held.front());
      if (end == kNotByTime) return;
      if (end > now) {
        next = std::min(next, end);
      } else {
        context.cut(qp, *this, now, Effect::kQpToErr, std::max(blocked_at_, qp.held.front().posted_ns));
      }
    });
    return next;
  }

 protected:
  // Are sends of this queue pair kept back now?
  virtual bool stalls(const Context& context, const QueuePair& qp) const = 0;
  // And this one, when it is at the head of its queue?
  virtual bool stalls_wr(const Context&, const QueuePair&, const HeldWr&) const { return true; }
  // Does it give up when its retries are exhausted?
  virtual bool gives_up(const Context&, const QueuePair&) const { return true; }

  void blocked(const Context& context, uint64_t now) {
    context_ = &context;
    blocked_at_ = now;
    witnessed_.clear();
  }

 private:
  static constexpr uint64_t kLook = 1000000;  // ns

  uint64_t exhausted_at(const QueuePair& qp, const HeldWr& wr) const {
    if (context_ == nullptr || !gives_up(*context_, qp) || qp.timeout == 0) return kNotByTime;
    return std::max(blocked_at_, wr.posted_ns) + qp.retry_window_ns();
  }

  const Context* context_ = nullptr;
  uint64_t blocked_at_ = 0;
  std::unordered_set<uint64_t> witnessed_;  // one record per queue pair and outage
};

}  // namespace faultinject
