// SPDX-License-Identifier: Apache-2.0
// post_fail: posting refuses with `errno`, `count` times; sends or (`queue: recv`) receives.
// The program sees: the error from ibv_post_send, ibv_wr_complete or ibv_post_recv, with bad_wr at the WR
// that was refused; those before it in the list are posted, those behind it are not. Work already posted:
// untouched. Heal: posting works.
#include <cerrno>

#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class PostFail : public Fault {
 public:
  using Fault::Fault;

  int refuse(Context& context, const Call& call, uint64_t now) override {
    if (call.what != (entry().receive != 0 ? Call::What::kPostReceive : Call::What::kPostSend)) return 0;
    if (call.sent != nullptr && !entry().takes_opcode(call.sent->opcode)) return 0;
    if (call.qp == nullptr) {  // a shared receive queue
      if (!hits(context) || entry().selector == SelectorKind::kIndex || entry().has_peer != 0) return 0;
    } else if (!hits(context, *call.qp) || !selects(entry(), *call.qp)) {
      return 0;
    }
    const uint32_t number = call.qp != nullptr ? call.qp->qp->qp_num : 0;
    return strike_counted(context, Effect::kPostRefused, number, uint64_t(entry().error), now) ? entry().error
                                                                                               : 0;
  }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> post_fail() {
  return {FaultKind{
      .name = "post_fail",
      .what = "posting fails with `errno`",
      .past = "refused a post",
      .present = "refuses a post",
      .ends = Ends::kAfterStrikes,
      .shared = {"errno", "count", "queue", "qp", "peer", "opcode"},
      .error = ENOMEM,
      .examples = {{.parameters = "errno: ENOMEM",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kWork},
                   {.suffix = "_recv",
                    .parameters = "errno: ENOMEM, queue: recv",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kWork}},
      .make = IN_LIBRARY(made<PostFail>),
  }};
}

}  // namespace faultinject::faults
