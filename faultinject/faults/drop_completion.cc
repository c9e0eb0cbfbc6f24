// drop_completion: the work was done, and its completion never comes; `count` of them, on the send side or
// (`queue: recv`) on the receive side.
// The program sees: nothing for that WR; the completions behind it come as ever. Its peer sees nothing
// unusual. Work already posted: done. Heal: no more are taken away; those that were do not come back.
#include "faultinject/faults/kinds.h"
#include "faultinject/preload/context.h"

namespace faultinject {
namespace {

class DropCompletion : public Fault {
 public:
  using Fault::Fault;

  bool completing(Context& context, QueuePair& qp, const Sent* sent, ibv_wc& wc, uint64_t now) override {
    if (entry().receive != 0 ||
        (entry().opcodes != 0 && (sent == nullptr || !entry().takes_opcode(sent->opcode))))
      return true;
    return !drop(context, qp, wc, now);
  }

  bool received(Context& context, QueuePair& qp, ibv_wc& wc, uint64_t now) override {
    return entry().receive == 0 || !drop(context, qp, wc, now);
  }

 private:
  bool drop(Context& context, QueuePair& qp, const ibv_wc& wc, uint64_t now) {
    return hits(context, qp) && selects(entry(), qp) &&
           strike_counted(context, Effect::kWcDropped, qp.qp->qp_num, wc.status, now);
  }
};

}  // namespace

std::unique_ptr<Fault> make_drop_completion(FaultEntry& entry) {
  return std::make_unique<DropCompletion>(entry);
}

}  // namespace faultinject
