// SPDX-License-Identifier: Apache-2.0
// blackhole: packets from the port (direction out), to it (in), or both, are lost, and nobody is told: the
// port stays ACTIVE. The program sees: silence, then RETRY_EXC_ERR on the first outstanding send when the
// retries of that queue pair (its own timeout and retry_cnt) are exhausted, WR_FLUSH_ERR for the rest. With
// one direction all queue pairs of the port and of its peers end so too, but the data of one side arrives:
// with `in` what the port sends is received, and its acknowledgements are lost; with `out` what is sent to
// it. Work already posted: lost unless it was delivered before t0 (one direction: what the provider has,
// passes; its acknowledgements do not). Heal: new queue pairs work; those that were cut end as above; with
// one direction those whose retries last go on.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/faults/port_cut.h"
#include "faultinject/faults/stall.h"

namespace faultinject {
namespace {

// Which packets, as the target's port sees them.
enum class Direction : uint64_t { kIn, kOut, kBoth };

class OneWay : public Stall {
 public:
  enum Own { kDirection };  // as declared below

  using Stall::Stall;
  bool reaches_peers() const override { return true; }

  void begin(Context& context, uint64_t now) override {
    blocked(context, now);
    context.each_qp([&](QueuePair& qp) { connected(context, qp, now); });
  }

  void connected(Context& context, QueuePair& qp, uint64_t now) override {
    if (hits(context, qp) && !loses_requests(context, qp)) context.deafen(qp, *this, now);
  }

  void posting(Context& context, QueuePair& qp, Sent& sent, uint64_t now) override {
    if (!qp.reliable && hits(context, qp) && loses_requests(context, qp)) lose(context, qp, sent, now);
  }

  void end(Context& context, uint64_t) override {
    context.each_qp([&](QueuePair& qp) { context.undeafen(qp, *this); });
  }

 protected:
  bool stalls(const Context& context, const QueuePair& qp) const override {
    return qp.reliable && hits(context, qp);
  }

  // Where only the way back is blocked, requests arrive; but what they fetch does not.
  bool stalls_wr(const Context& context, const QueuePair& qp, const HeldWr& wr) const override {
    if (loses_requests(context, qp)) return true;
    return wr.wr.opcode == IBV_WR_RDMA_READ || wr.wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
           wr.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  }

 private:
  bool loses_requests(const Context& context, const QueuePair& qp) const {
    return hits_here(context, qp) == (Direction(entry().own[kDirection]) == Direction::kOut);
  }
};

std::unique_ptr<Fault> make_blackhole(FaultEntry& entry) {
  if (Direction(entry.own[OneWay::kDirection]) == Direction::kBoth) return std::make_unique<PortCut>(entry);
  return std::make_unique<OneWay>(entry);
}

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> blackhole() {
  return {FaultKind{
      .name = "blackhole",
      .what = "traffic to and from the port is lost silently",
      .past = "silently lost all traffic",
      .present = "silently loses all traffic",
      .takes = Takes::kPort,
      .shared = {"peer"},
      .own = {own_choice("direction", {"in", "out", "both"}, 2)},
      .examples = {{},
                   {.suffix = "_in",
                    .parameters = "direction: in",
                    .harm = Harm::kMayBreak,
                    .strikes = Strikes::kWork},
                   {.suffix = "_out",
                    .parameters = "direction: out",
                    .harm = Harm::kMayBreak,
                    .strikes = Strikes::kWork}},
      .make = IN_LIBRARY(make_blackhole),
  }};
}

}  // namespace faultinject::faults
