// SPDX-License-Identifier: Apache-2.0
// port_flap: the link goes down for `down`, comes up for `up`, and so on, `count` times.
// The program sees: on the port's node PORT_ERR and PORT_ACTIVE (unless `events: false`) and what
// ibv_query_port says (unless `query: false`), each time. Sends on the port, and to it, wait while the link
// is down and go when it is up: late completions. A queue pair whose retries (its own timeout and retry_cnt)
// are exhausted before that ends as with port_down: RETRY_EXC_ERR, then WR_FLUSH_ERR. Work already posted:
// passes. Heal: the link is up, and what was kept back goes at once.
#include "faultinject/plan/plan.h"
#include "faultinject/plan/units.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/faults/port_show.h"
#include "faultinject/faults/stall.h"

namespace faultinject {
namespace {

class PortFlap : public Stall {
  enum Own { kDown, kUp };  // as declared below

 public:
  using Stall::Stall;
  bool reaches_peers() const override { return true; }

  void begin(Context& context, uint64_t now) override { follow(context, now); }
  uint64_t tick(Context& context, uint64_t now) override {
    const uint64_t next = follow(context, now);
    return std::min(next, Stall::tick(context, now));
  }
  void posting(Context& context, QueuePair& qp, Sent& sent, uint64_t now) override {
    if (down_ && !qp.reliable && hits(context, qp)) lose(context, qp, sent, now);
  }
  void end(Context& context, uint64_t now) override {
    if (down_) set(context, false, now);
  }

 protected:
  bool stalls(const Context& context, const QueuePair& qp) const override {
    return down_ && qp.reliable && hits(context, qp);
  }

 private:
  static constexpr uint64_t kMostRecorded = 1024;  // outages of a round, so that the log has room for others

  // All processes reckon with the moment of firing, so that they agree without talking. Returns the next
  // change.
  uint64_t follow(Context& context, uint64_t now) {
    const uint64_t cycle = entry().own[kDown] + entry().own[kUp];
    const uint64_t from = entry().fired_ns.load();
    const uint64_t at = now > from ? now - from : 0;
    const uint64_t outage = at / cycle;
    const bool over = entry().limit != kAllStrikes && outage >= entry().limit;
    const bool down = !over && at % cycle < entry().own[kDown];
    if (down != down_) {
      outage_ = outage + 1;
      set(context, down, now);
    }
    if (over) return UINT64_MAX;
    return from + outage * cycle + (down ? entry().own[kDown] : cycle);
  }

  void set(Context& context, bool down, uint64_t now) {
    down_ = down;
    if (down) blocked(context, now);
    show_link(context, entry(), down);
    const bool recorded = outage_ <= kMostRecorded;
    const bool told = !(down && context.opening()) && tell_link(context, *this, down, now, recorded);
    if (!has_port(context, entry())) return;
    if (recorded) context.witness(*this, down ? Effect::kLinkDown : Effect::kLinkUp, 0, outage_, now);
    if (down && (told || entry().query != 0)) took_effect(entry(), now);
  }

  bool down_ = false;
  uint64_t outage_ = 0;
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

using namespace std::chrono_literals;

std::vector<FaultKind> port_flap() {
  return {FaultKind{
      .name = "port_flap",
      .what = "the link goes down and comes up again, `count` times",
      .past = "had a flapping link",
      .present = "has a flapping link",
      .takes = Takes::kPort,
      .ends = Ends::kAfterItsTime,
      .shared = {"events", "query", "count"},
      .own = {own_time("down", 200ms, 1ms), own_time("up", 800ms, 1ms)},
      .count = 3,
      .examples = {{.parameters = "down: 10 ms, up: 20 ms, count: 3", .harm = Harm::kMayBreak}},
      .check = [](const FaultSpec& fault) -> Complaint {
        const auto most = uint64_t(kLongestPlan / (fault.time("down") + fault.time("up")));
        if (fault.count != FaultSpec::kAll && fault.count > most)
          return {"count", "so many outages take more than ten years"};
        return {};
      },
      .lasts =
          [](const FaultSpec& fault) {
            return int64_t(fault.count) * (fault.time("down") + fault.time("up")) - fault.time("up");
          },
      .make = IN_LIBRARY(made<PortFlap>),
  }};
}

}  // namespace faultinject::faults
