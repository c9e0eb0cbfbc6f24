// SPDX-License-Identifier: Apache-2.0
// connect_fail: ibv_modify_qp to RTR or RTS (`state: rtr`, `rts` or `any`) fails with `errno`, `count` times,
// as when an address cannot be resolved. The program sees: the error; the queue pair stays in the state that
// it was in. Work already posted, and queue pairs connected already: untouched. Heal: connecting works.
#include <cerrno>

#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/control/board.h"
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

enum class Refused : uint32_t { kAny, kRtr, kRts };  // the words of 'state'

class ConnectFail : public Fault {
  enum Own { kState };  // as declared below

 public:
  using Fault::Fault;

  int refuse(Context& context, const Call& call, uint64_t now) override {
    if (call.what != Call::What::kModify || (call.mask & IBV_QP_STATE) == 0) return 0;
    const ibv_qp_state to = call.attributes->qp_state;
    const auto wanted = Refused(entry().own[kState]);
    const bool struck_state =
        (to == IBV_QPS_RTR && wanted != Refused::kRts) || (to == IBV_QPS_RTS && wanted != Refused::kRtr);
    if (!struck_state || !hits(context, *call.qp) || !selects(entry(), *call.qp)) return 0;
    return strike_counted(context, Effect::kModifyRefused, call.qp->qp->qp_num, uint64_t(entry().error), now)
               ? entry().error
               : 0;
  }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> connect_fail() {
  return {FaultKind{
      .name = "connect_fail",
      .what = "ibv_modify_qp to RTR or RTS fails with `errno`",
      .past = "refused to connect",
      .present = "refuses to connect",
      .ends = Ends::kAfterStrikes,
      .shared = {"errno", "count", "qp", "peer"},
      .own = {own_choice("state", {"any", "rtr", "rts"})},
      .error = ETIMEDOUT,
      .examples = {{.parameters = "errno: ETIMEDOUT, state: any",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kSetUp}},
      .make = IN_LIBRARY(made<ConnectFail>),
  }};
}

}  // namespace faultinject::faults
