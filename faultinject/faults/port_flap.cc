// port_flap: the link goes down for `down`, comes up for `up`, and so on, `count` times.
// The program sees: on the port's node PORT_ERR and PORT_ACTIVE (unless `events: false`) and what
// ibv_query_port says (unless `query: false`), each time. Sends on the port, and to it, wait while the link
// is down and go when it is up: late completions. A queue pair whose retries (its own timeout and retry_cnt)
// are exhausted before that ends as with port_down: RETRY_EXC_ERR, then WR_FLUSH_ERR. Work already posted:
// passes. Heal: the link is up, and what was kept back goes at once.
#include "faultinject/faults/kinds.h"
#include "faultinject/faults/port_show.h"
#include "faultinject/faults/stall.h"

namespace faultinject {
namespace {

class PortFlap : public Stall {
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
  // All processes reckon with the moment of firing, so that they agree without talking. Returns the next
  // change.
  uint64_t follow(Context& context, uint64_t now) {
    const uint64_t cycle = entry().down_ns + entry().up_ns;
    const uint64_t from = entry().fired_ns.load();
    const uint64_t at = now > from ? now - from : 0;
    const uint64_t outage = at / cycle;
    const bool over = entry().limit != kAllStrikes && outage >= entry().limit;
    const bool down = !over && at % cycle < entry().down_ns;
    if (down != down_) {
      outage_ = outage + 1;
      set(context, down, now);
    }
    if (over) return UINT64_MAX;
    return from + outage * cycle + (down ? entry().down_ns : cycle);
  }

  void set(Context& context, bool down, uint64_t now) {
    down_ = down;
    if (down) blocked(context, now);
    show_link(context, entry(), down);
    const bool told = !(down && context.opening()) && tell_link(context, *this, down, now);
    if (!hits(context)) return;
    context.witness(*this, down ? Effect::kLinkDown : Effect::kLinkUp, 0, outage_, now);
    if (down && (told || entry().query != 0)) took_effect(entry(), now);
  }

  bool down_ = false;
  uint64_t outage_ = 0;
};

}  // namespace

std::unique_ptr<Fault> make_port_flap(FaultEntry& entry) { return std::make_unique<PortFlap>(entry); }

}  // namespace faultinject
