// SPDX-License-Identifier: Apache-2.0
// gid_change: the port loses its addresses (one row of its GID table, or all), as when an IP address is
// removed. The program sees: IBV_EVENT_GID_CHANGE (unless `events: false`); ibv_query_gid shows zeros for the
// row, ibv_query_gid_ex ENODATA, ibv_query_gid_table leaves it out; ibv_modify_qp to RTR with that row as its
// own address fails with EINVAL. Work already posted, and queue pairs connected already: untouched. Heal: the
// rows are as before, and GID_CHANGE is delivered again.
#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include <errno.h>

#include <algorithm>
#include <vector>

#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class GidChange : public Fault {
  enum Own { kRow };  // as declared below

 public:
  using Fault::Fault;

  void begin(Context& context, uint64_t now) override {
    ports_.clear();
    if (!hits(context)) return;
    for (uint32_t port = 1; port <= context.ports(); port++)
      if ((entry().port == 0 || entry().port == port) && has_row(context, port)) ports_.push_back(port);
    if (ports_.empty()) return;  // there is no such row, or it is empty anyway
    struck(context, Effect::kGidHidden, 0, entry().own[kRow], now);
    if (!context.opening()) tell(context, now);
  }

  void end(Context& context, uint64_t now) override { tell(context, now); }

  bool hides_gid(const Context&, uint32_t port, uint32_t index) const override {
    return std::find(ports_.begin(), ports_.end(), port) != ports_.end() &&
           (entry().own[kRow] == UINT64_MAX || entry().own[kRow] == index);
  }

  int refuse(Context& context, const Call& call, uint64_t now) override {
    if (call.what != Call::What::kModify || (call.mask & IBV_QP_STATE) == 0 || (call.mask & IBV_QP_AV) == 0)
      return 0;
    const ibv_ah_attr& address = call.attributes->ah_attr;
    if (call.attributes->qp_state != IBV_QPS_RTR || address.is_global == 0) return 0;
    if (!hides_gid(context, call.qp->port, address.grh.sgid_index)) return 0;
    struck(context, Effect::kModifyRefused, call.qp->qp->qp_num, EINVAL, now);
    return EINVAL;
  }

 private:
  void tell(Context& context, uint64_t now) {
    if (entry().events == 0) return;
    for (const uint32_t port : ports_) {
      ibv_async_event event{};
      event.event_type = IBV_EVENT_GID_CHANGE;
      event.element.port_num = int(port);
      context.push_event(event);
      context.witness(*this, Effect::kEventDelivered, 0, IBV_EVENT_GID_CHANGE, now);
    }
  }

  bool has_row(const Context& context, uint32_t port) const {
    return entry().own[kRow] == UINT64_MAX || context.has_gid(port, entry().own[kRow]);
  }

  std::vector<uint32_t> ports_;  // whose rows it hides
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> gid_change() {
  return {FaultKind{
      .name = "gid_change",
      .what = "the port loses its GIDs: GID_CHANGE, and empty rows in the GID table",
      .past = "lost its GIDs",
      .present = "loses its GIDs",
      .shared = {"events"},
      .own = {own_number("gid_index", UINT64_MAX)},
      .examples = {{.harm = Harm::kMayBreak}},
      .make = IN_LIBRARY(made<GidChange>),
  }};
}

}  // namespace faultinject::faults
