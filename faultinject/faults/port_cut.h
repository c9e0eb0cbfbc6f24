// SPDX-License-Identifier: Apache-2.0
// What port_down and blackhole have in common: every queue pair on the port, and every queue pair anywhere
// that is connected to it, stops carrying data.
//
// Any provider can do this: the real queue pairs are moved to ERR, and the flushes that follow are hidden
// from the program until the retries of its own settings would be exhausted (Context::cut). The price: a
// queue pair that was cut stays broken when the fault heals, however short it was. Unreliable queue pairs
// notice nothing, as on hardware: their sends complete, and nothing of them arrives.
#pragma once

#include "faultinject/preload/fault.h"
#include "faultinject/preload/context.h"

namespace faultinject {

class PortCut : public Fault {
 public:
  using Fault::Fault;
  bool reaches_peers() const override { return true; }

  // Reliable queue pairs that were cut cost the others of the NIC nothing more once their failure was shown.
  bool watches(const Context& context) const override {
    bool waits = !begun || entry().counts_sends();
    context.each_qp([&](const QueuePair& qp) {
      waits |= !qp.reliable || (qp.life == QueuePair::Life::kWhole && qp.connected && hits(context, qp));
    });
    return waits;
  }

  void begin(Context& context, uint64_t now) override {
    context.each_qp([&](QueuePair& qp) {
      if (hits(context, qp)) context.cut(qp, *this, now);
    });
  }

  // As on hardware, connecting over a dead port succeeds: no packet is needed for it.
  void connected(Context& context, QueuePair& qp, uint64_t now) override {
    if (hits(context, qp)) context.cut(qp, *this, now, Effect::kQpConnectedDead);
  }
  void receives(Context& context, QueuePair& qp, uint64_t now) override { connected(context, qp, now); }

  void posting(Context& context, QueuePair& qp, Sent& sent, uint64_t now) override {
    if (!qp.reliable && hits(context, qp)) lose(context, qp, sent, now);
  }
};

}  // namespace faultinject
