// SPDX-License-Identifier: Apache-2.0
// reorder: sends of different queue pairs go in another order than they were posted in. Within a queue pair
// nothing changes. Up to `depth` sends of the NIC, or what is posted within `window`, are collected; then the
// queue pairs have their turns in an order from the seed, which is never the one in which they posted. The
// program sees: completions of different queue pairs, and at the peer their messages, in another order, later
// by `window` at most. Kept-back work fills its send queue as posted work would.
// Work already posted: untouched. Heal: what is kept back goes at once, in the order of its queue pairs.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include <algorithm>
#include <vector>

#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class Reorder : public Fault {
  enum Own { kWindow, kDepth };  // as declared below

 public:
  explicit Reorder(FaultEntry& entry) : Fault(entry), random_(entry.seed) {}

  bool holds(const Context& context, const QueuePair& qp) const override { return hits(context, qp); }

  void held(Context& context, QueuePair& qp, HeldWr&, uint64_t now) override {
    Batch& batch = collecting_;
    if (batch.sends == 0) batch.closes_ns = now + entry().own[kWindow];
    batch.sends++;
    const auto turn = std::find_if(batch.turns.begin(), batch.turns.end(),
                                   [&](const Turn& t) { return t.serial == qp.serial; });
    if (turn != batch.turns.end()) {
      turn->sends++;
    } else {
      batch.turns.push_back({qp.serial, qp.qp->qp_num, 1});
    }
    if (batch.sends >= entry().own[kDepth]) close(context, now);
  }

  uint64_t may_go_at(Context& context, QueuePair& qp, HeldWr&, uint64_t now) override {
    if (collecting_.sends != 0 && collecting_.closes_ns <= now) close(context, now);
    forget_gone(context);
    for (const Turn& turn : going_) {
      if (turn.serial != qp.serial) continue;
      return &turn == &going_.front() ? now : kAskAgain;
    }
    return collecting_.sends != 0 ? std::max(collecting_.closes_ns, now + 1) : now;
  }

  void went(Context& context, QueuePair& qp) override {
    if (!hits(context, qp)) return;  // it took no turn
    if (going_.empty() || going_.front().serial != qp.serial) return;
    if (--going_.front().sends == 0) going_.erase(going_.begin());
  }

  void end(Context&, uint64_t) override {
    going_.clear();
    collecting_ = {};
  }

 private:
  struct Turn {
    uint64_t serial;
    uint32_t qp_num;
    uint64_t sends;
  };
  struct Batch {
    uint64_t sends = 0, closes_ns = 0;
    std::vector<Turn> turns;  // in the order of their first post
  };

  void close(Context& context, uint64_t now) {
    Batch batch = std::move(collecting_);
    collecting_ = {};
    if (batch.turns.size() > 1) {
      std::vector<Turn> mixed = batch.turns;
      for (size_t i = mixed.size() - 1; i > 0; i--) {
        random_ = mix(random_);
        std::swap(mixed[i], mixed[random_ % (i + 1)]);
      }
      if (std::equal(mixed.begin(), mixed.end(), batch.turns.begin(),
                     [](const Turn& a, const Turn& b) { return a.serial == b.serial; }))
        std::rotate(mixed.begin(), mixed.begin() + 1, mixed.end());
      struck(context, Effect::kReordered, mixed.front().qp_num, batch.sends, now);
      batch.turns = std::move(mixed);
    }
    // Behind the batch before it, whose turns may not be over.
    going_.insert(going_.end(), batch.turns.begin(), batch.turns.end());
  }

  // A queue pair that was destroyed, or reset, has no more turns.
  void forget_gone(Context& context) {
    std::erase_if(going_, [&](const Turn& turn) {
      bool waits = false;
      context.each_qp([&](const QueuePair& qp) { waits |= qp.serial == turn.serial && !qp.held.empty(); });
      return !waits;
    });
  }

  uint64_t random_;
  Batch collecting_;
  std::vector<Turn> going_;  // the first one's turn
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

using namespace std::chrono_literals;

std::vector<FaultKind> reorder() {
  return {FaultKind{
      .name = "reorder",
      .what = "sends of different queue pairs go out in another order",
      .past = "reordered sends of its queue pairs",
      .present = "reorders sends of its queue pairs",
      .shared = {"peer"},
      .own = {own_time("window", 1ms, 1ns), own_number("depth", 8, 2)},
      .examples = {{.parameters = "window: 2 ms",
                    .harm = Harm::kHarmless,
                    .messages_late = 6,
                    .strikes = Strikes::kTwoQueuePairs}},
      .make = IN_LIBRARY(made<Reorder>),
  }};
}

}  // namespace faultinject::faults
