// poll_fail: polling a completion queue of the device fails, `count` times.
// The program sees: a negative result of ibv_poll_cq, `errno` from ibv_start_poll. No completion is lost: it
// comes when polling works again. Work already posted: untouched. Heal: polling works.
#include "faultinject/faults/kinds.h"
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

std::unique_ptr<Fault> make_poll_fail(FaultEntry& entry) { return std::make_unique<PollFail>(entry); }

}  // namespace faultinject
