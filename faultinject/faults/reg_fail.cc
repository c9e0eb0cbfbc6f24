// SPDX-License-Identifier: Apache-2.0
// reg_fail: registering memory fails with `errno`, `count` times: ibv_reg_mr, ibv_reg_mr_iova,
// ibv_reg_mr_iova2, ibv_reg_dmabuf_mr. The program sees: NULL and errno. Work already posted, and memory
// registered already: untouched. Heal: it works.
#include <cerrno>

#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class RegFail : public Fault {
 public:
  using Fault::Fault;

  int refuse(Context& context, const Call& call, uint64_t now) override {
    if (call.what != Call::What::kRegister || !hits(context)) return 0;
    return strike_counted(context, Effect::kRegistrationRefused, 0, uint64_t(entry().error), now)
               ? entry().error
               : 0;
  }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> reg_fail() {
  return {FaultKind{
      .name = "reg_fail",
      .what = "registering memory fails with `errno`",
      .past = "refused to register memory",
      .present = "refuses to register memory",
      .ends = Ends::kAfterStrikes,
      .whole_device = true,
      .shared = {"errno", "count"},
      .error = ENOMEM,
      .examples = {{.parameters = "errno: ENOMEM",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kSetUp},
                   {.suffix = "_lasting",
                    .parameters = "errno: ENOMEM, count: all",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kSetUp,
                    .no_more_set_up = true}},
      .make = IN_LIBRARY(made<RegFail>),
  }};
}

}  // namespace faultinject::faults
