// SPDX-License-Identifier: Apache-2.0
// poll_fail: polling a completion queue of the device fails, `count` times.
// The program sees: a negative result of ibv_poll_cq, `errno` from ibv_start_poll. No completion is lost: it
// comes when polling works again. Work already posted: untouched. Heal: polling works.
#include <cerrno>

#include "faultinject/plan/kind.h"

#ifdef FAULTINJECT_LIBRARY  // a plan reads the declaration alone
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class PollFail : public Fault {
 public:
  using Fault::Fault;

  int refuse(Context& context, const Call& call, uint64_t now) override {
    if (call.what != Call::What::kPoll || !hits(context)) return 0;
    return strike_counted(context, Effect::kPollRefused, 0, uint64_t(entry().error), now) ? entry().error : 0;
  }
};

}  // namespace
}  // namespace faultinject
#endif

namespace faultinject::faults {

std::vector<FaultKind> poll_fail() {
  return {FaultKind{
      .name = "poll_fail",
      .what = "polling fails with `errno`",
      .past = "refused a poll",
      .present = "refuses a poll",
      .ends = Ends::kAfterStrikes,
      .whole_device = true,
      .shared = {"errno", "count"},
      .error = EIO,
      .examples = {{.parameters = "errno: EIO",
                    .harm = Harm::kMayBreak,
                    .messages_late = 2,
                    .strikes = Strikes::kWork}},
      .make = IN_LIBRARY(made<PollFail>),
  }};
}

}  // namespace faultinject::faults
