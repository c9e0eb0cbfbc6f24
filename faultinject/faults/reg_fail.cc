// reg_fail: registering memory fails with `errno`, `count` times: ibv_reg_mr, ibv_reg_mr_iova,
// ibv_reg_mr_iova2, ibv_reg_dmabuf_mr. The program sees: NULL and errno. Work already posted, and memory
// registered already: untouched. Heal: it works.
#include "faultinject/faults/kinds.h"
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

std::unique_ptr<Fault> make_reg_fail(FaultEntry& entry) { return std::make_unique<RegFail>(entry); }

}  // namespace faultinject
