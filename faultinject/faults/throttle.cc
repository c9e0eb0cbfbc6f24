// SPDX-License-Identifier: Apache-2.0
// throttle: the port carries at most `rate` (or a schedule of `rates`) in each direction, shared fairly by
// all queue pairs and processes. The program sees: later completions. Kept-back work fills its send queue as
// posted work would. Work already posted: goes at full rate. Heal: what is kept back goes at once, in order.
//
// Out: sends and writes of the port's own queue pairs, and READs by queue pairs connected to it.
// In: sends and writes of queue pairs connected to the port, in whichever injected process, and READs of the
// port's own. Each direction has a virtual clock on the board, for each throttle. A queue pair pays for the
// WR at its head in quanta: it reserves the clock's next stretch, waits until that has passed, and reserves
// again. As each has one reservation at a time, the clock goes round among all of them, whatever the size of
// their WRs and whatever their process; one that is killed costs the others one quantum.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

constexpr uint64_t kQuantumNs = 500000;        // how long one queue pair holds the port at most …
constexpr uint64_t kLeastQuantumBytes = 1024;  // … unless that is less than a packet
constexpr uint64_t kMostQuantumBytes = 1 << 18;
constexpr uint64_t kCatchUpNs = 20000000;  // a late wake-up is made good, up to this

class Throttle : public Fault {
 public:
  using Fault::Fault;
  void begin(Context&, uint64_t) override { witnessed_.clear(); }
  bool reaches_peers() const override { return true; }
  bool holds(const Context& context, const QueuePair& qp) const override { return hits(context, qp); }

  uint64_t may_go_at(Context& context, QueuePair& qp, HeldWr& wr, uint64_t now) override {
    const bool reads = wr.wr.opcode == IBV_WR_RDMA_READ;  // its data flows the other way
    uint64_t at = now;
    Pace& pace = paces_[qp.serial];
    if (pace.head != wr.serial) {
      if (pace.head != 0) pace = {};  // its queue was emptied by a reset or a failure
      pace.head = wr.serial;
    }
    // Each send pays at its own two ports: a queue pair may be connected elsewhere after a reset, and the
    // datagrams of one go to many.
    if (hits_here(context, qp)) {
      ClockEntry& port = clocks_of(context.board(), id(), {context.node(), context.nic(), qp.port});
      at = std::max(at, pay(pace.own, port.busy_until_ns[reads ? 1 : 0], wr.bytes, now));
    }
    if (hits_there(context, qp)) {
      ClockEntry& port = clocks_of(context.board(), id(), *qp.peer);
      at = std::max(at, pay(pace.peer, port.busy_until_ns[reads ? 0 : 1], wr.bytes, now));
    }
    if (at > now && at != kAskAgain && witnessed_.insert(qp.serial).second) {
      took_effect(entry(), now);
      context.witness(*this, Effect::kWrWithheld, qp.qp->qp_num, wr.bytes, now);
    }
    return at;
  }

  void went(Context&, QueuePair& qp) override {
    Pace& pace = paces_[qp.serial];
    pace.head = 0;
    pace.own.paid = pace.peer.paid = pace.own.turn_bytes = pace.peer.turn_bytes = 0;
    if (qp.held.size() > 1) return;  // the next one goes on where this one ended
    pace.own.last_turn_ns = pace.peer.last_turn_ns = 0;
  }

 private:
  struct Payment {
    uint64_t paid = 0;          // bytes of the WR at the head of the queue
    uint64_t turn_bytes = 0;    // reserved, not yet passed
    uint64_t turn_ns = 0;       // when the reservation will have passed
    uint64_t last_turn_ns = 0;  // when the one before did; 0: the queue was empty since
  };
  struct Pace {
    uint64_t head = 0;  // HeldWr::serial of what is being paid for; 0: the one before it has gone
    Payment own, peer;
  };

  // The rate of the schedule at `now`; 0: not limited.
  uint64_t rate_at(uint64_t now) const {
    if (entry().rate_steps == 0) return entry().rate_bits_per_s;
    uint64_t round_ns = 0;
    for (uint32_t i = 0; i < entry().rate_steps; i++) {
      if (entry().schedule[i].lasts_ns == 0) round_ns = UINT64_MAX;
      if (round_ns != UINT64_MAX) round_ns += entry().schedule[i].lasts_ns;
    }
    const uint64_t from = entry().fired_ns.load();
    uint64_t at = now > from ? now - from : 0;
    at %= round_ns;
    for (uint32_t i = 0; i + 1 < entry().rate_steps; i++) {
      if (at < entry().schedule[i].lasts_ns) return entry().schedule[i].bits_per_s;
      at -= entry().schedule[i].lasts_ns;
    }
    return entry().schedule[entry().rate_steps - 1].bits_per_s;
  }

  // Pays towards `bytes`; returns now when all is paid, else when to come again. At most one reservation per
  // call, even if its time has passed already: after a late wake-up the others must have their turns too.
  uint64_t pay(Payment& payment, std::atomic<uint64_t>& clock, uint64_t bytes, uint64_t now) {
    const uint64_t rate = rate_at(now);
    if (rate == 0) {  // the schedule lets everything pass now
      payment.turn_bytes = payment.last_turn_ns = 0;
      return now;
    }
    const uint64_t quantum = std::clamp(uint64_t((unsigned __int128)(rate)*kQuantumNs / 8000000000u),
                                        kLeastQuantumBytes, kMostQuantumBytes);
    if (payment.turn_bytes != 0) {
      if (payment.turn_ns > now) return payment.turn_ns;
      payment.paid += payment.turn_bytes;
      payment.turn_bytes = 0;
      payment.last_turn_ns = payment.turn_ns;
    }
    if (payment.paid >= bytes) return now;
    payment.turn_bytes = std::min(quantum, bytes - payment.paid);
    // We come late by the wake-up latency of this machine; the port would not have waited for us.
    const uint64_t oldest = now > kCatchUpNs ? now - kCatchUpNs : 0;
    const uint64_t from = payment.last_turn_ns != 0 ? std::max(payment.last_turn_ns, oldest) : now;
    const auto cost = uint64_t((unsigned __int128)(payment.turn_bytes) * 8 * 1000000000u / rate);
    uint64_t busy = clock.load(), end = 0;
    do {
      end = std::max(busy, from) + cost;
    } while (!clock.compare_exchange_weak(busy, end));
    payment.turn_ns = end;
    return end > now ? end : kAskAgain;
  }

  std::unordered_map<uint64_t, Pace> paces_;      // by serial
  std::unordered_set<uint64_t> witnessed_;        // one record per queue pair and round
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> throttle() {
  return {FaultKind{
      .name = "throttle",
      .what = "the port carries at most `rate` in each direction",
      .past = "became slow",
      .present = "becomes slow",
      .takes = Takes::kSpeed,
      .shared = {"rate", "rates", "peer"},
      .needs = {{{"rate", "rates"}, "rate: 100 Mbit/s"}},
      .examples = {{.parameters = "rate: 100 Mbit/s",
                    .harm = Harm::kHarmless,
                    .messages_late = 2,
                    .strikes = Strikes::kWork}},
      .make = IN_LIBRARY(made<Throttle>),
  }};
}

}  // namespace faultinject::faults
